"""Measure fail-over with real processes: kill -9 of one of three nodes under load, many times.

Each cluster has three combined nodes with default settings and one topic of twelve partitions with
three replicas; `failover_load.py` writes and reads. Killed are, in turn, a leader that is not the
active controller, the active controller while it leads nothing, and the active controller while it
leads partitions as well. Measured from the kill:

    writes    until every partition that the victim led has acknowledged a write; if it led none,
              until all have: acks=all waits until it has left the ISR
    changes   until a change of metadata is acknowledged, if the controller was killed
    records   until the group has read a record of each of them that was written after the kill

Before the next kill the node is restarted, all replicas are in sync, preferred leaders lead, and
the group reads every partition. At the end the history of all clients is checked.

    python -m benchmarks.failover --kinds leader controller both --kills 30 --kafka-kills 3
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.broker.brokers import Missing, exit_on_sigterm, fetch_jars
from benchmarks.broker.three import NODES, QUORUM, Three, running, three_of
from benchmarks.failover_load import LOOK_S, PARTITIONS, TOPIC, Load, read_all, reading
from benchmarks.report import Row, render
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.testing.history.check import check

AREA: Final = "failover"
SETTLE_S_MAX: Final = 120.0
STEADY_S: Final = 1.0
LEADER, CONTROLLER, BOTH = "leader", "controller", "both"
KINDS: Final = {
    LEADER: "a leader",
    CONTROLLER: "the active controller",
    BOTH: "the active controller that also leads",
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How many kills of each kind."""

    kills: int
    kafka_kills: int
    kinds: tuple[str, ...] = tuple(KINDS)


FULL = Effort(30, 3)
QUICK = Effort(3, 1)


@dataclass(slots=True)
class FailOver:
    """Seconds from one kill; None for what does not apply."""

    writes: float
    changes: float | None = None
    records: float | None = None


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition. Raises TimeoutError."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while not condition():  # noqa: ASYNC110 - conditions change in many places
            await asyncio.sleep(LOOK_S)


async def kill_once(load: Load, kind: str, *, is_restarted: bool = True) -> FailOver:
    """Kill a node, and return what took how long."""
    three = load.three
    victim = await prepare(load, kind)
    led = load.led_by(victim)
    assert bool(led) is (kind != CONTROLLER), f"node {victim} leads {led}"
    awaited = led or list(load.partitions)
    process = three.nodes[victim].process
    assert process is not None
    began = monotonic()
    process.kill()
    async with asyncio.TaskGroup() as tasks:
        alive = next(node for node in NODES if node != victim)
        changing = tasks.create_task(_change(load, alive, began))
        await until(lambda: all(load.written_at[each] > began for each in awaited))
        found = FailOver(monotonic() - began)
        if load.is_read:
            await until(lambda: all(load.read_at[each] > began for each in awaited))
            found.records = monotonic() - began
        changed_s = await changing
    found.changes = None if kind == LEADER else changed_s
    await asyncio.to_thread(process.wait)
    if is_restarted:
        await asyncio.to_thread(three.nodes[victim].start)
    return found


async def prepare(load: Load, kind: str) -> int:
    """Give the leaders their places; return the node to kill once the cluster is steady."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while True:
            await make_whole(load)
            controller = await active_controller(load)
            await arrange(load, without=controller if kind == CONTROLLER else None)
            await make_whole(load)
            # Clients that have just followed a leader to its place do so for a while.
            steady_until = monotonic() + STEADY_S
            while load.is_whole() and monotonic() < steady_until:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
            if load.is_whole() and await active_controller(load) == controller:
                others = [node for node in NODES if node != controller]
                return others[0] if kind == LEADER else controller


async def active_controller(load: Load) -> int:
    """Return the id of the active controller."""
    reply = None
    while reply is None:
        reply = await load.ask(1, QUORUM)
    return int(reply.topics[0].partitions[0].leader_id)  # type: ignore[attr-defined]


async def arrange(load: Load, *, without: int | None) -> None:
    """Order the replicas of every partition: leaders are even, and ``without`` leads nothing."""
    changed = []
    for partition, known in load.partitions.items():
        leading = [node for node in NODES if node != without]
        first = partition % len(leading)
        wanted = [*leading[first:], *leading[:first], *(() if without is None else (without,))]
        if list(known.replica_nodes) != wanted:
            changed.append(ReassignablePartition(partition, wanted))
    if not changed:
        return
    topics = [ReassignableTopic(TOPIC, changed)]
    await load.ask(1, AlterPartitionReassignmentsRequest(30_000, topics=topics))
    orders = {each.partition_index: each.replicas for each in changed}
    await until(
        lambda: all(list(load.partitions[each].replica_nodes) == orders[each] for each in orders)
    )


async def _change(load: Load, node: int, began: float) -> float:
    """Change the metadata through a node that lives; return the seconds since the kill."""
    number = int(began * 1000)
    while True:
        topic = CreatableTopic(f"changed-{number}", 1, 2)
        reply = await load.ask(node, CreateTopicsRequest([topic], 1_000))
        # TOPIC_ALREADY_EXISTS answers a request that was sent again.
        if reply is not None and reply.topics[0].error_code in (0, 36):  # type: ignore[attr-defined]
            return monotonic() - began
        await asyncio.sleep(LOOK_S)


async def make_whole(load: Load) -> None:
    """Wait until all replicas are in sync, and have the preferred replicas elected."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while not load.is_whole():
            if all(len(known.isr_nodes) == len(NODES) for known in load.partitions.values()):
                await load.ask(1, ElectLeadersRequest(0, None, 5_000))
            await asyncio.sleep(0.2)


