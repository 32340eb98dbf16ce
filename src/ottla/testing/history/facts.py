"""The facts of a history, gathered in one pass over its events in order of time."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.testing.history.events import (
    AnyEvent,
    Assign,
    End,
    Final,
    HistoryMalformed,
    Isolation,
    Phase,
    Poll,
    Send,
    Trim,
)


@dataclass(slots=True)
class Write:
    """A value that was sent, and its outcome. ``ended`` is the time of the outcome."""

    first: Send
    phase: Phase = Phase.INVOKE
    ended: int | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether its client received the acknowledgement."""
        return self.phase is Phase.OK


class Seen(NamedTuple):
    """A value that a consumer received."""

    time: int
    offset: int
    value: str
    txn: str | None


@dataclass(slots=True)
class Reading:
    """What one consumer received of one partition since it was assigned or sought."""

    assigned: Assign
    seen: list[Seen] = field(default_factory=list)
    complete_at: int | None = None

    @property
    def is_committed(self) -> bool:
        """Whether it reads with read_committed."""
        return self.assigned.isolation is Isolation.READ_COMMITTED

    @property
    def start(self) -> int | None:
        """The first offset it covers; None if unknown."""
        if self.assigned.position is not None:
            return self.assigned.position
        return min((each.offset for each in self.seen), default=None)

    @property
    def end(self) -> int | None:
        """The last offset it received."""
        return max((each.offset for each in self.seen), default=None)


@dataclass(slots=True)
class Ending:
    """How a transaction ended: which ends were requested, and the outcome of a commit."""

    invoked: int
    is_commit_asked: bool = False
    is_commit_failed: bool = False
    committed_at: int | None = None

    @property
    def may_be_committed(self) -> bool:
        """Whether a commit was requested and has not failed for certain."""
        return self.is_commit_asked and not self.is_commit_failed


class Coverage:
    """The offsets of a partition that consumers have read past, and until when all was read."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        spans, self._complete = [], []
        for each in readings:
            start, end = each.start, each.end
            if start is not None and end is not None:
                spans.append((start, end))
            if each.complete_at is not None:
                self._complete.append((start or 0, each.complete_at))
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1] + 1:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def is_due(self, write: Write) -> bool:
        """Whether a consumer must have received an acknowledged value."""
        offset, at = write.first.offset, write.ended
        if offset is not None:
            span = bisect_right(self._starts, offset) - 1
            if span >= 0 and offset <= self._ends[span]:
                return True
        return at is not None and any(
            at < complete_at and (offset is None or offset >= start)
            for start, complete_at in self._complete
        )


@dataclass(slots=True)
class Facts:
    """Everything that the rules need. ``places``: the values at each offset, by acknowledgements
    and polls, in the order in which they were first seen there.
    """

    writes: dict[str, Write] = field(default_factory=dict)
    places: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    offsets: dict[str, list[int]] = field(default_factory=dict)
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)
    first_seen: dict[str, int] = field(default_factory=dict)
    first_seen_committed: dict[str, int] = field(default_factory=dict)
    _current: dict[tuple[str, str], Reading] = field(default_factory=dict)

    def all_seen(self) -> Iterator[tuple[Reading, Seen]]:
        """Return every record that any consumer received."""
        for readings in self.readings.values():
            for reading in readings:
                for seen in reading.seen:
                    yield reading, seen

    def is_trimmed(self, partition: str, offset: int | None) -> bool:
        """Whether records at an offset may be deleted legitimately."""
        return offset is not None and offset < self.trimmed.get(partition, 0)

    def add(self, event: AnyEvent) -> None:
        """Add the next event."""
        match event:
            case Send():
                self._send(event)
            case Assign():
                self._assign(event)
            case Poll():
                self._poll(event)
            case Final():
                self._reading(event).complete_at = event.time
            case Trim():
                self.trimmed[event.partition] = max(
                    event.below, self.trimmed.get(event.partition, 0)
                )
            case End():
                self._end(event)
            case _:
                pass

    def _send(self, event: Send) -> None:
        write = self.writes.get(event.value)
        if write is None:
            write = self.writes[event.value] = Write(event)
        elif event.phase is Phase.INVOKE or write.ended is not None:
            raise HistoryMalformed(f"value {event.value!r} was sent twice")
        if event.phase is Phase.INVOKE:
            return
        write.phase, write.ended, write.first = event.phase, event.time, _joined(write.first, event)
        if event.phase is Phase.OK and event.offset is not None:
            self._place(event.partition, event.offset, event.value)

    def _place(self, partition: str, offset: int, value: str) -> None:
        values = self.places.setdefault(partition, {}).setdefault(offset, [])
        if value not in values:
            values.append(value)
            offsets = self.offsets.setdefault(value, [])
            if offset not in offsets:
                offsets.append(offset)

    def _assign(self, event: Assign) -> None:
        reading = self._current[event.process, event.partition] = Reading(event)
        self.readings.setdefault(event.partition, []).append(reading)

    def _reading(self, event: Poll | Final) -> Reading:
        try:
            return self._current[event.process, event.partition]
        except KeyError:
            raise HistoryMalformed(
                f"{event.process} reads {event.partition} without having been assigned it"
            ) from None

    def _poll(self, event: Poll) -> None:
        reading = self._reading(event)
        for offset, value in event.records if event.phase is Phase.OK else ():
            reading.seen.append(Seen(event.time, offset, value, event.txn))
            self._place(event.partition, offset, value)
            self.first_seen.setdefault(value, event.time)
            if reading.is_committed:
                self.first_seen_committed.setdefault(value, event.time)

    def _end(self, event: End) -> None:
        ending = self.endings.setdefault(event.txn, Ending(event.time))
        if event.commit:
            ending.is_commit_asked = True
            ending.is_commit_failed = event.phase is Phase.FAIL
            if event.phase is Phase.OK:
                ending.committed_at = event.time


def _joined(invoked: Send, outcome: Send) -> Send:
    """Return the sent values, with their partitions."""
    if (invoked.partition, invoked.process) != (outcome.partition, outcome.process):
        raise HistoryMalformed(f"value {outcome.value!r} was sent by two, or to two partitions")
    return Send(
        time=invoked.time,
        process=invoked.process,
        partition=invoked.partition,
        value=invoked.value,
        offset=outcome.offset if outcome.phase is Phase.OK else None,
        txn=invoked.txn,
        idempotent=invoked.idempotent,
    )


def first_between(offsets: list[int], above: int, below: int) -> int | None:
    """Return the first of some sorted offsets strictly between two others."""
    at = bisect_right(offsets, above)
    return offsets[at] if at < len(offsets) and offsets[at] < below else None


def in_order(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Return events by time; those of equal time keep their order."""
    return sorted(events, key=lambda event: event.time)


def gather(events: Iterable[AnyEvent]) -> Facts:
    """Gather the facts of events in order of time. Raises HistoryMalformed."""
    facts = Facts()
    for event in events:
        facts.add(event)
    return facts
