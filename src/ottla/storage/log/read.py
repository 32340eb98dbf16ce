"""Find records in a log: by offset for a fetch, by timestamp for ListOffsets.

A fetch returns a position in a file, not bytes; the server sends them directly from the file.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import is_crc_valid
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset
from ottla.runtime.ports import File
from ottla.storage.log.scan import LocatedBatch
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments
from ottla.storage.log.transaction_index import AbortedTxn

TRIMMED_BYTES_MIN: Final = 64 * 1024
"""Slices of at least this length end with a whole batch: finding its end is cheap then."""


class CorruptStoredBatch(CorruptBatch):
    """A stored batch that is damaged; ``offset`` is where it begins, as far as is known."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class Slice(NamedTuple):
    """Part of a segment file that begins with a whole batch; the last batch may be incomplete.

    ``base_offset`` is that of the first batch and may be below the requested offset. An empty
    slice has length 0 and an arbitrary file.
    """

    file: File
    position: int
    length: int
    base_offset: Offset


class TimestampedOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that wrote it."""

    timestamp: Millis
    offset: Offset
    leader_epoch: LeaderEpoch


class RemoteRecords(NamedTuple):
    """Whole batches from remote storage; ``aborted`` is None unless read_committed."""

    data: Buffer
    aborted: list[AbortedTxn] | None = None


class SliceRequest(NamedTuple):
    """A read: from ``offset``, at most ``bytes_max``, nothing at or after ``upto``.

    ``minimum_one``: a first batch larger than ``bytes_max`` is returned whole.
    """

    offset: Offset
    bytes_max: int
    upto: Offset
    minimum_one: bool


def find_slice(segments: Segments, wanted: SliceRequest, log_end: Offset) -> Slice:
    """Return the batches from the one that holds ``offset`` on, within one segment.

    Where compaction has removed the offset, starts at the next batch. A batch is included only if
    all of it is below ``upto``. The caller has checked that the offset is in range.
    """
    for segment in segments.from_floor(wanted.offset):
        first = segment.find(wanted.offset)
        if first is not None:
            end = segment.size
            if segments.end_of(segment, log_end) > wanted.upto:
                end = segment.position_of(wanted.upto)
            return _slice(segment, first, end, wanted)
    return empty_slice(segments, wanted.offset)


def empty_slice(segments: Segments, offset: Offset) -> Slice:
    """Return an empty slice."""
    return Slice(segments.active.file, 0, 0, offset)


def _slice(segment: Segment, first: LocatedBatch, end: int, wanted: SliceRequest) -> Slice:
    allowed = wanted.bytes_max
    if first.header.size > allowed:
        allowed = first.header.size if wanted.minimum_one else 0
    length = max(0, min(end - first.position, allowed))
    if TRIMMED_BYTES_MIN <= length < end - first.position:
        length -= _useless_tail(segment, first, length)
    return Slice(segment.file, first.position, length, first.header.base_offset)


def _useless_tail(segment: Segment, first: LocatedBatch, length: int) -> int:
    """Return how many bytes at the end of a slice belong to a batch that does not fit.

    A reader discards an incomplete batch and fetches it again; with batches of a megabyte that is
    a good part of what is sent. The index knows the start of one of the last batches; it is not
    trusted: the first batch stays whole in any case.
    """
    end = first.position + length
    begins = max(first.position, segment.indexed_below(end))
    try:
        for found in segment.batches_from(begins):
            if found.position + found.header.size > end:
                return min(end - found.position, length - first.header.size)
    except (CorruptBatch, UnsupportedMagic):
        return 0  # reported to the reader that reaches it
    return 0


def find_timestamp(
    segments: Segments, timestamp: Millis, start: Offset, record_bytes_max: int
) -> TimestampedOffset | None:
    """Return the first record at or after ``start`` that is not older than ``timestamp``.

    Raises:
        InvalidRecord: a record before it has over ``record_bytes_max`` decompressed bytes.
    """
    for segment in segments.from_floor(start):
        if segment.largest.timestamp < timestamp:
            continue
        first = segment.find_timestamp(timestamp, start)
        if first is None:
            continue
        for found in segment.batches_from(first.position):
            if found.header.max_timestamp < timestamp:
                continue
            for record in _records(segment, found, record_bytes_max):
                if record.timestamp >= timestamp and record.offset >= start:
                    return _timestamped(record, found)
    return None


def find_max_timestamp(segments: Segments, record_bytes_max: int) -> TimestampedOffset | None:
    """Return the first record that has the largest timestamp of the log (KIP-734).

    Raises:
        InvalidRecord: as `find_timestamp`.
    """
    segment = max(segments, key=lambda each: each.largest.timestamp)
    largest = segment.largest
    found = segment.find(largest.offset) if largest.timestamp >= 0 else None
    if found is None:
        return None
    for record in _records(segment, found, record_bytes_max):
        if record.timestamp == found.header.max_timestamp:
            return _timestamped(record, found)
    return None


def _records(segment: Segment, found: LocatedBatch, record_bytes_max: int) -> Iterator[Record]:
    """Yield the records of a batch. Raises CorruptBatch where its CRC does not match."""
    data = segment.file.pread(found.header.size, found.position)
    if not is_crc_valid(data, 0, found.header):
        text = f"{segment.path}: the CRC of the batch at {found.position} does not match"
        raise CorruptStoredBatch(text, found.header.base_offset)
    yield from iter_records(data, size_max=record_bytes_max)


def _timestamped(record: Record, found: LocatedBatch) -> TimestampedOffset:
    return TimestampedOffset(record.timestamp, record.offset, found.header.leader_epoch)
