"""Reads inside one remote segment: by offset, by timestamp, and its aborted transactions."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    is_crc_valid,
    read_header,
)
from ottla.protocol.records.crc import crc32c
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import Buffer, Millis, Offset, Uuid
from ottla.runtime.ports import Worker
from ottla.storage.read import TimestampedOffset
from ottla.storage.transaction_index import ENTRY_BYTES, AbortedTxn
from ottla.tiering.read_cache import BLOCK_BYTES, ReadCache
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import ObjectDamaged, SegmentStore

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_TXN_ENTRY: Final = Struct(">hqqqq")
_START: Final = Struct(">qi4xbI2xi")
"""The part of a header that a check needs: offset, length, magic, CRC and last offset delta."""
_SCAN_BYTES: Final = 64 * 1024
_CHECKED_AT_ONCE_BYTES: Final = 1 << 20
"""Batches of a default fetch are checked in 0.1 ms: no longer than it takes to wake a thread."""

BlockKey = tuple[Uuid, int]
IndexKey = tuple[Uuid, ObjectKind]


class SegmentReads(NamedTuple):
    """What reads share. ``worker`` checks CRCs off the event loop."""

    store: SegmentStore
    blocks: ReadCache[BlockKey]
    indexes: ReadCache[IndexKey]
    worker: Worker


class LocatedHeader(NamedTuple):
    """A batch: where it begins in the segment, and its header."""

    position: int
    header: BatchHeader


class RemoteSegment:
    """One segment that can be read. All methods raise `RemoteStorageFailed`."""

    def __init__(self, metadata: SegmentMetadata, reads: SegmentReads) -> None:
        self.metadata = metadata
        self._reads = reads
        self._id = metadata.segment_id.id
        self._size = reads.store.size(metadata, ObjectKind.LOG)
        self._end = 0

    # -- batches -------------------------------------------------------------------

    async def read(self, offset: Offset, bytes_max: int, *, minimum_one: bool) -> Buffer:
        """Return whole batches from the one that holds ``offset`` on, or the next one.

        At most ``bytes_max``; a first batch that is larger is returned whole if ``minimum_one``.
        Empty if the segment has no batch at or after ``offset``.
        """
        for attempt in (1, 2):
            try:
                return await self._read(offset, bytes_max, minimum_one)
            except (CorruptBatch, UnsupportedMagic) as error:
                if attempt == 2:
                    raise ObjectDamaged(f"{self._name}: {error}") from error
                self._reads.blocks.drop(lambda key: key[0] == self._id)
        raise AssertionError

    async def _read(self, offset: Offset, bytes_max: int, minimum_one: bool) -> Buffer:
        first = await self._find(offset)
        if first is None:
            return b""
        wanted = max(bytes_max, first.header.size) if minimum_one else bytes_max
        data = await self._bytes(first.position, wanted)
        self._end = first.position + len(data)
        if len(data) <= _CHECKED_AT_ONCE_BYTES:
            return _whole_batches(data, self.metadata)
        return await self._reads.worker.run(partial(_whole_batches, data, self.metadata))

    async def _find(self, offset: Offset) -> LocatedHeader | None:
        """Return the first batch that ends at or after ``offset``."""
        async for found in self._headers(await self._position_of(offset)):
            if found.header.last_offset >= offset:
                return found
        return None

    async def _headers(self, position: int) -> AsyncIterator[LocatedHeader]:
        while position < self._size:
            window = await self._bytes(position, _SCAN_BYTES)
            start = position
            while position - start + HEADER_BYTES <= len(window):
                header = read_header(window, position - start)
                if header.size > self._size - position:
                    raise CorruptBatch(f"the batch at {position} extends past the end")
                yield LocatedHeader(position, header)
                position += header.size
            if position == start:
                raise CorruptBatch(f"no batch begins at {position}")

    async def _bytes(self, position: int, length: int) -> Buffer:
        """Return part of the segment, from the cache of blocks; copied only if it is of several."""
        end = min(position + length, self._size)
        parts = []
        while position < end:
            number, skip = divmod(position, BLOCK_BYTES)
            block = memoryview(await self._block(number))
            part = block[skip : skip + end - position]
            if not part:
                raise CorruptBatch(f"block {number} has {len(block)} bytes")
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _block(self, number: int) -> Buffer:
        reads, start = self._reads, number * BLOCK_BYTES
        load = partial(reads.store.read_log, self.metadata, start, BLOCK_BYTES)
        return await reads.blocks.get((self._id, number), load)

    def next_block(self) -> int | None:
        """Return the number of the first block that the last `read` did not need.

        None: it read up to the last block of the segment.
        """
        following = self._end // BLOCK_BYTES + 1
        return following if following * BLOCK_BYTES < self._size else None

    def has_block(self, number: int) -> bool:
        """Say whether a block is in the cache, or on its way there."""
        return (self._id, number) in self._reads.blocks

    async def read_ahead(self, number: int) -> None:
        """Load a block, and before the first one the index by which it is read."""
        if number == 0:
            await self._index(ObjectKind.OFFSET_INDEX)
        await self._block(number)

    @property
    def _name(self) -> str:
        return self._reads.store.key(self.metadata, ObjectKind.LOG)

    # -- indexes -------------------------------------------------------------------

    async def _index(self, kind: ObjectKind) -> bytes:
        reads = self._reads
        if not reads.store.size(self.metadata, kind):
            return b""
        load = partial(reads.store.read, self.metadata, kind)
        return bytes(await reads.indexes.get((self._id, kind), load))

    async def _position_of(self, offset: Offset) -> int:
        data = await self._index(ObjectKind.OFFSET_INDEX)
        relative = offset - self.metadata.start_offset
        return _floor(data, _OFFSET_ENTRY, relative)[1]

    async def find_timestamp(self, timestamp: Millis, start: Offset) -> TimestampedOffset | None:
        """Return the first record at or after both ``timestamp`` and the offset ``start``."""
        data = await self._index(ObjectKind.TIME_INDEX)
        relative = _floor(data, _TIME_ENTRY, timestamp)[1]
        first = max(start, Offset(self.metadata.start_offset + relative))
        try:
            async for found in self._headers(await self._position_of(first)):
                if found.header.max_timestamp < timestamp or found.header.last_offset < start:
                    continue
                batch = await self._bytes(found.position, found.header.size)
                record = _first_record(batch, found.header, timestamp, start)
                if record is not None:
                    return record
        except (CorruptBatch, UnsupportedMagic) as error:
            raise ObjectDamaged(f"{self._name}: {error}") from error
        return None

    async def aborted(self, start: Offset, upto: Offset) -> tuple[list[AbortedTxn], bool]:
        """Return aborted transactions that overlap ``[start, upto)``, and whether these are all.

        False: the following segments may have more.
        """
        found: list[AbortedTxn] = []
        for txn in _transactions(await self._index(ObjectKind.TXN_INDEX)):
            if txn.last_offset >= start and txn.first_offset < upto:
                found.append(txn)
            if txn.last_stable_offset >= upto:
                return found, True
        return found, False


def _floor(data: bytes, entry: Struct, key: int) -> tuple[int, int]:
    """Return the last entry at or below ``key``; zeros if there is none."""
    count = len(data) // entry.size

    def at(index: int) -> int:
        found: int = entry.unpack_from(data, index * entry.size)[0]
        return found

    place = bisect_right(range(count), key, key=at)
    if not place:
        return 0, 0
    first, second = entry.unpack_from(data, (place - 1) * entry.size)
    return first, second


def _transactions(data: bytes) -> Iterator[AbortedTxn]:
    if len(data) % ENTRY_BYTES:
        raise ObjectDamaged(f"transaction index of {len(data)} bytes")
    for _, *fields in _TXN_ENTRY.iter_unpack(data):
        yield AbortedTxn(*fields)


def _whole_batches(data: Buffer, metadata: SegmentMetadata) -> Buffer:
    """Return the whole batches at the start of ``data``, each with a valid CRC and offset.

    Raises:
        CorruptBatch, UnsupportedMagic: the bytes are not what was stored.
    """
    position, size = 0, len(data)
    first, last = metadata.start_offset, metadata.end_offset
    while size - position >= HEADER_BYTES:
        base, length, magic, crc, delta = _START.unpack_from(data, position)
        if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            read_header(data, position)  # raises
        end = position + LOG_OVERHEAD_BYTES + length
        if end > size:
            break
        if not first <= base <= base + delta <= last:
            raise CorruptBatch(f"offsets {base}..{base + delta}")
        if crc32c(data, position + ATTRIBUTES_AT, end) != crc:
            raise CorruptBatch(f"the CRC of the batch at offset {base} is wrong")
        position = end
    return data if position == size else data[:position]


def _first_record(
    batch: Buffer, header: BatchHeader, timestamp: Millis, start: Offset
) -> TimestampedOffset | None:
    if not is_crc_valid(batch, 0, header):
        raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} is wrong")
    for record in read_records(batch):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampedOffset(record.timestamp, record.offset, header.leader_epoch)
    return None
