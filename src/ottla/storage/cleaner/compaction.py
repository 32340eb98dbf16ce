"""Rules of log compaction: what may be removed from a log, and which log to clean first.

Pure. Compaction keeps the newest record of each key. A log is clean up to its first dirty offset.
A round maps every key of the dirty part to its newest offset (`offset_map.py`), then rewrites
every segment below the round's end without the records that the map makes obsolete:

    0 ......... first dirty ........ round's end ..... first uncleanable ....... log end
    |---- rewritten ----------------------|  |-- next round ----|-- not yet -----|

What survives a round, besides the newest value of each key:

* offsets: no record's offset changes, and the last batch of a round stays, at least its header;
* a tombstone, until its delete horizon: readers must get the chance to see it (KIP-534);
* the last batch of each producer, at least its header: otherwise a retry would look like a gap;
* a transaction marker, until all its data is gone and its delete horizon has passed. Markers are
  never compared by key: they all have the same one.
"""

import enum
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.walker import RECORD_SIZE_MAX
from ottla.protocol.types import Millis, Offset
from ottla.storage.log.transaction_index import AbortedTxn

# A segment's indexes hold offsets relative to its base in 31 bits.
OFFSETS_PER_SEGMENT_MAX = 2**31 - 1

# -- one batch -----------------------------------------------------------------


class BatchRetention(enum.Enum):
    """How to treat a batch, in the terms of Kafka's ``BatchRetention``."""

    DELETE = "delete"  # remove the whole batch without reading its records
    DELETE_EMPTY = "delete-empty"  # keep the retained records; remove the batch if there are none
    RETAIN_EMPTY = "retain-empty"  # keep the retained records, or at least the bare header


class RetentionDecision(NamedTuple):
    """The decision for one batch.

    ``drops_records``: none is retained, whatever the map says. ``is_marker_of_empty_txn``: a
    marker whose transaction has no data left, so that its delete horizon starts to run.
    """

    batch_retention: BatchRetention
    drops_records: bool
    is_marker_of_empty_txn: bool


class LastRecord(NamedTuple):
    """The last batch of a producer; ``data_offset`` is -1 when that was a marker."""

    data_offset: Offset
    epoch: int


class MarkerKind(enum.Enum):
    """What a control batch means for its producer's transaction."""

    COMMIT = "commit"
    ABORT = "abort"
    OTHER = "other"  # of the metadata log; never removed
    EMPTY = "empty"  # cleaned before: only the header is left


