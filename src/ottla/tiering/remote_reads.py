"""Fetches and lookups below the local log start, from remote storage.

Service: reads are tasks of it, at most ``remote.log.reader.threads`` at a time, and at most
``remote.log.reader.max.pending.tasks`` in all; further ones are rejected. A fetch that does not
wait any longer leaves its read running, so that the next fetch finds the blocks.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import msgspec

from ottla.protocol.faults import OffsetOutOfRange
from ottla.protocol.records.batch import read_header
from ottla.protocol.types import Buffer, Millis, Offset, TopicIdPartition, Uuid
from ottla.quotas.replication_throttle import Allowance
from ottla.runtime.ports import Clock
from ottla.storage.log.log import Log
from ottla.storage.log.read import RemoteRecords, TimestampedOffset
from ottla.storage.log.transaction_index import AbortedTxn
from ottla.tiering.damaged_objects import DamagedObject, DamagedObjects
from ottla.tiering.lineage import epochs_with_records, is_within_lineage
from ottla.tiering.metadata_manager import MetadataNotReady, RemoteLogMetadataManager, find_segment
from ottla.tiering.read_cache import INDEX_BYTES_MAX
from ottla.tiering.remote_segment import RemoteSegment, SegmentReads
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import ObjectChanged, ObjectDamaged, RemoteStorageFailed

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class ReadablePartition(Protocol):
    """A hosted partition whose older part is in remote storage."""

    topic_id: Uuid
    index: int
    log: Log


class RemoteReadSettings(msgspec.Struct, frozen=True):
    """``remote.log.reader.threads`` and ``remote.log.reader.max.pending.tasks``."""

    readers: int = 10
    pending_max: int = 100


class RemoteReads:
    """Service: reads remote segments for clients."""

    name = "remote-reads"

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        reads: SegmentReads,
        clock: Clock,
        settings: RemoteReadSettings | None = None,
    ) -> None:
        self._metadata = metadata
        self._reads = reads
        self._clock = clock
        self._settings = settings or RemoteReadSettings()
        self.readers = self._settings.readers
        self._running = asyncio.Semaphore(self.readers)
        self._tasks: asyncio.TaskGroup | None = None
        self._pending = 0
        self.fetch_quota = Allowance()
        self.fetch_wait_ms = 500
        self.lookup_wait_ms = 30_000
        self.fetched_bytes = 0
        self.fetches = 0
        self.failures = 0
        self._damaged = DamagedObjects()

    async def run(self, ready: Callable[[], None]) -> None:
        """Own the reads until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            ready()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    def limit_indexes(self, bytes_max: int) -> None:
        """Bound the cache of indexes; it is in memory, so never above `INDEX_BYTES_MAX`."""
        self._reads.indexes.bytes_max = min(bytes_max, INDEX_BYTES_MAX)

    @property
    def index_bytes_max(self) -> int:
        """The bound of the cache of indexes."""
        return self._reads.indexes.bytes_max

    def resize(self, readers: int) -> None:
        """Change how many reads run at once; those in progress go on."""
        if readers != self.readers:
            self.readers, self._running = readers, asyncio.Semaphore(readers)

    # -- reads ---------------------------------------------------------------------

    @property
    def is_throttled(self) -> bool:
        """Whether the fetch quota is exceeded: a fetch then gets nothing from remote storage."""
        return self.fetch_quota.is_exceeded(self._clock.monotonic())

    def fetch(
        self, partition: ReadablePartition, offset: Offset, bytes_max: int, *, is_committed: bool
    ) -> "asyncio.Future[RemoteRecords]":
        """Begin to read batches from ``offset`` on; at least one.

        The future raises OffsetOutOfRange: not in remote storage. RemoteStorageFailed,
        MetadataNotReady: try again. Cancelling it does not end the read.
        """
        return self._begin(self._fetch(partition, offset, bytes_max, is_committed))

    def find_timestamp(
        self, partition: ReadablePartition, timestamp: Millis
    ) -> "asyncio.Future[TimestampedOffset | None]":
        """Begin to look for the first record at or after ``timestamp``; None if it is not there."""
        return self._begin(self._find_timestamp(partition, timestamp))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Future[Result]":
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._tasks is None or self._pending >= self._settings.pending_max:
            work.close()
            result.set_exception(RemoteStorageFailed("too many remote reads are waiting"))
            return result
        self._pending += 1
        self._tasks.create_task(self._run(work, result), name="remote read")
        return result

    async def _run(
        self, work: Coroutine[Any, Any, Result], result: "asyncio.Future[Result]"
    ) -> None:
        try:
            async with self._running:
                found = await work
            if not result.done():
                result.set_result(found)
        except Exception as error:  # noqa: BLE001 - the future carries it
            self.failures += 1
            if not result.done():
                result.set_exception(error)
        finally:
            work.close()
            self._pending -= 1
            if not result.done():
                result.cancel()

    async def _fetch(
        self, partition: ReadablePartition, offset: Offset, bytes_max: int, is_committed: bool
    ) -> RemoteRecords:
        log, at = partition.log, _place(partition)
        metadata = find_segment(self._metadata, at, log.epochs.epoch_for_offset(offset), offset)
        while metadata is not None:
            segment = RemoteSegment(metadata, self._reads)
            with self._noting_damage(metadata):
                data = await segment.read(offset, bytes_max, minimum_one=True)
                aborted = None
                if data and is_committed:
                    upto = _end_of(data)
                    aborted = await self._aborted(partition, metadata, offset, upto)
            if data:
                self._count(len(data))
                self._read_ahead(segment, partition)
                return RemoteRecords(data, aborted)
            metadata = self._following(log, at, metadata)
        raise OffsetOutOfRange(f"{at}: offset {offset} is not in remote storage")

    # -- damage --------------------------------------------------------------------

    @property
    def damaged(self) -> list[DamagedObject]:
        """The objects that could not be read lately, of segments that are still needed."""
        current = self._damaged.current(self._clock.monotonic())
        return [each for each in current if self._is_needed(each.metadata)]

    @contextmanager
    def _noting_damage(self, metadata: SegmentMetadata) -> Iterator[None]:
        """Read a segment: an object that is missing or changed is logged, and shown as damaged.

        An object that was read whole a moment ago is not read again.
        """
        key = self._reads.store.key(metadata, ObjectKind.LOG)
        problem = self._damaged.changed(key, self._clock.monotonic())
        if problem is not None:
            raise ObjectDamaged(key, problem)
        try:
            yield
        except ObjectDamaged as damage:
            if self._is_needed(metadata):  # else it was deleted meanwhile
                self._note_damage(damage, metadata)
            raise

    def _note_damage(self, damage: ObjectDamaged, metadata: SegmentMetadata) -> None:
        now, is_changed = self._clock.monotonic(), isinstance(damage, ObjectChanged)
        failed = DamagedObject(damage.key, damage.problem, metadata, now, now, is_changed)
        if self._damaged.note(failed):
            log.error(
                "%s-%d: an object in remote storage cannot be read, fetches of offsets %d to %d"
                " fail: %s; restore it, or see `ottla tier verify`",
                metadata.topic,
                metadata.partition.partition,
                metadata.start_offset,
                metadata.end_offset,
                damage,
            )

    def _is_needed(self, metadata: SegmentMetadata) -> bool:
        """Say whether the metadata still has a segment as readable."""
        try:
            known = self._metadata.cache(metadata.partition).get(metadata.segment_id.id)
        except MetadataNotReady:
            return False
        return known is not None and known.state is SegmentState.COPY_SEGMENT_FINISHED

    def _count(self, size: int) -> None:
        self.fetches += 1
        self.fetched_bytes += size
        self.fetch_quota.spend(size, self._clock.monotonic())

    def _read_ahead(self, segment: RemoteSegment, partition: ReadablePartition) -> None:
        """Load the next block in the background, if there is room for another read.

        After the last block of a segment it is the first one of the following segment, unless
        that is on this disk as well.
        """
        if self._pending * 2 >= self._settings.pending_max:
            return
        number = segment.next_block()
        if number is None:
            following = self._following_remote(partition, segment.metadata)
            if following is None:
                return
            segment, number = RemoteSegment(following, self._reads), 0
        if not segment.has_block(number):
            self._begin(segment.read_ahead(number)).add_done_callback(_ignore)

    def _following_remote(
        self, partition: ReadablePartition, metadata: SegmentMetadata
    ) -> SegmentMetadata | None:
        log = partition.log
        if metadata.end_offset + 1 >= log.local_log_start_offset:
            return None
        with suppress(MetadataNotReady):
            return self._following(log, _place(partition), metadata)
        return None

    def _following(
        self, log: Log, at: TopicIdPartition, metadata: SegmentMetadata
    ) -> SegmentMetadata | None:
        """Return the remote segment after one, by the epochs of the log."""
        offset = Offset(metadata.end_offset + 1)
        return find_segment(self._metadata, at, log.epochs.epoch_for_offset(offset), offset)

    async def _aborted(
        self, partition: ReadablePartition, first: SegmentMetadata, start: Offset, upto: Offset
    ) -> list[AbortedTxn]:
        """Return the aborted transactions of a read; their markers may be in later segments.

        The rest of the log is on this disk, from the first segment that is not in remote storage.
        """
        log, at = partition.log, _place(partition)
        found: list[AbortedTxn] = []
        metadata: SegmentMetadata | None = first
        reached = first.start_offset
        while metadata is not None:
            aborted, is_complete = await RemoteSegment(metadata, self._reads).aborted(start, upto)
            found += aborted
            if is_complete:
                return found
            reached = Offset(metadata.end_offset + 1)
            metadata = self._following(log, at, metadata)
        known = set(found)
        local = log.collect_aborted(max(reached, log.local_log_start_offset), upto)
        # A transaction that began before `reached` and ended after it overlaps `upto`, too.
        return found + [txn for txn in local if txn not in known and txn.first_offset < upto]

    async def _find_timestamp(
        self, partition: ReadablePartition, timestamp: Millis
    ) -> TimestampedOffset | None:
        log, at = partition.log, _place(partition)
        start = log.log_start_offset
        for metadata in self._own_segments(log, at):
            if metadata.max_timestamp < timestamp or metadata.end_offset < start:
                continue
            with self._noting_damage(metadata):
                segment = RemoteSegment(metadata, self._reads)
                size_max = log.config.max_decompressed_message_bytes
                found = await segment.find_timestamp(timestamp, start, size_max)
            if found is not None:
                return found
        return None

    def _own_segments(self, log: Log, at: TopicIdPartition) -> list[SegmentMetadata]:
        """Return the readable segments of the log's own history that begin before its local part.

        Raises:
            MetadataNotReady
        """
        cache, lineage = self._metadata.cache(at), epochs_with_records(log.epochs.entries)
        found = {
            each.segment_id: each
            for epoch in lineage
            for each in cache.of_epoch(epoch)
            if each.state is SegmentState.COPY_SEGMENT_FINISHED
            and each.start_offset < log.local_log_start_offset
            and is_within_lineage(each, log.log_end_offset, lineage)
        }
        return sorted(found.values(), key=lambda each: each.start_offset)


def _place(partition: ReadablePartition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id, partition.index)


def _end_of(data: Buffer) -> Offset:
    """Return the offset after the last batch of ``data``, which holds whole batches."""
    position, end = 0, Offset(0)
    while position < len(data):
        header = read_header(data, position)
        position, end = position + header.size, header.next_offset
    return end


def _ignore(done: "asyncio.Future[None]") -> None:
    """Retrieve the exception of reading ahead: a reader that needs the block finds out."""
    if not done.cancelled():
        done.exception()
