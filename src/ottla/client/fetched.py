"""What a fetch brought, batch by batch: which batches a reader is shown.

A fetch answers with whole batches from the one that holds the offset asked for, so the first may
begin before it, and the last may be cut off. Markers are never shown. A reader of committed records
is told with the batches which transactions were aborted, each by its producer and first offset; it
skips that producer's batches from there until the abort marker.
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
    """A transaction that a reader of committed records must not see."""

    producer_id: int
    first_offset: int


class FetchedBatch(NamedTuple):
    """A batch of data in the bytes of a fetch."""

    position: int
    header: BatchHeader


class Fetched(msgspec.Struct):
    """What one partition answered. ``next_offset`` is where to fetch on: markers and aborted
    records move it too. ``end_offset`` is where reading ends for now.
    """

    partition: TopicPartition
    data: Buffer
    offset: Offset
    next_offset: Offset
    end_offset: Offset
    batches: list[FetchedBatch] = msgspec.field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """Yield the records from the offset that was asked for.

        Raises:
            InvalidRecord: a batch does not unpack.
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
    """Sort out what a fetch from ``offset`` brought. ``aborted`` None: show what is not committed.

    Raises:
        CorruptBatch: a batch whose CRC is wrong. RecordTooLarge: not even one batch is whole.
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
        raise RecordTooLarge(f"{partition}: the batch at {offset} is larger than a fetch may be")
    return found


class AbortedFilter:
    """Follows which producers are inside an aborted transaction, in the order of the log."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._inside: set[int] = set()

    def shows(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Say whether the next batch is data that a reader of committed records may see."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._inside.add(self._coming.pop().producer_id)
        if header.is_control:
            if read_control_type(data, position) is ControlType.ABORT:
                self._inside.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._inside)
