"""Which member holds which records of one share partition (KIP-932).

    AVAILABLE --acquire--> ACQUIRED --accept--> ACKNOWLEDGED
        ^                    |   \\--reject, a gap, or deliveries used up--> ARCHIVED
        +--release, or the lock expired

With dead letters a record that is rejected, or whose deliveries are used up, is ARCHIVING before:
until `Acquisition.bury` says that it has been written elsewhere.

Pure: the clock, the log and whoever keeps the state are the driver's. Offsets from ``start`` to
``end`` are in flight: each is in one of these states. Behind ``end`` nothing was delivered yet.

Invariants: everything below ``start`` is finished or gone from the log, so ``start`` never moves
back. A record is held by one member at a time, and a leader delivers it at most
``deliveries_max`` times.
What is persisted may be older than this, never newer: a record whose newest state is not durable
is dirty, and `Acquisition.take_dirty` hands it out; `Acquisition.on_failed` makes it dirty again.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, Offset
from ottla.sharing.spans import NO_DEADLINE, NOBODY, RecordState, Row, Span


class AckType(enum.IntEnum):
    """What a member says of a record it holds, by the numbers of the protocol."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(enum.IntEnum):
    """Whether a fetch may get more records than it asked for, to keep batches whole (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class Batch(NamedTuple):
    """The offsets of a record batch that was read, both included."""

    first: Offset
    last: Offset


class Acquire(NamedTuple):
    """A member wants records. ``deadline`` is when its lock on them ends (monotonic)."""

    member: str
    deadline: Millis
    records_max: int
    batch_size: int = 0
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """Records a member got, both included, and how often they were delivered with this time."""

    first: Offset
    last: Offset
    deliveries: int


class Ack(NamedTuple):
    """An acknowledgement of ``first`` to ``last``: one type for all, or one for each."""

    first: Offset
    last: Offset
    types: Sequence[int]


class Dead(NamedTuple):
    """Records that nobody could use, both included; ``is_used_up``, or else rejected."""

    first: Offset
    last: Offset
    deliveries: int
    is_used_up: bool


class StateBatch(NamedTuple):
    """A run of records as it is persisted."""

    first: Offset
    last: Offset
    state: int
    deliveries: int


class Write(NamedTuple):
    """What has to become durable: all records that changed, and where the window starts."""

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
    """What one fetch has got so far."""

    __slots__ = ("_held", "_want", "room")

    def __init__(self, want: Acquire) -> None:
        self._want = want
        self._held: list[Acquired] = []
        self.room = want.records_max

    @property
    def is_full(self) -> bool:
        """Whether no more records may come, not even of a batch that has begun."""
        return self.room <= 0 and self._want.mode is AcquireMode.RECORD_LIMIT

    def fitting(self, size: int) -> int:
        """Return how many of ``size`` records may be taken."""
        return min(size, self.room) if self._want.mode is AcquireMode.RECORD_LIMIT else size

    def hold(self, span: Span) -> None:
        """Give a span to the member; one that continues the last, delivered as often, joins it."""
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
        """Return it, cut at batch ends every ``batch_size`` records."""
        return [piece for held in self._held for piece in _sliced(held, ends, self._want)]


class Acquisition:
    """One share partition in one reign of its leader."""

    __slots__ = ("_is_start_dirty", "_limits", "_row", "has_dead_letters")

    def __init__(
        self, start: Offset, limits: Limits | None = None, *, is_chosen: bool = False
    ) -> None:
        """Begin at ``start``; ``is_chosen``: just now, so that it has to be written."""
        self._row = Row(start)
        self._limits = limits if limits is not None else Limits()
        self._is_start_dirty = is_chosen
        self.has_dead_letters = False

    @classmethod
    def load(
        cls, start: Offset, batches: Iterable[StateBatch], limits: Limits | None = None
    ) -> "Acquisition":
        """Begin from what is persisted; batches are in order and do not overlap.

        Offsets between two of them were delivered once and never heard of again: they are
        available. A record that was held is available too, the lock went with its leader.
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
        """Everything below is finished, or gone from the log."""
        return self._row.start

    @property
    def end(self) -> Offset:
        """Nothing from here on was delivered yet."""
        return self._row.end

    @property
    def in_flight(self) -> int:
        """How many records of the window are not finished."""
        return sum(span.size for span in self._row if not span.state.is_finished)

    @property
    def finished_count(self) -> int:
        """How many records of the window are finished, behind one that is not."""
        return sum(span.size for span in self._row if span.state.is_finished)

    @property
    def is_dirty(self) -> bool:
        """Whether something is not durable yet."""
        return self._is_start_dirty or any(span.is_dirty for span in self._row)

    def spans(self) -> tuple[Span, ...]:
        """Return the window for operators, as copies."""
        return tuple(msgspec.structs.replace(span) for span in self._row)

    def next_offset(self) -> Offset:
        """Return the first offset that may be acquired, as far as the states say."""
        for span in self._row:
            if span.state is RecordState.AVAILABLE:
                return span.first
        return self.end

    def may_acquire(self) -> bool:
        """Whether a fetch can get anything, if the log has it."""
        return self.next_offset() < self.end or self.in_flight < self._limits.in_flight_max

    def next_deadline(self) -> Millis | None:
        """Return when the first lock expires."""
        deadlines = (s.deadline for s in self._row if s.state is RecordState.ACQUIRED)
        return min(deadlines, default=None)

    # -- acquire ---------------------------------------------------------------

    def acquire(self, want: Acquire, fetched: Offset, batches: Sequence[Batch]) -> list[Acquired]:
        """Give a member records that were read from offset ``fetched`` on.

        Available records below the first batch are not in the log any more: they are archived.
        With `AcquireMode.BATCH_OPTIMIZED` the batch in which the limit is reached is given whole.
        Offsets between two batches come along: the member finds no records and says so.
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
        """Let records go that nobody shall see, as those of an aborted transaction."""
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
        """Take what is free of one batch: first what was delivered before, then the rest."""
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
        """Let a member say what became of records it holds; all of it counts, or nothing.

        Records below ``start`` are finished: saying so again is fine. ``deadline`` is the end of
        locks that are renewed. INVALID_REQUEST: reaches behind what was delivered;
        INVALID_RECORD_STATE: not held by this member (any more).
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
        """Let go of records; those delivered as often as they may be are not available again."""
        if state is RecordState.AVAILABLE and span.deliveries >= self._limits.deliveries_max:
            state = self._dead_state()
        span.state = state
        span.member = NOBODY
        span.deadline = NO_DEADLINE
        span.is_dirty = True

    # -- dead letters ------------------------------------------------------------

    def dead(self) -> list[Dead]:
        """Return what waits to be written elsewhere, in order."""
        return [
            Dead(
                span.first,
                span.last,
                span.deliveries,
                span.deliveries >= self._limits.deliveries_max,
            )
            for span in self._row
            if span.state is RecordState.ARCHIVING
        ]

    def bury(self, first: Offset, last: Offset) -> None:
        """Note that what waited from ``first`` to ``last`` waits no longer."""
        for span in self._row.cut(first, last):
            if span.state is RecordState.ARCHIVING:
                self._set(span, RecordState.ARCHIVED)
        self._advance()
        self._row.join()

    # -- time, members and the log ----------------------------------------------

    def expire(self, now: Millis) -> int:
        """Take back what was held for too long; return how many records."""
        return self._take_back(lambda span: span.deadline <= now)

    def release(self, member: str) -> int:
        """Take back all that a member holds, as it has gone; return how many records."""
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
        """Forget what the log has no more; return whether anything changed."""
        if log_start <= self.start:
            return False
        self._row.drop_below(log_start)
        self._is_start_dirty = True
        self._advance()
        return True

    def _advance(self) -> None:
        """Let the window start at the first record that is not finished."""
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
        """Return what has to be written, which counts as written from now on.

        Records held at this moment are written as they were before: a delivery that nobody has
        answered is not durable, as its lock is not.
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
        """Take back that ``write`` is durable: its records have to be written again."""
        self._is_start_dirty = True
        for batch in write.batches:
            for span in self._row.cut(batch.first, batch.last):
                span.is_dirty = True


def _as_persisted(span: Span) -> StateBatch:
    if span.state is RecordState.ACQUIRED:
        return StateBatch(span.first, span.last, RecordState.AVAILABLE, span.deliveries - 1)
    return StateBatch(span.first, span.last, span.state, span.deliveries)


def check_acks(acks: Sequence[Ack], *, may_renew: bool) -> ErrorCode:
    """Say whether acknowledgements are well formed: in order, all records with a type.

    INVALID_REQUEST: they are not. INVALID_RECORD_STATE: one begins with the record that the one
    before ends with, which is acknowledged by then.
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
    """Yield neighbours of one type together."""
    if len(ack.types) == 1:
        yield ack.first, ack.last, AckType(ack.types[0])
        return
    offset = ack.first
    for kind, same in groupby(ack.types):
        count = sum(1 for _ in same)
        yield offset, Offset(offset + count - 1), AckType(kind)
        offset = Offset(offset + count)


def _sliced(held: Acquired, ends: Sequence[Offset], want: Acquire) -> Iterator[Acquired]:
    """Yield records in pieces that end where a batch does, of ``batch_size`` records or more."""
    first = held.first
    if want.batch_size > 0:
        for end in ends:
            if first <= end < held.last and end - first + 1 >= want.batch_size:
                yield Acquired(first, end, held.deliveries)
                first = Offset(end + 1)
    yield Acquired(first, held.last, held.deliveries)