class CleanedTransactions:
    """Tracks the transactions of the batches read so far, in offset order.

    Aborted transactions that had data left when their marker was read make up the new
    transaction index: call `take_retained` after each segment.
    """

    def __init__(self) -> None:
        self._retained: list[AbortedTxn] = []
        self._waiting: list[tuple[Offset, AbortedTxn]] = []  # a heap by first offset
        self._aborted: dict[int, AbortedTxn] = {}  # by producer: begun and not yet ended
        self._with_data: set[int] = set()  # producers whose open aborted transaction has data left
        self._committed: set[int] = set()  # producers with data in a transaction not aborted

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions that begin after what has been read."""
        for txn in transactions:
            heapq.heappush(self._waiting, (txn.first_offset, txn))

    def on_data(self, header: BatchHeader) -> bool:
        """Record a data batch; True when its transaction aborted, so its records are removed."""
        self._begin_upto(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, kind: MarkerKind) -> bool:
        """Record a control batch; True when its transaction has no data left."""
        self._begin_upto(header.last_offset)
        producer_id = header.producer_id
        match kind:
            case MarkerKind.ABORT:
                txn = self._aborted.pop(producer_id, None)
                if txn is None or producer_id not in self._with_data:
                    return True
                self._with_data.discard(producer_id)
                self._retained.append(txn)
                return False
            case MarkerKind.COMMIT:
                is_spent = producer_id not in self._committed
                self._committed.discard(producer_id)
                return is_spent
            case MarkerKind.EMPTY:
                return True
            case MarkerKind.OTHER:
                return False

    def take_retained(self) -> list[AbortedTxn]:
        """Return the aborted transactions that stay in the index, each once, by marker offset."""
        retained, self._retained = self._retained, []
        return retained

    def _begin_upto(self, offset: Offset) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            txn = heapq.heappop(self._waiting)[1]
            self._aborted.setdefault(txn.producer_id, txn)


class Round(NamedTuple):
    """Values that are the same for all batches of a round.

    ``now`` decides which delete horizons have passed, ``stamp`` sets new ones. ``upper_bound``
    is the first offset that may not be cleaned yet; ``last_records`` has an entry for every
    producer that the log knows. ``record_bytes_max`` is ``max.decompressed.message.bytes``.
    """

    now: Millis
    stamp: Millis
    delete_retention_ms: int
    upper_bound: Offset
    last_records: Mapping[int, LastRecord]
    record_bytes_max: int = RECORD_SIZE_MAX


def decide_batch(header: BatchHeader, round_: Round, may_discard: bool) -> RetentionDecision:
    """Decide about a batch; ``may_discard`` is what `CleanedTransactions` returned for it."""
    drops_records = may_discard
    if header.is_control:
        # A marker without data is kept for readers that are in the middle of its data.
        horizon = header.delete_horizon_ms
        drops_records = may_discard and horizon is not None and horizon <= round_.now
    if _is_last_of_producer(header, round_) or header.next_offset == round_.upper_bound:
        batch_retention = BatchRetention.RETAIN_EMPTY
    elif drops_records:
        batch_retention = BatchRetention.DELETE
    else:
        batch_retention = BatchRetention.DELETE_EMPTY
    return RetentionDecision(
        batch_retention, drops_records, is_marker_of_empty_txn=may_discard and header.is_control
    )


def _is_last_of_producer(header: BatchHeader, round_: Round) -> bool:
    last = round_.last_records.get(header.producer_id) if header.producer_id >= 0 else None
    if last is None:
        return False
    if last.data_offset >= 0:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.epoch


# -- one log -------------------------------------------------------------------


class CleanableSegment(Protocol):
    """The properties of a segment that plans use; sizes are bytes."""

    @property
    def base_offset(self) -> Offset:
        """The first offset it may hold."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its batches."""
        ...

    @property
    def index_size(self) -> int:
        """Bytes of the larger of its two indexes."""
        ...

    @property
    def largest_timestamp(self) -> Millis:
        """The largest timestamp of its records."""
        ...

    @property
    def first_timestamp(self) -> Millis | None:
        """The timestamp of its first batch; None when it is empty."""
        ...


AnySegment = TypeVar("AnySegment", bound=CleanableSegment)


class Lags(NamedTuple):
    """``min.compaction.lag.ms`` and ``max.compaction.lag.ms``."""

    ms_min: int
    ms_max: int