async def _kill_often(load: Load, kills: int, kinds: Sequence[str]) -> dict[str, list[FailOver]]:
    found: dict[str, list[FailOver]] = {kind: [] for kind in kinds}
    async with asyncio.TaskGroup() as tasks:
        running_load = tasks.create_task(load.run())
        with reading(load):
            await until(lambda: all(load.read_at.values()))
            for kind, taken in found.items():
                for number in range(kills):
                    taken.append(await kill_once(load, kind))
                    text = f"{AREA}: {load.three.name}, {kind} {number}: {taken[-1]}"
                    print(text, file=sys.stderr, flush=True)
            await make_whole(load)
        running_load.cancel()
    return found


def create(three: Three) -> None:
    """Create the topic that is written."""
    configs = [CreatableTopicConfig("min.insync.replicas", "2")]
    topic = CreatableTopic(TOPIC, PARTITIONS, len(NODES), configs=configs)
    three.ask(1, CreateTopicsRequest([topic], 30_000))


@dataclass(slots=True)
class Measured:
    """The seconds of all kills by kind, and what the history shows."""

    by_kind: dict[str, list[FailOver]]
    events: int
    anomalies: list[str]


def measured(name: str, kills: int, kinds: Sequence[str]) -> Measured:
    """Run a cluster of one kind, kill its nodes, and check the history."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        three = three_of(name, Path(folder))
        with running(three):
            create(three)
            load = Load(three)
            found = asyncio.run(_kill_often(load, kills, kinds))
            read_all(load)
    anomalies = [str(each) for each in check(load.events)]
    for each in anomalies[:20]:
        print(f"{AREA}: {name}: {each}", file=sys.stderr, flush=True)
    return Measured(found, len(load.events), anomalies)


# -- the report --------------------------------------------------------------------------


@dataclass(slots=True)
class Both:
    """The seconds of one figure, for both brokers."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def row(
        self, what: str, share: float, p50_max: float, p95_max: float, tail: float = 0.95
    ) -> Row:
        """Return the row: medians compared, and ours within absolute limits."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        slow = percentile(self.ours, tail)
        is_met = ours <= p50_max and slow <= p95_max and ours <= share * theirs
        name = "max" if tail >= 1 else f"p{tail * 100:.0f}"
        return Row(
            AREA,
            what,
            f"{ours:.2f} s (p95 {percentile(self.ours, 0.95):.2f}, max {max(self.ours):.2f}, "
            f"{len(self.ours)} kills)",
            f"Kafka, {theirs:.1f} s ({len(self.theirs)} kills)",
            ours / theirs,
            f"p50 at most {p50_max} s, {name} {p95_max} s, {share}x",
            is_met,
        )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the values are, rounded up."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; none, with the reason on stderr, if Java is missing."""
    try:
        fetch_jars()
    except Missing as error:
        print(f"{AREA}: not measured, {error}", file=sys.stderr)
        return []
    ours = measured("Ottla", effort.kills, effort.kinds)
    theirs = measured("Kafka", effort.kafka_kills, effort.kinds)
    rows = []
    for kind in effort.kinds:
        rows += _rows(KINDS[kind], ours.by_kind[kind], theirs.by_kind[kind])
    kills = effort.kills * len(effort.kinds)
    row = Row(
        AREA,
        f"anomalies in the history, kills of {', '.join(KINDS[each] for each in effort.kinds)}",
        f"{len(ours.anomalies)} in {ours.events:,} events, {kills} kills",
        f"Kafka, {len(theirs.anomalies)} in {theirs.events:,} events",
        float(len(ours.anomalies)),
        "none",
        not ours.anomalies,
    )
    return [*rows, row]


def _rows(what: str, ours: Sequence[FailOver], theirs: Sequence[FailOver]) -> list[Row]:
    writes = Both([each.writes for each in ours], [each.writes for each in theirs])
    records = Both(_some(ours, "records"), _some(theirs, "records"))
    rows = [
        writes.row(f"kill of {what} to writes to all its partitions", 0.15, 0.6, 1.0),
        records.row(f"kill of {what} to records of a group, at most", 1.0, 2.0, 2.0, tail=1.0),
    ]
    changes = Both(_some(ours, "changes"), _some(theirs, "changes"))
    if changes.ours:
        rows.append(changes.row(f"kill of {what} to a change of metadata", 1.0, 0.6, 1.0))
    return rows


def _some(found: Sequence[FailOver], name: str) -> list[float]:
    return [value for each in found if (value := getattr(each, name)) is not None]


def main() -> int:
    """Measure and print; ``--only Ottla`` prints percentiles without Kafka's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("Ottla", "Kafka"), help="one broker")
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--kills", type=int, default=FULL.kills, help="how many of each kind")
    parser.add_argument("--kafka-kills", type=int, default=FULL.kafka_kills, help="of Kafka")
    arguments = parser.parse_args()
    exit_on_sigterm()
    if arguments.only is None:
        effort = Effort(arguments.kills, arguments.kafka_kills, tuple(arguments.kinds))
        rows = run(effort)
        print(render(rows))
        return 0 if all(row.met for row in rows) else 1
    result = measured(arguments.only, arguments.kills, arguments.kinds)
    for kind, found in result.by_kind.items():
        for name in ("writes", "changes", "records"):
            if values := _some(found, name):
                print(
                    f"{arguments.only}, kill of {kind}, {name}: p50 {statistics.median(values):.3f}"
                    f" p95 {percentile(values, 0.95):.3f} max {max(values):.3f} n {len(values)}"
                )
    print(f"{arguments.only}: {len(result.anomalies)} anomalies in {result.events:,} events")
    return 1 if result.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
