"""A log that keeps every promise, clients that use it, and the history they write down."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ottla.testing.history.events import (
    AnyEvent,
    Assign,
    CommitOffset,
    End,
    Fault,
    FetchOffset,
    Final,
    Heal,
    Isolation,
    Leader,
    Phase,
    Poll,
    Replica,
    Send,
    Watermark,
)

PARTITIONS = ("a-0", "b-0")
GROUP = "g"
RC, RU = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
WATCHER = "watcher"


@dataclass
class Entry:
    """One offset: a value, or a marker (None)."""

    value: str | None
    txn: str | None = None


@dataclass
class Txn:
    name: str
    values: list[tuple[str, str]] = field(default_factory=list)
    offset: int | None = None
    state: str = "open"


@dataclass
class Model:
    """Makes the history; ``random`` decides what happens next."""

    random: random.Random
    events: list[AnyEvent] = field(default_factory=list)
    logs: dict[str, list[Entry]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})
    txns: list[Txn] = field(default_factory=list)
    group_offset: int | None = None
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    isolations: dict[str, Isolation] = field(default_factory=dict)
    _time: Iterator[int] = field(default_factory=lambda: count(0, 10))
    _names: Iterator[int] = field(default_factory=count)

    def note(
        self, kind: type[AnyEvent], process: str, phase: Phase = Phase.OK, **what: Any
    ) -> None:
        self.events.append(kind(time=next(self._time), process=process, phase=phase, **what))

    # -- what clients do -----------------------------------------------------

    def send(self, process: str, partition: str, txn: Txn | None = None, outcome: str = "") -> None:
        """Send a value. Fates: acked, unknown (written or not), refused."""
        value = f"v{next(self._names)}"
        name = None if txn is None else txn.name
        what = {"partition": partition, "value": value, "txn": name}
        outcome = outcome or self.random.choice(["acked"] * 5 + ["written", "missing", "refused"])
        self.note(Send, process, Phase.INVOKE, **what)
        offset = None
        if outcome in ("acked", "written"):
            offset = len(self.logs[partition])
            self.logs[partition].append(Entry(value, name))
            if txn is not None:
                txn.values.append((partition, value))
        if self.random.random() < 0.3:
            self.poll(self.random.choice(sorted(self.isolations)))
        phase = {"acked": Phase.OK, "refused": Phase.FAIL}.get(outcome, Phase.INFO)
        self.note(Send, process, phase, **what, offset=offset if outcome == "acked" else None)

    def transaction(self, process: str, *, commit: bool, known: bool = True) -> Txn:
        """Run a transaction over both partitions and the group's offset."""
        txn = Txn(f"tx{next(self._names)}")
        self.txns.append(txn)
        for partition in PARTITIONS:
            for _ in range(self.random.randint(1, 2)):
                self.send(process, partition, txn, "acked")
                self.idle()
        offset = (self.group_offset or 0) + self.random.randint(1, 3)
        self.note(CommitOffset, process, group=GROUP, partition="a-0", offset=offset, txn=txn.name)
        txn.offset = offset
        self.note(End, process, Phase.INVOKE, txn=txn.name, commit=commit)
        txn.state = "committed" if commit else "aborted"
        for partition in PARTITIONS:
            self.logs[partition].append(Entry(None))
        if commit:
            self.group_offset = offset
        self.note(End, process, Phase.OK if known else Phase.INFO, txn=txn.name, commit=commit)
        return txn

    def assign(self, process: str, isolation: Isolation, partition: str, position: int) -> None:
        self.isolations[process] = isolation
        self.positions[process, partition] = position
        self.note(Assign, process, partition=partition, position=position, isolation=isolation)

    def poll(self, process: str, most: int = 3) -> None:
        partition = self.random.choice(PARTITIONS)
        self.poll_of(process, partition, self.random.randint(1, most))

    def poll_of(self, process: str, partition: str, most: int) -> None:
        isolation, log = self.isolations[process], self.logs[partition]
        at, records = self.positions[process, partition], []
        end = self.last_stable(partition) if isolation is RC else len(log)
        aborted = {txn.name for txn in self.txns if txn.state == "aborted"}
        while at < end and len(records) < most:
            entry = log[at]
            if entry.value is not None and not (isolation is RC and entry.txn in aborted):
                records.append((at, entry.value))
            at += 1
        self.positions[process, partition] = max(at, self.positions[process, partition])
        self.note(Poll, process, partition=partition, records=tuple(records))

    def last_stable(self, partition: str) -> int:
        undecided = {txn.name for txn in self.txns if txn.state == "open"}
        return next(
            (at for at, each in enumerate(self.logs[partition]) if each.txn in undecided),
            len(self.logs[partition]),
        )

    def look(self, process: str = WATCHER) -> None:
        """Ask for the marks and the group's offset."""
        for partition in PARTITIONS:
            self.note(Watermark, process, Phase.INVOKE, partition=partition)
            high = len(self.logs[partition])
            stable = self.last_stable(partition)
            if self.random.random() < 0.3:
                self.send("p1", partition)
            self.note(Watermark, process, partition=partition, high=high, last_stable=stable)
            self.note(Leader, process, partition=partition, epoch=3, node=1)
        self.note(FetchOffset, process, Phase.INVOKE, group=GROUP, partition="a-0")
        self.note(FetchOffset, process, group=GROUP, partition="a-0", offset=self.group_offset)

    def idle(self) -> None:
        """Let something happen that needs no preparation."""
        step = self.random.randrange(6)
        if step == 0:
            self.look()
        elif step == 1:
            reader = self.random.choice(sorted(self.isolations))
            partition = self.random.choice(PARTITIONS)
            position = self.random.randint(0, len(self.logs[partition]))
            self.assign(reader, self.isolations[reader], partition, position)
        elif step == 2:
            self.poll(self.random.choice(sorted(self.isolations)))
        else:
            self.send("p1", self.random.choice(PARTITIONS))

    def finish(self) -> None:
        """Read all of it twice, once for each isolation, and dump two replicas."""
        for process, isolation in (("last-rc", RC), ("last-ru", RU)):
            for partition in PARTITIONS:
                self.assign(process, isolation, partition, 0)
                asked = next(self._time)
                while self.positions[process, partition] < len(self.logs[partition]):
                    self.poll_of(process, partition, 3)
                self.events.append(Final(time=asked, process=process, partition=partition))
        for node in (1, 2):
            for partition, log in self.logs.items():
                batches = tuple((at, each.value or "") for at, each in enumerate(log))
                self.note(
                    Replica,
                    "disk",
                    partition=partition,
                    node=node,
                    high_watermark=len(log) - node % 2,
                    batches=batches[: len(log) - node % 2] if node == 1 else batches,
                )


def correct_history(rng: random.Random, steps: int = 12) -> Model:
    """A history with something of everything, in which every promise is kept."""
    model = Model(rng)
    for process, isolation in (("c1", RC), ("c2", RU)):
        for partition in PARTITIONS:
            model.assign(process, isolation, partition, 0)
    for _ in range(3):
        for partition in PARTITIONS:
            model.send("p1", partition, outcome="acked")
    model.look()
    model.note(Fault, "nemesis", name="cut")
    for _ in range(steps):
        model.idle()
    model.transaction("p2", commit=True)
    model.transaction("p2", commit=False)
    model.transaction("p2", commit=True, known=rng.random() < 0.5)
    model.note(Heal, "nemesis")
    model.send("p1", "a-0", outcome="acked")
    model.look()
    model.finish()
    for _ in range(10):
        model.send("p3", "a-0", outcome="missing")
    return model