class Dirty(NamedTuple):
    """The dirty part of a log: ``[first_dirty, first_uncleanable)``.

    ``first_uncleanable`` is a segment's base offset. ``is_checkpoint_wrong``: the checkpoint named
    an offset that the log does not have, and ``first_dirty`` must replace it.
    """

    first_dirty: Offset
    first_uncleanable: Offset
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    is_checkpoint_wrong: bool

    @property
    def ratio(self) -> float:
        """The dirty share of the bytes that could be compacted."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_worth_cleaning(self, ratio_min: float) -> bool:
        """Whether ``min.cleanable.dirty.ratio`` or ``max.compaction.lag.ms`` requires cleaning."""
        is_overdue = self.overdue_ms > 0 and self.cleanable_bytes > 0
        return is_overdue or self.ratio > ratio_min


class LogOffsets(NamedTuple):
    """The offsets of a log; ``checkpoint`` is the end of its clean part, None if never cleaned."""

    checkpoint: Offset | None
    log_start: Offset
    last_stable: Offset
    log_end: Offset


def find_dirty(
    segments: Sequence[CleanableSegment], offsets: LogOffsets, lags: Lags, now: Millis
) -> Dirty:
    """Find the part that may be cleaned. ``segments`` are oldest first; the last one is active.

    Never cleaned: the active segment, anything at or above the last stable offset, and
    segments with a record younger than the minimum lag.
    """
    first_dirty = offsets.log_start if offsets.checkpoint is None else offsets.checkpoint
    is_wrong = not offsets.log_start <= first_dirty <= offsets.log_end
    if is_wrong:
        first_dirty = offsets.log_start
    dirty = _non_active_from(segments, first_dirty)
    limit = min(offsets.last_stable, segments[-1].base_offset)
    if lags.ms_min > 0:
        young = (s for s in dirty if s.largest_timestamp > now - lags.ms_min)
        limit = min([limit, *(segment.base_offset for segment in young)])
    limit = max(limit, first_dirty)
    # Whole segments only: the one that holds the limit is the first that is not cleaned.
    uncleanable = _non_active_from(segments, limit)[:1] or segments[-1:]
    end = uncleanable[0].base_offset
    start = min(first_dirty, end)
    return Dirty(
        first_dirty,
        end,
        clean_bytes=sum(s.size for s in segments if s.base_offset < first_dirty),
        cleanable_bytes=sum(s.size for s in _from_floor(segments, start) if s.base_offset < end),
        overdue_ms=_overdue_ms(dirty, lags, now),
        is_checkpoint_wrong=is_wrong,
    )


def _from_floor(segments: Sequence[CleanableSegment], offset: Offset) -> list[CleanableSegment]:
    """Return the segment that holds ``offset``, and all later ones."""
    bases = [segment.base_offset for segment in segments]
    first = max((base for base in bases if base <= offset), default=bases[0])
    return [segment for segment in segments if segment.base_offset >= first]


def _non_active_from(
    segments: Sequence[CleanableSegment], offset: Offset
) -> list[CleanableSegment]:
    if offset > segments[-1].base_offset:
        return []
    return [s for s in _from_floor(segments, offset) if s is not segments[-1]]


def _overdue_ms(dirty: Iterable[CleanableSegment], lags: Lags, now: Millis) -> int:
    """Return for how long the oldest dirty segment has been past the maximum lag."""
    if now < lags.ms_max:  # no limit: the segments need not be read
        return 0
    times = [s.first_timestamp for s in dirty]
    oldest = min((time for time in times if time is not None and time > 0), default=now)
    return max(0, now - max(lags.ms_max, 0) - oldest)


class Candidate(NamedTuple):
    """A compacted log that may be cleaned. ``name`` breaks ties, so the order is deterministic."""

    name: str
    dirty: Dirty
    ratio_min: float


def choose_filthiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Choose the log to clean next: one past its maximum lag first, then the dirtiest."""
    worth = [each for each in candidates if each.dirty.is_worth_cleaning(each.ratio_min)]
    return min(
        worth,
        key=lambda each: (each.dirty.overdue_ms == 0, -each.dirty.ratio, each.name),
        default=None,
    )


class Limits(NamedTuple):
    """Limits of a segment: ``segment.bytes`` and ``segment.index.bytes``."""

    bytes_max: int
    index_bytes_max: int


def plan_groups(
    segments: Sequence[AnySegment], limits: Limits, first_uncleanable: Offset
) -> list[list[AnySegment]]:
    """Group neighbours that fit into one segment, so that segments do not become tiny."""
    groups: list[list[AnySegment]] = []
    log_bytes = index_bytes = 0
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable
        if groups and _fits(
            segment,
            Limits(limits.bytes_max - log_bytes, limits.index_bytes_max - index_bytes),
            span=end - 1 - groups[-1][0].base_offset,
        ):
            groups[-1].append(segment)
            log_bytes += segment.size
            index_bytes += segment.index_size
        else:
            groups.append([segment])
            log_bytes, index_bytes = segment.size, segment.index_size
    return groups


def _fits(segment: CleanableSegment, room: Limits, span: int) -> bool:
    is_near = segment.size == 0 or span <= OFFSETS_PER_SEGMENT_MAX
    return segment.size <= room.bytes_max and segment.index_size <= room.index_bytes_max and is_near
