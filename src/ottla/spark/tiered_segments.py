"""Reads remote segments (KIP-405) straight from their store: a directory or a bucket.

The store alone says which segments are complete (`tiering/manifest.py`); the leader alone says
which of them belong to its log:

- A segment counts if the last of its leader epochs is one of the leader's, and reaches the end of
  the segment there. Others are of a history that the log no longer has.
- A segment was copied when all its transactions had ended, but their markers may be in later ones.
  For read_committed, segments are followed until a producer snapshot has no transaction that
  began before the end of the read. If there are no more, the read ends at the first such
  transaction: the leader knows how it ended.

Memory: one block that is decoded and one that is read ahead, and the indexes of one segment.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from struct import Struct
from typing import Final, NamedTuple

from ottla.client.fetched import Chunk
from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, is_crc_valid, read_header
from ottla.protocol.types import Buffer, Offset, TopicIdPartition
from ottla.protocol.uuids import uuid_text
from ottla.runtime.blocking import LoopThread
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.worker import InlineWorker
from ottla.storage.log.producer_snapshot_format import CorruptSnapshot
from ottla.storage.log.producer_snapshot_format import decode as decode_producers
from ottla.storage.log.transaction_index import ENTRY_BYTES, AbortedTxn
from ottla.tiering.batch_order import BatchOrder, BatchOutOfPlace
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_objects import ObjectKind, parse_key
from ottla.tiering.segment_store import ObjectDamaged, SegmentStore, StorePorts
from ottla.tiering.store_settings import StoreSettings, open_store

BLOCK_BYTES: Final = 8 << 20
_MANIFESTS_MAX: Final = 16
"""How many segments that begin at or before an offset are tried; more mean a gap."""
_FOLLOWED_MAX: Final = 64
"""How many segments are searched for the end of a transaction."""
_OFFSET_ENTRY: Final = Struct(">ii")
_TXN_ENTRY: Final = Struct(">hqqqq")


class ListedSegment(NamedTuple):
    """A segment that has a manifest."""

    start_offset: int
    manifest: str


class TieredStore:
    """A store with remote segments, for blocking readers. All methods raise RemoteStorageFailed."""

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self._loop = LoopThread("ottla-tier")
        ports = StorePorts(open_store(settings), RealDisk(), InlineWorker(), SystemRandom())
        self._store = SegmentStore(ports, settings.prefix)

    def close(self) -> None:
        """End the thread of the requests."""
        self._loop.close()

    def list(self, at: TopicIdPartition) -> list[ListedSegment]:
        """Return the complete segments of a partition, by start offset."""
        prefix = f"{uuid_text(at.topic_id)}/{at.partition}"
        if self._store.prefix:
            prefix = f"{self._store.prefix}/{prefix}"
        keys = self._loop.run(self._store.list_keys(prefix))
        found = [(parse_key(key), key) for key in keys]
        return sorted(
            ListedSegment(parsed[0], key)
            for parsed, key in found
            if parsed is not None and parsed[2] is ObjectKind.MANIFEST
        )

    def manifest(self, listed: ListedSegment) -> SegmentMetadata:
        """Return what the manifest of a segment says."""
        return self._loop.run(self._store.read_manifest(listed.manifest))

    def read(self, metadata: SegmentMetadata, kind: ObjectKind) -> bytes:
        """Return an index or snapshot; empty if the segment has none."""
        if not self._store.size(metadata, kind):
            return b""
        return self._loop.run(self._store.read(metadata, kind))

    def begin_block(self, metadata: SegmentMetadata, start: int, length: int) -> "Future[Buffer]":
        """Start to read batches; the future has fewer bytes only at the end."""
        return self._loop.begin(self._store.read_log(metadata, start, length))

    def verify_batches(self, metadata: SegmentMetadata) -> None:
        """Compare all batches of a segment with their checksum. Raises `ObjectDamaged`."""
        self._loop.run(self._store.block_sums(metadata, BLOCK_BYTES))

    def key(self, metadata: SegmentMetadata, kind: ObjectKind = ObjectKind.LOG) -> str:
        """Return the key of an object, for errors."""
        return self._store.key(metadata, kind)

    def log_bytes(self, metadata: SegmentMetadata) -> int:
        """Return the size of the batches of a segment."""
        return self._store.size(metadata, ObjectKind.LOG)


_stores: dict[tuple[object, ...], TieredStore] = {}
_stores_lock = threading.Lock()


def store_for(settings: StoreSettings) -> TieredStore:
    """Return this process's store for ``settings``; a forked worker gets its own.

    Raises:
        ImportError: the extra ``objects`` is not installed.
    """
    options = tuple(sorted(settings.options.items()))
    key = (os.getpid(), settings.name, options, settings.allow_http)
    with _stores_lock:
        if key not in _stores:
            _stores[key] = TieredStore(settings)
        return _stores[key]


class TieredLog:
    """The remote segments of one partition, as listed now.

    ``is_own`` says whether a segment belongs to the leader's log.
    """

    def __init__(
        self,
        store: TieredStore,
        listed: list[ListedSegment],
        is_own: Callable[[SegmentMetadata], bool],
    ) -> None:
        self._store = store
        self._listed = listed
        self._is_own = is_own

    def read(self, start: int, end: int, *, committed: bool) -> Generator[Chunk, None, int]:
        """Yield the part of ``[start, end)`` in remote storage; return the end of that part.

        Ends early where a segment is missing, or where the leader has to be asked.

        Raises:
            RemoteStorageFailed: the store cannot be read, or an object is missing or changed.
        """
        position = start
        while position < end:
            segment = self._find(position)
            if segment is None:
                break
            upto, aborted = min(end, segment.end_offset + 1), list[AbortedTxn]()
            if committed:
                aborted, upto = self._aborted(segment, position, upto)
            if upto <= position:
                break
            yield from _chunks(self._store, segment, (position, upto), aborted)
            position = upto
        return position

    def _find(self, offset: int) -> SegmentMetadata | None:
        """Return the segment of the leader's log that holds ``offset``."""
        at = bisect_right(self._listed, offset, key=lambda each: each.start_offset)
        for listed in reversed(self._listed[max(0, at - _MANIFESTS_MAX) : at]):
            metadata = self._store.manifest(listed)
            if metadata.end_offset >= offset and self._is_own(metadata):
                return metadata
        return None

    def _aborted(
        self, first: SegmentMetadata, start: int, upto: int
    ) -> tuple[list[AbortedTxn], int]:
        """Return the aborted transactions of ``[start, upto)``, and up to where they are known."""
        found: dict[AbortedTxn, None] = {}
        segment: SegmentMetadata | None = first
        still_open: list[int] = []
        for _ in range(_FOLLOWED_MAX):
            if segment is None:
                break
            for txn in _transactions(self._store, segment):
                if txn.last_offset >= start and txn.first_offset < upto:
                    found[txn] = None
            still_open = [each for each in self._open_after(segment) if each < upto]
            if not still_open:
                break
            segment = self._find(segment.end_offset + 1)
        return list(found), min([upto, *still_open])

    def _open_after(self, segment: SegmentMetadata) -> list[int]:
        """Return where the transactions began that were open at the end of a segment."""
        try:
            producers = decode_producers(self._store.read(segment, ObjectKind.SNAPSHOT))
        except CorruptSnapshot as error:
            key = self._store.key(segment, ObjectKind.SNAPSHOT)
            raise ObjectDamaged(key, str(error)) from error
        return [each.txn_first_offset for each in producers if each.txn_first_offset >= 0]


