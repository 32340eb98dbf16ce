"""Which member has acquired which records of one share partition (KIP-932).

    AVAILABLE --acquire--> ACQUIRED --accept--> ACKNOWLEDGED
        ^                    |   \\--reject, a gap, or delivery limit reached--> ARCHIVED
        +--release, or the lock expired

With a dead-letter topic, a record that is rejected or has reached the delivery limit is ARCHIVING
first, until `Acquisition.archive_dead` confirms that it was written there.

Pure: the driver has the clock, the log and the stored state. Offsets from ``start`` to ``end`` are
in flight: each is in one of these states. Nothing from ``end`` on was delivered yet.

Invariants: everything below ``start`` is finished or deleted from the log, so ``start`` never moves
back. A record is acquired by one member at a time, and a leader delivers it at most
``deliveries_max`` times. The stored state may be older than this, never newer: a record whose
newest state is not durable is dirty; `Acquisition.take_dirty` returns it and
`Acquisition.on_failed` makes it dirty again.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, Offset
from ottla.sharing.spans import NO_DEADLINE, NOBODY, RecordState, Span, SpanSequence


class AckType(enum.IntEnum):
    """How a member acknowledges a record it has acquired, by the numbers of the protocol."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(enum.IntEnum):
    """Whether a fetch may get more records than requested, to keep batches whole (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class Batch(NamedTuple):
    """The offsets of a record batch that was read, inclusive."""

    first: Offset
    last: Offset


class Acquire(NamedTuple):
    """A request of a member for records. ``deadline`` is when its lock on them ends (monotonic)."""

    member: str
    deadline: Millis
    records_max: int
    batch_size: int = 0
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """Records acquired by a member, inclusive, and their delivery count."""

    first: Offset
    last: Offset
    deliveries: int


class Ack(NamedTuple):
    """An acknowledgement of ``first`` to ``last``: one type for all, or one for each."""

    first: Offset
    last: Offset
    types: Sequence[int]


class DeadRecords(NamedTuple):
    """Dead records, inclusive; ``is_used_up``: the delivery limit was reached, else rejected."""

    first: Offset
    last: Offset
    deliveries: int
    is_used_up: bool


class StateBatch(NamedTuple):
    """A run of records in its stored form."""

    first: Offset
    last: Offset
    state: int
    deliveries: int


class Write(NamedTuple):
    """A change to store: all records that changed, and the start of the window."""

    start: Offset
    finished_count: int
    batches: tuple[StateBatch, ...]


class Limits(msgspec.Struct, frozen=True):
    """``group.share.delivery.count.limit`` and ``group.share.partition.max.record.locks``."""

    deliveries_max: int = 5
    in_flight_max: int = 2000


_BECOMES: Final = {
    AckType.GAP: RecordState.ARCHIVED,
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
}


class _Taken:
    """What one fetch has acquired so far."""

    __slots__ = ("_held", "_want", "room")

    def __init__(self, want: Acquire) -> None:
        self._want = want
        self._held: list[Acquired] = []
        self.room = want.records_max

    @property
    def is_full(self) -> bool:
        """Whether no more records may be acquired, not even of the current batch."""
        return self.room <= 0 and self._want.mode is AcquireMode.RECORD_LIMIT

    def fitting(self, size: int) -> int:
        """Return how many of ``size`` records may be acquired."""
        return min(size, self.room) if self._want.mode is AcquireMode.RECORD_LIMIT else size

    def hold(self, span: Span) -> None:
        """Add a span; one that continues the last with the same delivery count is merged."""
        span.state = RecordState.ACQUIRED
        span.deliveries += 1
        span.member = self._want.member
        span.deadline = self._want.deadline
        self.room -= span.size
        last = self._held[-1] if self._held else None
        if last is not None and last.last + 1 == span.first and last.deliveries == span.deliveries:
            self._held[-1] = Acquired(last.first, span.last, span.deliveries)
        else:
            self._held.append(Acquired(span.first, span.last, span.deliveries))

    def granted(self, ends: Sequence[Offset]) -> list[Acquired]:
        """Return the result, split at batch ends every ``batch_size`` records."""
        return [piece for held in self._held for piece in _sliced(held, ends, self._want)]


class Acquisition:
    """One share partition during one leadership."""

    __slots__ = ("_is_start_dirty", "_limits", "_row", "has_dead_letters")

    def __init__(
        self, start: Offset, limits: Limits | None = None, *, is_chosen: bool = False
    ) -> None:
        """Start at ``start``; ``is_chosen``: it was just chosen and has to be written."""
        self._row = SpanSequence(start)
        self._limits = limits if limits is not None else Limits()
        self._is_start_dirty = is_chosen
        self.has_dead_letters = False

    @classmethod
    def load(
        cls, start: Offset, batches: Iterable[StateBatch], limits: Limits | None = None
    ) -> "Acquisition":
        """Start from the stored state; batches are in order and do not overlap.

        Offsets between two of them were delivered and never acknowledged: they are available. So
        are acquired records, since their lock ended with the old leader.
        """
        acquisition = cls(start, limits)
        row = acquisition._row
        for batch in batches:
            first = max(batch.first, row.end)
            if batch.last < first:
                continue
            if first > row.end:
                row.extend(Span(row.end, Offset(first - 1), RecordState.AVAILABLE))
            state = RecordState(batch.state)
            state = RecordState.AVAILABLE if state is RecordState.ACQUIRED else state
            row.extend(Span(Offset(first), batch.last, state, batch.deliveries))
        acquisition._advance()
        return acquisition

    # -- what it is ------------------------------------------------------------

    @property
    def start(self) -> Offset:
        """Everything below is finished, or deleted from the log."""
        return self._row.start

    @property
    def end(self) -> Offset:
        """Nothing from here on was delivered yet."""
        return self._row.end

    @property
    def in_flight(self) -> int:
        """The number of unfinished records in flight."""
        return sum(span.size for span in self._row if not span.state.is_finished)

    @property
    def finished_count(self) -> int:
        """The number of finished records that follow an unfinished one."""
        return sum(span.size for span in self._row if span.state.is_finished)

    @property
    def is_dirty(self) -> bool:
        """Whether some change is not durable yet."""
        return self._is_start_dirty or any(span.is_dirty for span in self._row)

    def spans(self) -> tuple[Span, ...]:
        """Return copies of the spans in flight, for operators."""
        return tuple(msgspec.structs.replace(span) for span in self._row)

    def next_offset(self) -> Offset:
        """Return the first offset that may be acquired, judging by the states alone."""
        for span in self._row:
            if span.state is RecordState.AVAILABLE:
                return span.first
        return self.end

    def may_acquire(self) -> bool:
        """Whether a fetch can acquire anything that the log has."""
        return self.next_offset() < self.end or self.in_flight < self._limits.in_flight_max

    def next_deadline(self) -> Millis | None:
        """Return when the first lock expires."""
        deadlines = (s.deadline for s in self._row if s.state is RecordState.ACQUIRED)
        return min(deadlines, default=None)

    # -- acquire ---------------------------------------------------------------

    def acquire(self, want: Acquire, fetched: Offset, batches: Sequence[Batch]) -> list[Acquired]:
        """Acquire records for a member that were read from offset ``fetched`` on.

        Available records below the first batch are no longer in the log: they are archived. With
        `AcquireMode.BATCH_OPTIMIZED` the batch that reaches the limit is acquired as a whole.
        Offsets between two batches are included: the member finds no records and acknowledges a
        gap.
        """
        if not batches or want.records_max <= 0:
            return []
        self._archive_missing(fetched, batches[0].first)
        first = Offset(max(batches[0].first, fetched, self.start))
        taken = _Taken(want)
        for batch in batches:
            if taken.room <= 0:
                break
            if batch.last >= first:
                self._acquire_batch(Batch(Offset(max(first, batch.first)), batch.last), taken)
        granted = taken.granted([batch.last for batch in batches])
        self._advance()
        self._row.join()
        return granted

    def archive(self, first: Offset, last: Offset) -> None:
        """Archive records that must not be delivered, as those of an aborted transaction."""
        for span in self._row.cut(first, last):
            if not span.state.is_finished:
                self._set(span, RecordState.ARCHIVED)
        self._advance()
        self._row.join()

    def _archive_missing(self, fetched: Offset, found: Offset) -> None:
        if found <= fetched:
            return
        for span in self._row.cut(fetched, Offset(found - 1)):
            if span.state is RecordState.AVAILABLE:
                self._set(span, RecordState.ARCHIVED)

    def _acquire_batch(self, batch: Batch, taken: "_Taken") -> None:
        """Acquire the available records of one batch: redelivered ones first, then the rest."""
        row = self._row
        for span in row.cut(batch.first, batch.last):
            if span.state is RecordState.AVAILABLE and taken.room > 0:
                size = taken.fitting(span.size)
                taken.hold(row.cut(span.first, Offset(span.first + size - 1))[0])
        free = self._limits.in_flight_max - self.in_flight
        if batch.last < row.end or free <= 0 or taken.is_full:
            return
        if row.end == row.start:
            row.drop_below(batch.first)
        size = taken.fitting(batch.last - row.end + 1)
        row.extend(Span(row.end, Offset(row.end + size - 1), RecordState.AVAILABLE))
        taken.hold(row.cut(Offset(row.end - size), Offset(row.end - 1))[0])

    # -- acknowledge -----------------------------------------------------------

    def acknowledge(
        self, member: str, acks: Sequence[Ack], deadline: Millis = NO_DEADLINE
    ) -> ErrorCode:
        """Apply the acknowledgements of a member; all of them are applied, or none.

        Records below ``start`` are finished: acknowledging them again is allowed. ``deadline`` is
        the end of renewed locks. INVALID_REQUEST: beyond what was delivered; INVALID_RECORD_STATE:
        not, or no longer, acquired by this member.
        """
        for ack in acks:
            code = self._check(member, ack)
            if code is not ErrorCode.NONE:
                return code
        for ack in acks:
            self._apply(ack, deadline)
        self._advance()
        self._row.join()
        return ErrorCode.NONE

    def _check(self, member: str, ack: Ack) -> ErrorCode:
        if ack.last < self.start:
            return ErrorCode.NONE
        if ack.first >= self.end:
            return ErrorCode.INVALID_RECORD_STATE
        if ack.last >= self.end:
            return ErrorCode.INVALID_REQUEST
        held = self._row.between(Offset(max(ack.first, self.start)), ack.last)
        if all(s.state is RecordState.ACQUIRED and s.member == member for s in held):
            return ErrorCode.NONE
        return ErrorCode.INVALID_RECORD_STATE

    def _apply(self, ack: Ack, deadline: Millis) -> None:
        for first, last, kind in _runs(ack):
            for span in self._row.cut(first, last):
                if kind is AckType.RENEW:
                    span.deadline = deadline
                else:
                    is_rejected = kind is AckType.REJECT
                    self._set(span, self._dead_state() if is_rejected else _BECOMES[kind])

    def _dead_state(self) -> RecordState:
        return RecordState.ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED

    def _set(self, span: Span, state: RecordState) -> None:
        """Release records; those that have reached the delivery limit do not become available."""
        if state is RecordState.AVAILABLE and span.deliveries >= self._limits.deliveries_max:
            state = self._dead_state()
        span.state = state
        span.member = NOBODY
        span.deadline = NO_DEADLINE
        span.is_dirty = True

    # -- dead letters ------------------------------------------------------------

    def dead(self, *, is_durable: bool = False) -> list[DeadRecords]:
        """Return the records that wait to be written to the dead-letter topic, in order.

        ``is_durable``: only those whose state was written, or is being written.
        """
        return [
            DeadRecords(
                span.first,
                span.last,
                span.deliveries,
                span.deliveries >= self._limits.deliveries_max,
            )
            for span in self._row
            if span.state is RecordState.ARCHIVING and not (is_durable and span.is_dirty)
        ]

    def archive_dead(self, first: Offset, last: Offset) -> None:
        """Archive the records ``first`` to ``last``.

        They are in the dead-letter topic, or given up.
        """
        for span in self._row.cut(first, last):
            if span.state is RecordState.ARCHIVING:
                self._set(span, RecordState.ARCHIVED)
        self._advance()
        self._row.join()

    # -- time, members and the log ----------------------------------------------

    def expire(self, now: Millis) -> int:
        """Release records whose lock has expired; return how many."""
        return self._take_back(lambda span: span.deadline <= now)

    def release(self, member: str) -> int:
        """Release all records of a member that is gone; return how many."""
        return self._take_back(lambda span: span.member == member)

    def _take_back(self, is_due: Callable[[Span], bool]) -> int:
        count = 0
        for span in self._row:
            if span.state is RecordState.ACQUIRED and is_due(span):
                self._set(span, RecordState.AVAILABLE)
                count += span.size
        if count:
            self._advance()
            self._row.join()
        return count

    def move_start(self, log_start: Offset) -> bool:
        """Drop offsets that the log no longer has; return whether anything changed."""
        if log_start <= self.start:
            return False
        self._row.drop_below(log_start)
        self._is_start_dirty = True
        self._advance()
        return True

    def _advance(self) -> None:
        """Advance the start to the first unfinished record."""
        start = self.end
        for span in self._row:
            if not span.state.is_finished:
                start = span.first
                break
        if start > self.start:
            self._row.drop_below(start)
            self._is_start_dirty = True

    # -- durability ------------------------------------------------------------

    def take_dirty(self) -> Write | None:
        """Return the change to write; it counts as written from now on.

        Acquired records are written in their earlier state: a delivery that was not acknowledged is
        not durable, like its lock.
        """
        if not self.is_dirty:
            return None
        batches: list[StateBatch] = []
        for span in self._row:
            if span.is_dirty:
                batches.append(_as_persisted(span))
                span.is_dirty = False
        self._is_start_dirty = False
        self._row.join()
        return Write(self.start, self.finished_count, tuple(batches))

    def on_failed(self, write: Write) -> None:
        """Make the records of a failed ``write`` dirty again."""
        self._is_start_dirty = True
        for batch in write.batches:
            for span in self._row.cut(batch.first, batch.last):
                span.is_dirty = True


def _as_persisted(span: Span) -> StateBatch:
    if span.state is RecordState.ACQUIRED:
        return StateBatch(span.first, span.last, RecordState.AVAILABLE, span.deliveries - 1)
    return StateBatch(span.first, span.last, span.state, span.deliveries)


def check_acks(acks: Sequence[Ack], *, may_renew: bool) -> ErrorCode:
    """Check that acknowledgements are well formed: in order, all records with a type.

    INVALID_REQUEST: they are not. INVALID_RECORD_STATE: one begins with the last record of the one
    before, which is already acknowledged.
    """
    behind, code = -1, ErrorCode.NONE
    for ack in acks:
        if ack.first < 0 or ack.first > ack.last or ack.first < behind or not ack.types:
            return ErrorCode.INVALID_REQUEST
        if len(ack.types) not in (1, ack.last - ack.first + 1):
            return ErrorCode.INVALID_REQUEST
        highest = AckType.RENEW if may_renew else AckType.REJECT
        if any(not AckType.GAP <= kind <= highest for kind in ack.types):
            return ErrorCode.INVALID_REQUEST
        if ack.first == behind:
            code = ErrorCode.INVALID_RECORD_STATE
        behind = ack.last
    return code


def _runs(ack: Ack) -> Iterator[tuple[Offset, Offset, AckType]]:
    """Yield ranges of consecutive records of one type."""
    if len(ack.types) == 1:
        yield ack.first, ack.last, AckType(ack.types[0])
        return
    offset = ack.first
    for kind, same in groupby(ack.types):
        count = sum(1 for _ in same)
        yield offset, Offset(offset + count - 1), AckType(kind)
        offset = Offset(offset + count)


def _sliced(held: Acquired, ends: Sequence[Offset], want: Acquire) -> Iterator[Acquired]:
    """Yield ranges that end at batch ends and have ``batch_size`` records or more."""
    first = held.first
    if want.batch_size > 0:
        for end in ends:
            if first <= end < held.last and end - first + 1 >= want.batch_size:
                yield Acquired(first, end, held.deliveries)
                first = Offset(end + 1)
    yield Acquired(first, held.last, held.deliveries)
