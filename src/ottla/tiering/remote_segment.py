"""Reads inside one remote segment: by offset, by timestamp, and its aborted transactions."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, TypeVar

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
from ottla.protocol.records.reader import iter_records
from ottla.protocol.types import Buffer, Millis, Offset, Uuid
from ottla.runtime.ports import Worker
from ottla.storage.log.read import TimestampedOffset
from ottla.storage.log.transaction_index import ENTRY_BYTES, AbortedTxn
from ottla.tiering.batch_order import BatchOrder, BatchOutOfPlace
from ottla.tiering.read_cache import BLOCK_BYTES, ReadCache
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import SUM_BYTES, ObjectDamaged, SegmentStore
from ottla.tiering.uploads import crc_of

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_TXN_ENTRY: Final = Struct(">hqqqq")
_START: Final = Struct(">qiibI2xi")
"""The start of a header: offset, length, leader epoch, magic, CRC, and last offset delta."""
_SCAN_BYTES: Final = 64 * 1024
_CHECKED_AT_ONCE_BYTES: Final = 1 << 20
"""Batches of a default fetch are checked in 0.1 ms: no longer than it takes to wake a thread."""

Result = TypeVar("Result")
BlockKey = tuple[Uuid, int]
IndexKey = tuple[Uuid, ObjectKind]
"""Of an index, or (`ObjectKind.LOG`) of the checksums of a segment's blocks."""


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
        # The checksums of the blocks, once the whole object was found to be what was stored.
        self._sums = reads.indexes.peek((self._id, ObjectKind.LOG))

    # -- batches -------------------------------------------------------------------

    async def read(self, offset: Offset, bytes_max: int, *, minimum_one: bool) -> Buffer:
        """Return whole batches from the one that holds ``offset`` on, or the next one.

        At most ``bytes_max``; a first batch that is larger is returned whole if ``minimum_one``.
        Empty if the segment has no batch at or after ``offset``.
        """
        return await self._sound(partial(self._read, offset, bytes_max, minimum_one))

    async def _sound(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of a read, of bytes that are what was stored.

        Bytes may be changed on their way here: they are loaded once more. If a batch is then still
        out of place, the whole object is compared with its checksum: the log may have gaps.
        """
        try:
            return await work()
        except (CorruptBatch, UnsupportedMagic):
            self._drop_blocks()
        try:
            return await work()
        except BatchOutOfPlace:
            self._drop_blocks()
            self._sums = await self._verified_sums()
        except (CorruptBatch, UnsupportedMagic) as error:
            raise ObjectDamaged(self._name, str(error)) from error
        try:
            return await work()
        except (CorruptBatch, UnsupportedMagic) as error:
            raise ObjectDamaged(self._name, str(error)) from error

    def _drop_blocks(self) -> None:
        self._reads.blocks.drop(lambda key: key[0] == self._id)

    async def _verified_sums(self) -> Buffer:
        load = partial(self._reads.store.block_sums, self.metadata, BLOCK_BYTES)
        return await self._reads.indexes.get((self._id, ObjectKind.LOG), load)

    async def _read(self, offset: Offset, bytes_max: int, minimum_one: bool) -> Buffer:
        first = await self._find(offset)
        if first is None:
            return b""
        wanted = max(bytes_max, first.header.size) if minimum_one else bytes_max
        data = await self._bytes(first.position, wanted)
        self._end = first.position + len(data)
        order = self._order(first.header.base_offset)
        if len(data) <= _CHECKED_AT_ONCE_BYTES:
            return _whole_batches(data, self.metadata, order)
        return await self._reads.worker.run(partial(_whole_batches, data, self.metadata, order))

    async def _find(self, offset: Offset) -> LocatedHeader | None:
        """Return the first batch that ends at or after ``offset``."""
        async for found in self._headers(offset):
            if found.header.last_offset >= offset:
                return found
        return None

    async def _headers(self, offset: Offset) -> AsyncIterator[LocatedHeader]:
        """Yield the batches from one at or before ``offset`` on, each in its place."""
        last_offset, position = await self._floor_of(offset)
        order = self._order(self.metadata.start_offset, last_offset)
        while position < self._size:
            window = await self._bytes(position, _SCAN_BYTES)
            start = position
            while position - start + HEADER_BYTES <= len(window):
                header = read_header(window, position - start)
                if header.size > self._size - position:
                    raise CorruptBatch(f"the batch at {position} extends past the end")
                if order is not None:
                    order.check(header.base_offset, header.last_offset_delta, header.leader_epoch)
                yield LocatedHeader(position, header)
                position += header.size
            if position == start:
                raise CorruptBatch(f"no batch begins at {position}")

    def _order(self, first: Offset, last_offset: Offset | None = None) -> BatchOrder | None:
        """Return what checks batches from ``first`` on; None if the blocks have checksums."""
        return None if self._sums is not None else BatchOrder(self.metadata, first, last_offset)

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
        load = partial(self._load_block, start, number)
        return await reads.blocks.get((self._id, number), load)

    async def _load_block(self, start: int, number: int) -> Buffer:
        """Read a block, and compare it with its checksum if that is known."""
        block = await self._reads.store.read_log(self.metadata, start, BLOCK_BYTES)
        if self._sums is not None:
            expected = self._sums[number * SUM_BYTES : (number + 1) * SUM_BYTES]
            crc = await self._reads.worker.run(partial(crc_of, 0, block))
            if crc.to_bytes(SUM_BYTES, "big") != expected:
                raise CorruptBatch(f"the checksum of block {number} does not match")
        return block

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

    async def _floor_of(self, offset: Offset) -> tuple[Offset | None, int]:
        """Return the position of a batch at or before ``offset``, and its last offset.

        None: it is the first batch of the segment.
        """
        data = await self._index(ObjectKind.OFFSET_INDEX)
        start = self.metadata.start_offset
        relative, position = _floor(data, _OFFSET_ENTRY, offset - start)
        return (Offset(start + relative), position) if position else (None, 0)

    async def find_timestamp(
        self, timestamp: Millis, start: Offset, record_bytes_max: int
    ) -> TimestampedOffset | None:
        """Return the first record at or after both ``timestamp`` and the offset ``start``.

        Raises:
            InvalidRecord: a record before it has over ``record_bytes_max`` decompressed bytes.
        """
        return await self._sound(partial(self._find_timestamp, timestamp, start, record_bytes_max))

    async def _find_timestamp(
        self, timestamp: Millis, start: Offset, record_bytes_max: int
    ) -> TimestampedOffset | None:
        data = await self._index(ObjectKind.TIME_INDEX)
        relative = _floor(data, _TIME_ENTRY, timestamp)[1]
        first = max(start, Offset(self.metadata.start_offset + relative))
        async for found in self._headers(first):
            if found.header.max_timestamp < timestamp or found.header.last_offset < start:
                continue
            batch = await self._bytes(found.position, found.header.size)
            record = _first_record(batch, found.header, timestamp, start, record_bytes_max)
            if record is not None:
                return record
        return None

    async def aborted(self, start: Offset, upto: Offset) -> tuple[list[AbortedTxn], bool]:
        """Return aborted transactions that overlap ``[start, upto)``, and whether these are all.

        False: the following segments may have more.
        """
        found: list[AbortedTxn] = []
        data = await self._index(ObjectKind.TXN_INDEX)
        if len(data) % ENTRY_BYTES:
            key = self._reads.store.key(self.metadata, ObjectKind.TXN_INDEX)
            raise ObjectDamaged(key, f"transaction index of {len(data)} bytes")
        for txn in _transactions(data):
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
    for _, *fields in _TXN_ENTRY.iter_unpack(data):
        yield AbortedTxn(*fields)


def _whole_batches(data: Buffer, metadata: SegmentMetadata, order: BatchOrder | None) -> Buffer:
    """Return the whole batches at the start of ``data``, each with a valid CRC and in its place.

    Raises:
        CorruptBatch, UnsupportedMagic: the bytes are not what was stored.
    """
    position, size = 0, len(data)
    first, last = metadata.start_offset, metadata.end_offset
    while size - position >= HEADER_BYTES:
        base, length, epoch, magic, crc, delta = _START.unpack_from(data, position)
        if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            read_header(data, position)  # raises
        end = position + LOG_OVERHEAD_BYTES + length
        if end > size:
            break
        if not first <= base <= base + delta <= last:
            raise BatchOutOfPlace(f"offsets {base}..{base + delta}")
        if crc32c(data, position + ATTRIBUTES_AT, end) != crc:
            raise CorruptBatch(f"the CRC of the batch at offset {base} is wrong")
        if order is not None:
            order.check(base, delta, epoch)
        position = end
    return data if position == size else data[:position]


def _first_record(
    batch: Buffer, header: BatchHeader, timestamp: Millis, start: Offset, record_bytes_max: int
) -> TimestampedOffset | None:
    if not is_crc_valid(batch, 0, header):
        raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} is wrong")
    for record in iter_records(batch, size_max=record_bytes_max):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampedOffset(record.timestamp, record.offset, header.leader_epoch)
    return None