def _chunks(
    store: TieredStore, segment: SegmentMetadata, span: tuple[int, int], aborted: list[AbortedTxn]
) -> Iterator[Chunk]:
    """Yield the batches of ``span`` in one segment, one block ahead."""
    start, upto = span
    checked = _Checked(store, segment, start)
    at, size, rest = checked.position, store.log_bytes(segment), b""
    reading = store.begin_block(segment, at, BLOCK_BYTES)
    try:
        while at < size:
            block = reading.result()
            at += len(block)
            reading = store.begin_block(segment, at, BLOCK_BYTES)
            data = rest + block if rest else block
            whole = checked.whole_batches(data, at - len(data), upto)
            if whole.data:
                yield chunk_of(whole.data, aborted)
            if whole.is_last:
                return
            rest = bytes(whole.rest)
    finally:
        reading.cancel()
    if rest:
        raise ObjectDamaged(store.key(segment), "the last batch is incomplete")


class _Whole(NamedTuple):
    """The whole batches at the start of some bytes, and the bytes after them.

    ``is_last``: the next batch begins at or after the end of the read. ``next_offset`` is the end
    of the last whole batch.
    """

    data: memoryview
    rest: memoryview
    is_last: bool
    next_offset: Offset | None


class _Checked:
    """Finds the batches of one segment, from the index position of ``start`` on.

    Each has a valid CRC and is in its place (`tiering/batch_order.py`). Once the whole object was
    compared with its checksum, it may have gaps.
    """

    def __init__(self, store: TieredStore, segment: SegmentMetadata, start: int) -> None:
        self._store = store
        self._segment = segment
        self._last_offset, self.position = _floor_of(store, segment, start)
        self._next = segment.start_offset
        self._may_have_gaps = False

    def whole_batches(self, data: Buffer, at: int, upto: int) -> _Whole:
        """Return the whole batches of ``data``, the bytes at the position ``at``.

        Bytes that are not what was stored are read again.
        """
        try:
            return self._find(data, upto)
        except (CorruptBatch, UnsupportedMagic):
            data = self._store.begin_block(self._segment, at, len(data)).result()
        try:
            return self._find(data, upto)
        except BatchOutOfPlace:
            self._store.verify_batches(self._segment)
            self._may_have_gaps = True
            data = self._store.begin_block(self._segment, at, len(data)).result()
        except (CorruptBatch, UnsupportedMagic) as error:
            raise ObjectDamaged(self._store.key(self._segment), str(error)) from error
        try:
            return self._find(data, upto)
        except (CorruptBatch, UnsupportedMagic) as error:
            raise ObjectDamaged(self._store.key(self._segment), str(error)) from error

    def _find(self, data: Buffer, upto: int) -> _Whole:
        order = None
        if not self._may_have_gaps:
            order = BatchOrder(self._segment, self._next, self._last_offset)
        whole = _whole_batches(data, self._segment, upto, order)
        if whole.next_offset is not None:
            self._next, self._last_offset = whole.next_offset, None
        return whole


