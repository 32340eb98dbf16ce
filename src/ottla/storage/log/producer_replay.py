"""Apply batches that are in the log to its producer state.

The same code runs for an append, for a replicated batch and for replay after a restart: so all
three agree on what is a duplicate and which transaction is open.
"""

from collections.abc import Iterator

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.types import NO_TIMESTAMP, Millis, Offset
from ottla.storage.log.batch_checks import marker_of
from ottla.storage.log.files import OFFSET_MAX
from ottla.storage.log.producer_snapshots import Snapshots
from ottla.storage.log.producer_state import CompletedTxn, ProducerState
from ottla.storage.log.scan import LocatedBatch
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments
from ottla.storage.log.transaction_index import AbortedTxn, CorruptIndex, TransactionIndex


def apply_batch(
    producers: ProducerState,
    header: BatchHeader,
    marker: EndTxnMarker | None,
    now: Millis = NO_TIMESTAMP,
) -> CompletedTxn | None:
    """Apply a batch whose header has its offsets; return the transaction it ended.

    ``marker`` is that of a control batch, from `marker_of`.
    """
    completed = None
    if header.producer_id >= 0:
        if not header.is_control:
            producers.apply(
                header,
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                timestamp=header.max_timestamp,
                now=now,
            )
        elif marker is not None:
            completed = producers.apply_marker(header, marker, header.last_offset, now)
        else:
            producers.apply_emptied_marker(header, now)
    producers.skip_to(header.next_offset)
    return completed


def note_aborted(index: TransactionIndex, completed: CompletedTxn | None) -> None:
    """Add an aborted transaction to the index of the segment that holds its marker."""
    if completed is not None and completed.is_aborted:
        index.append(
            AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )


def replay(producers: ProducerState, segments: Segments, upto: Offset) -> None:
    """Apply all batches from the current end of the producer state up to ``upto``.

    Reads only headers, except for markers.
    """
    for segment in segments.from_floor(producers.map_end_offset):
        for _ in replay_segment(producers, segment, upto):
            pass
    producers.skip_to(upto)


def replay_segment(
    producers: ProducerState, segment: Segment, upto: Offset
) -> Iterator[CompletedTxn]:
    """Apply the rest of a segment; yield the transactions that ended in it."""
    if segment.base_offset >= upto:
        return
    first = segment.find(producers.map_end_offset)
    for found in segment.batches_from(first.position) if first else ():
        if found.header.last_offset >= upto:
            return
        completed = apply_batch(producers, found.header, _marker_on_disk(segment, found))
        if completed is not None:
            yield completed


def _marker_on_disk(segment: Segment, found: LocatedBatch) -> EndTxnMarker | None:
    header = found.header
    if header.producer_id < 0 or not header.is_control:
        return None
    return marker_of(segment.file.pread(header.size, found.position), 0, header)


def collect_aborted(
    segments: Segments, snapshots: Snapshots, start: Offset, upto: Offset
) -> list[AbortedTxn]:
    """Return the aborted transactions that overlap ``[start, upto)``.

    Rebuilds a transaction index that cannot be read.
    """
    found: list[AbortedTxn] = []
    for segment in segments.from_floor(start):
        try:
            aborted, is_complete = segment.txn_index.collect(start, upto)
        except CorruptIndex:
            rebuild_txn_index(segment, segments, snapshots)
            aborted, is_complete = segment.txn_index.collect(start, upto)
        found += aborted
        if is_complete:
            break
    return found


def rebuild_txn_index(segment: Segment, segments: Segments, snapshots: Snapshots) -> None:
    """Replay a segment from the newest snapshot before it, and index aborted transactions."""
    producers = ProducerState()
    producers.clear(segments.first.base_offset)
    snapshots.load(producers, segment.base_offset, NO_TIMESTAMP)
    replay(producers, segments, segment.base_offset)
    segment.txn_index.reset()
    for completed in replay_segment(producers, segment, Offset(OFFSET_MAX)):
        note_aborted(segment.txn_index, completed)
