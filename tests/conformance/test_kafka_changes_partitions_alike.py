"""What becomes of a partition is what Kafka's controller makes of it.

Random partitions, in states that occur and in some that do not, and all kinds of changes. Where
Kafka and we differ on purpose, the difference is named in `expected`.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from ottla.controller.leader_and_isr import Election, PartitionUpdate, Rules, plan_change
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.topics import LeaderRecoveryState, PartitionRegistration
from ottla.protocol.types import TopicIdPartition, Uuid

pytestmark = pytest.mark.jvm

ASK = Path(__file__).parent / "PartitionChanges.java"
CASES = 20_000
OLD, NEW = MetadataVersion.IBP_3_5_IV2, MetadataVersion.IBP_4_2_IV1


@dataclass(frozen=True)
class Case:
    old: PartitionRegistration
    update: PartitionUpdate
    alive: tuple[int, ...]
    min_isr: int
    is_elr_enabled: bool
    level: MetadataVersion

    def line(self) -> str:
        old, update = self.old, self.update
        lists = (old.adding_replicas, old.removing_replicas, old.elr, old.last_known_elr)
        targets = (update.isr, update.replicas, update.adding, update.removing)
        return " ".join(
            [
                text(old.replicas),
                text(old.isr),
                str(old.leader),
                *map(text, lists),
                str(int(old.leader_recovery_state)),
                text(self.alive),
                str(self.min_isr),
                str(int(self.is_elr_enabled)),
                update.election.name,
                *map(text, targets),
                str(int(self.level)),
                str(update.lost),
            ]
        )


def text(values: tuple[int, ...] | list[int] | None) -> str:
    return "null" if values is None else ",".join(map(str, values)) or "-"


def directory(replica: int) -> Uuid:
    return Uuid((9).to_bytes(8) + replica.to_bytes(8))


def some(rng: Random, values: list[int] | tuple[int, ...], least: int = 0) -> tuple[int, ...]:
    return tuple(rng.sample(values, rng.randint(min(least, len(values)), len(values))))


def draw(rng: Random) -> Case:
    replicas = some(rng, list(range(6)), 1)
    is_elr_enabled = rng.random() < 0.6
    isr = some(rng, replicas, 0 if is_elr_enabled else 1)
    leader = rng.choice(isr) if isr and rng.random() < 0.75 else -1
    outside = [replica for replica in replicas if replica not in isr]
    elr = last = adding = removing = ()
    if is_elr_enabled:
        elr = tuple(sorted(some(rng, outside)))
        if leader == -1 and rng.random() < 0.7:
            last = (rng.choice(replicas),)
    if rng.random() < 0.4:
        adding = tuple(sorted(some(rng, replicas[1:])))
        removing = tuple(sorted(some(rng, [r for r in replicas if r not in adding][:1])))
    old = PartitionRegistration(
        replicas,
        isr,
        leader,
        3,
        7,
        tuple(map(directory, replicas)),
        LeaderRecoveryState(int(rng.random() < 0.15)),
        adding,
        removing,
        elr,
        last,
    )
    alive = tuple(i for i in range(6) if rng.random() < 0.7)
    update, alive = draw_wanted(rng, old, alive)
    level = NEW if is_elr_enabled else rng.choice([OLD, NEW])
    return Case(old, update, alive, rng.randint(1, 3), is_elr_enabled, level)


def draw_wanted(
    rng: Random, old: PartitionRegistration, alive: tuple[int, ...]
) -> tuple[PartitionUpdate, tuple[int, ...]]:
    election = rng.choice(list(Election))
    kind = rng.randrange(4)
    if kind == 0:
        gone = rng.choice(old.isr or old.replicas)
        isr = tuple(replica for replica in old.isr if replica != gone)
        lost = gone if rng.random() < 0.4 else -1
        alive = tuple(replica for replica in alive if replica != gone)
        return PartitionUpdate(isr=isr, lost=lost, election=election), alive
    if kind == 1:
        return PartitionUpdate(isr=some(rng, old.replicas, 1), election=election), alive
    if kind == 2:
        target = some(rng, list(range(6)), 1)
        removing = tuple(sorted(set(old.replicas) - set(target)))
        adding = tuple(sorted(set(target) - set(old.replicas)))
        update = PartitionUpdate(
            replicas=target + removing, adding=adding, removing=removing, election=election
        )
        return update, alive
    return PartitionUpdate(election=election), alive


def ours(case: Case) -> list[str]:
    rules = Rules(case.level, case.is_elr_enabled, case.min_isr, case.alive.__contains__, directory)
    at = TopicIdPartition(Uuid(b"t" * 16), 0)
    record = plan_change(at, case.old, case.update, rules)
    if record is None:
        return ["none"]
    directories = record.directories
    return [
        text(record.isr),
        str(record.leader),
        text(record.replicas),
        text(record.adding_replicas),
        text(record.removing_replicas),
        text(record.eligible_leader_replicas),
        text(record.last_known_elr),
        str(record.leader_recovery_state),
        text(None if directories is None else [directory[15] for directory in directories]),
    ]


def expected(case: Case, line: str) -> list[str]:
    """Return Kafka's answer, without what we do otherwise on purpose."""
    fields = line.split(" ")
    if fields == ["none"]:
        return fields
    isr, _, replicas, _, _, elr, last, _, _ = range(9)
    # An ISR that stays what it was need not be written.
    if fields[isr] == text(case.old.isr):
        fields[isr] = "null"
    # Who is no replica any more is not eligible to lead.
    then, now = text(case.old.elr), text(case.old.replicas)
    eligible = then if fields[elr] == "null" else fields[elr]
    assigned = (now if fields[replicas] == "null" else fields[replicas]).split(",")
    left = ",".join(r for r in eligible.split(",") if r in assigned) or "-"
    fields[elr] = "null" if left == then else left
    # Nobody was not the last leader.
    if fields[last] == "-1":
        fields[last] = "null"
    return fields


def test_every_change_is_kafkas(kafka) -> None:
    rng = Random(4)
    cases = [draw(rng) for _ in range(CASES)]
    answers = kafka.run(str(ASK), stdin="".join(case.line() + "\n" for case in cases)).splitlines()
    assert len(answers) == CASES
    different = [
        (case.line(), answer, ours(case))
        for case, answer in zip(cases, answers, strict=True)
        if expected(case, answer) != ours(case)
    ]
    assert different == []
    assert sum(answer != "none" for answer in answers) > CASES / 2
