"""The batches of a fetch response, filtered for a consumer.

A response contains whole batches from the one with the fetch offset, so the first may start before
that offset, and the last may be truncated. Markers are filtered out. With read_committed the
response lists the aborted transactions by producer id and first offset; that producer's batches are
skipped from there until the abort marker.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from ottla.protocol.faults import CorruptBatch, RecordTooLarge
from ottla.protocol.records.batch import BatchHeader, batches, is_crc_valid
from ottla.protocol.records.control import ControlType, read_control_type
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.types import Buffer, Offset, TopicPartition


class Aborted(NamedTuple):
    """An aborted transaction, which read_committed must not return."""

    producer_id: int
    first_offset: int


class Chunk(NamedTuple):
    """Whole batches in log order, and the aborted transactions that overlap them.

    An incomplete batch at the end is ignored. ``aborted`` has the producer id and first offset of
    each; it is empty for read_uncommitted.
    """

    data: Buffer
    aborted: tuple[tuple[int, int], ...] = ()


class FetchedBatch(NamedTuple):
    """A batch of data and its position in the fetched bytes."""

    position: int
    header: BatchHeader


class Fetched(msgspec.Struct):
    """The response for one partition. ``next_offset`` is where to fetch next: markers and aborted
    records advance it, too. ``end_offset`` is the end of the readable records.
    """

    partition: TopicPartition
    data: Buffer
    offset: Offset
    next_offset: Offset
    end_offset: Offset
    batches: list[FetchedBatch] = msgspec.field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """Yield the records from the fetch offset on.

        Raises:
            InvalidRecord: a batch cannot be decompressed or decoded.
        """
        for position, _ in self.batches:
            for record in read_records(self.data, position):
                if record.offset >= self.offset:
                    yield record


def read_fetched(
    partition: TopicPartition,
    offset: Offset,
    data: Buffer,
    *,
    end_offset: Offset,
    aborted: Iterable[Aborted] | None = None,
) -> Fetched:
    """Filter the result of a fetch from ``offset``. ``aborted`` None means read_uncommitted.

    Raises:
        CorruptBatch: the CRC of a batch is wrong. RecordTooLarge: not even one batch is complete.
    """
    found = Fetched(partition, data, offset, offset, end_offset)
    filtering = None if aborted is None else AbortedFilter(aborted)
    is_any = False
    for position, header in batches(data):
        is_any = True
        if header.next_offset <= offset:
            continue
        if not is_crc_valid(data, position, header):
            raise CorruptBatch(f"{partition}: the batch at offset {header.base_offset}")
        is_shown = filtering is None or filtering.shows(data, position, header)
        if is_shown and not header.is_control:
            found.batches.append(FetchedBatch(position, header))
        found.next_offset = header.next_offset
    if len(data) and not is_any:
        raise RecordTooLarge(f"{partition}: the batch at offset {offset} exceeds the fetch size")
    return found


def next_offset(data: Buffer) -> int | None:
    """Return the offset after the last whole batch; None if there is none.

    Raises:
        CorruptBatch, UnsupportedMagic: bytes that are not a batch.
    """
    following: int | None = None
    for _, header in batches(data):
        following = header.next_offset
    return following


class AbortedFilter:
    """Tracks the producers inside an aborted transaction, in the order of the log."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._inside: set[int] = set()

    def shows(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Say whether the next batch is data that read_committed returns."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._inside.add(self._coming.pop().producer_id)
        if header.is_control:
            if read_control_type(data, position) is ControlType.ABORT:
                self._inside.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._inside)
