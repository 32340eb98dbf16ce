"""Rules for a cluster's own statements: monotonic offsets, leaders, contents of replicas.

Monotonic offsets are checked in real time: an answer is too low if its request was sent after a
higher answer had arrived; concurrent requests say nothing about each other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.testing.history.anomalies import Anomaly, Label
from ottla.testing.history.events import (
    AnyEvent,
    CommitOffset,
    End,
    FetchOffset,
    Leader,
    Phase,
    Replica,
    Watermark,
)


@dataclass(slots=True)
class Rising:
    """A number that must not decrease. ``floors``: its value when a process asked."""

    highest: int = -1
    floors: dict[str, int] = field(default_factory=dict)

    def asked(self, process: str) -> None:
        """Record that a process asks for it now."""
        self.floors[process] = self.highest

    def answered(self, process: str, value: int) -> int | None:
        """Record an answer; return its required minimum, if it is below that.

        A process that did not record its request asked after its own last answer.
        """
        floor = self.floors.get(process, -1)
        self.highest = max(self.highest, value)
        self.floors[process] = max(floor, value)
        return floor if value < floor else None

    def lower(self, value: int) -> None:
        """Record that it may be lowered from now on."""
        self.highest = min(self.highest, value)
        self.floors = {process: min(floor, value) for process, floor in self.floors.items()}


def watermarks(events: Iterable[AnyEvent]) -> Iterator[Anomaly]:
    """Check that the high watermark and the last stable offset never decrease."""
    rising: dict[tuple[str, Label], Rising] = {}
    for event in events:
        if not isinstance(event, Watermark):
            continue
        for label, value in (
            (Label.HW_REGRESS, event.high),
            (Label.LSO_REGRESS, event.last_stable),
        ):
            mark = rising.setdefault((event.partition, label), Rising())
            if event.phase is Phase.INVOKE:
                mark.asked(event.process)
            elif event.phase is Phase.OK and value is not None:
                floor = mark.answered(event.process, value)
                if floor is not None:
                    detail = f"{event.process} received {value} after {floor}"
                    yield Anomaly(label, event.partition, detail)


def committed_offsets(events: Iterable[AnyEvent]) -> Iterator[Anomaly]:
    """Check that a group's offset never decreases unless reset; in a transaction it counts at its
    commit.
    """
    rising: dict[tuple[str, str], Rising] = {}
    waiting: dict[str, list[CommitOffset]] = {}
    for event in events:
        match event:
            case CommitOffset():
                mark = rising.setdefault((event.group, event.partition), Rising())
                _commit(mark, waiting, event)
            case End(phase=Phase.OK, commit=True):
                for each in waiting.pop(event.txn, ()):
                    mark = rising[each.group, each.partition]
                    mark.highest = max(mark.highest, each.offset)
            case FetchOffset():
                mark = rising.setdefault((event.group, event.partition), Rising())
                yield from _fetch(mark, event)
            case _:
                pass


def _commit(mark: Rising, waiting: dict[str, list[CommitOffset]], event: CommitOffset) -> None:
    if event.is_reset:
        mark.lower(event.offset)
    elif event.phase is Phase.OK and event.txn is not None:
        waiting.setdefault(event.txn, []).append(event)
    elif event.phase is Phase.OK:
        mark.highest = max(mark.highest, event.offset)


def _fetch(mark: Rising, event: FetchOffset) -> Iterator[Anomaly]:
    if event.phase is Phase.INVOKE:
        mark.asked(event.process)
    elif event.phase is Phase.OK:
        value = -1 if event.offset is None else event.offset
        floor = mark.answered(event.process, value)
        if floor is not None:
            detail = f"{event.partition}: {event.process} received {value} after {floor}"
            yield Anomaly(Label.COMMITTED_OFFSET_REGRESS, event.group, detail)


def leaders(events: Iterable[AnyEvent]) -> Iterator[Anomaly]:
    """Check that an epoch has one leader."""
    found: dict[tuple[str, int], dict[int, None]] = {}
    for event in events:
        if isinstance(event, Leader):
            found.setdefault((event.partition, event.epoch), {})[event.node] = None
    for (partition, epoch), nodes in found.items():
        if len(nodes) > 1:
            detail = f"epoch {epoch} was led by nodes " + " and ".join(map(str, nodes))
            yield Anomaly(Label.TWO_LEADERS, partition, detail)


def replicas(events: Iterable[AnyEvent]) -> Iterator[Anomaly]:
    """Check that replicas hold the same batches, from the latest start to the committed end."""
    dumps: dict[str, list[Replica]] = {}
    for event in events:
        if isinstance(event, Replica):
            dumps.setdefault(event.partition, []).append(event)
    for partition, found in dumps.items():
        start = max((each.batches[0][0] for each in found if each.batches), default=0)
        end = min(each.high_watermark for each in found)
        held = [_held(each, start, end) for each in found]
        for other, batches in zip(found[1:], held[1:], strict=True):
            if batches != held[0]:
                at = _first_difference(held[0], batches)
                detail = f"nodes {found[0].node} and {other.node} differ from offset {at} on"
                yield Anomaly(Label.REPLICAS_DIFFER, partition, detail)


def _held(replica: Replica, start: int, end: int) -> list[tuple[int, str]]:
    return [batch for batch in replica.batches if start <= batch[0] < end]


def _first_difference(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> int:
    for here, there in zip(one, other, strict=False):
        if here != there:
            return min(here[0], there[0])
    longer = max(one, other, key=len)
    return longer[min(len(one), len(other))][0]