def _whole_batches(
    data: Buffer, segment: SegmentMetadata, upto: int, order: BatchOrder | None
) -> _Whole:
    """Find the whole batches that begin before ``upto``.

    Raises:
        CorruptBatch, UnsupportedMagic: the bytes are not batches of the segment.
    """
    view, position, is_last, end = memoryview(data), 0, False, None
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        if order is not None:
            order.check(header.base_offset, header.last_offset_delta, header.leader_epoch)
        if header.base_offset >= upto:
            is_last = True
            break
        if not segment.start_offset <= header.base_offset <= header.last_offset:
            raise BatchOutOfPlace(f"offsets {header.base_offset}..{header.last_offset}")
        if header.last_offset > segment.end_offset:
            raise BatchOutOfPlace(f"offset {header.last_offset} after {segment.end_offset}")
        if header.size > len(data) - position:
            break
        if not is_crc_valid(data, position, header):
            raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} is wrong")
        position += header.size
        end = header.next_offset
    return _Whole(view[:position], view[position:], is_last, end)


def _floor_of(
    store: TieredStore, segment: SegmentMetadata, offset: int
) -> tuple[Offset | None, int]:
    """Return the position of a batch at or before ``offset``, and its last offset.

    None: it is the first batch of the segment.
    """
    data, relative = store.read(segment, ObjectKind.OFFSET_INDEX), offset - segment.start_offset
    entries = range(len(data) // _OFFSET_ENTRY.size)

    def entry(index: int) -> tuple[int, int]:
        first, second = _OFFSET_ENTRY.unpack_from(data, index * _OFFSET_ENTRY.size)
        return first, second

    place = bisect_right(entries, relative, key=lambda index: entry(index)[0])
    if not place:
        return None, 0
    last, position = entry(place - 1)
    return Offset(segment.start_offset + last), position


def _transactions(store: TieredStore, segment: SegmentMetadata) -> Iterator[AbortedTxn]:
    data = store.read(segment, ObjectKind.TXN_INDEX)
    if len(data) % ENTRY_BYTES:
        key = store.key(segment, ObjectKind.TXN_INDEX)
        raise ObjectDamaged(key, f"transaction index of {len(data)} bytes")
    for _, *fields in _TXN_ENTRY.iter_unpack(data):
        yield AbortedTxn(*fields)


def chunk_of(data: memoryview, aborted: list[AbortedTxn]) -> Chunk:
    """Return a chunk with the transactions whose end marker is not before it."""
    first = read_header(data).base_offset
    return Chunk(
        data,
        tuple(
            (each.producer_id, each.first_offset) for each in aborted if each.last_offset >= first
        ),
    )
