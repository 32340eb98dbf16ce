"""The metadata of remote segments on ``__remote_log_metadata``, in Kafka's records.

Service. It connects as a client of the cluster, with the cluster's own security, creates the topic
if it is missing, and then follows the metadata partitions of the user partitions hosted here:

    bootstrap   until it succeeds: wait 250 ms, doubling up to 10 s
    follow      read the assigned partitions; each is ready once it was read up to the end that it
                had when it was assigned. The assignment is applied again every 30 s
    publish     write a record, and return once it was read back, so that all brokers see one order

Until it is active, and until a partition is ready, every call raises `MetadataNotReady`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from ottla.client.admin import NewTopic, create_topic
from ottla.client.cluster import Cluster, Refused
from ottla.client.consumer import Reader, ReaderOptions, open_reader
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.client.producer import Producer, open_producer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, ProtocolFault
from ottla.protocol.types import Offset, TopicIdPartition, TopicPartition, Uuid
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, Worker
from ottla.tiering.metadata_cache import MetadataCache
from ottla.tiering.metadata_manager import MetadataNotReady, UpdateRejected
from ottla.tiering.metadata_records import (
    TOPIC,
    RemoteLogEvent,
    decode_event,
    encode_event,
    metadata_partition,
)
from ottla.tiering.metadata_snapshot import decode_snapshot, encode_snapshot
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState, SegmentUpdate

log = logging.getLogger(__name__)

BACKOFF_S: Final = 0.25
BACKOFF_S_MAX: Final = 10.0
RECONCILE_S: Final = 30.0
READ_BACK_S: Final = 60.0
_POLL_MS: Final = 500
_QUIET_FAILURES: Final = 4
"""A cluster that starts has no leaders for a moment: so many failures, 4 s, are no news."""


def backoff_s(attempt: int) -> float:
    """Return how long to wait after failed attempt number ``attempt``, counted from 0."""
    return float(min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(attempt, 16)))


def _advice(error: Exception) -> str:
    if isinstance(error, Refused) and error.code == ErrorCode.INVALID_REPLICATION_FACTOR:
        return (
            "; nothing is copied until there are enough brokers, or until they start with a lower"
            " rlmm.config.remote.log.metadata.topic.replication.factor"
        )
    return ""


class TopicSettings(msgspec.Struct, frozen=True):
    """Kafka's ``rlmm.config.remote.log.metadata.*``; times are milliseconds."""

    partitions: int = 50
    replication_factor: int = 3
    retention_ms: int = -1
    min_insync_replicas: int = 2
    snapshot_dir: str = ""
    snapshot_interval_ms: int = 30_000


class TopicPorts(msgspec.Struct, frozen=True):
    """What it needs. ``leads`` says whether this broker leads a metadata partition."""

    connect: Callable[[], Awaitable[Cluster]]
    disk: Disk
    worker: Worker
    leads: Callable[[int], bool] = lambda partition: False


class _MetadataPartition(msgspec.Struct):
    """One metadata partition that is followed. ``end``: it is ready once read up to there."""

    position: Offset
    end: Offset
    is_stored: bool = True

    @property
    def is_ready(self) -> bool:
        """Whether everything that was there at first has been read."""
        return self.position >= self.end


class TopicMetadata:
    """Service and `RemoteLogMetadataManager` on the topic."""

    name = "remote-log-metadata"

    def __init__(self, settings: TopicSettings, ports: TopicPorts) -> None:
        self._settings = settings
        self._ports = ports
        self.is_active = False
        self.attempts = 0
        self._count = settings.partitions
        self._topic_id: Uuid | None = None
        self._producer: Producer | None = None
        self._wanted: frozenset[TopicIdPartition] = frozenset()
        self._followed: dict[int, _MetadataPartition] = {}
        self._caches: dict[TopicIdPartition, MetadataCache] = {}
        self._changed = asyncio.Event()
        self._progress = asyncio.Condition()

    # -- the manager -----------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Follow the metadata of these partitions, from the next poll on."""
        wanted = frozenset(partitions)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def assigned(self) -> list[int]:
        """Return the metadata partitions to follow, sorted: of hosted partitions, and led ones."""
        hosted = {metadata_partition(each, self._count) for each in self._wanted}
        led = {each for each in range(self._count) if self._ports.leads(each)}
        return sorted(hosted | led)

    def is_responsible(self, partition: TopicIdPartition) -> bool:
        """Say whether this broker leads the metadata of a partition, and has read it."""
        index = metadata_partition(partition, self._count)
        followed = self._followed.get(index)
        return followed is not None and followed.is_ready and self._ports.leads(index)

    def known(self) -> dict[TopicIdPartition, MetadataCache]:
        """Return all that was read."""
        return self._caches

    def cache(self, partition: TopicIdPartition) -> MetadataCache:
        """Return the segments of a partition; raises MetadataNotReady."""
        if not self.is_active:
            raise MetadataNotReady(f"{TOPIC} cannot be read yet")
        followed = self._followed.get(metadata_partition(partition, self._count))
        if followed is None or not followed.is_ready:
            raise MetadataNotReady(f"{partition}: {TOPIC} has not been read up to its end yet")
        found = self._caches.get(partition)
        if found is None:
            found = self._caches[partition] = MetadataCache()
        return found

    async def add(self, metadata: SegmentMetadata) -> None:
        """Write that a segment is being copied, and read it back."""
        cache = self.cache(metadata.partition)
        await self._publish(metadata.partition, metadata)
        if cache.get(metadata.segment_id.id) is None:
            raise UpdateRejected(f"{metadata.segment_id}: known already")

    async def update(self, update: SegmentUpdate) -> None:
        """Write a new state of a segment, and read it back."""
        partition, segment = update.segment_id
        cache = self.cache(partition)
        await self._publish(partition, update)
        found = cache.get(segment)
        state = SegmentState.DELETE_SEGMENT_FINISHED if found is None else found.state
        if state is not update.state:
            raise UpdateRejected(f"{update.segment_id}: cannot become {update.state.name}")

    async def _publish(self, partition: TopicIdPartition, event: RemoteLogEvent) -> None:
        index, producer = metadata_partition(partition, self._count), self._producer
        if producer is None:
            raise MetadataNotReady(f"{TOPIC} cannot be written now")
        try:
            async with asyncio.timeout(READ_BACK_S):
                report = await producer.send(TOPIC, encode_event(event), partition=index)
                written = (await report).offset
                async with self._progress:
                    await self._progress.wait_for(lambda: self._has_read(index, written))
        except (OSError, Refused, Fault) as error:
            raise MetadataNotReady(f"{TOPIC}-{index}: {error!r}") from error

    def _has_read(self, index: int, offset: int) -> bool:
        followed = self._followed.get(index)
        return followed is not None and followed.position > offset

    # -- the service -----------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Bootstrap, then follow the topic; begin again if the cluster is lost."""
        ready()
        failures = 0
        while True:
            self.attempts += 1
            try:
                async with await self._ports.connect() as cluster:
                    await self._bootstrap(cluster)
                    failures = 0
                    await self._follow(cluster)
            except (OSError, Refused, Fault) as error:
                self.is_active, self._producer = False, None
                level = logging.INFO if failures < _QUIET_FAILURES else logging.WARNING
                log.log(level, "remote log metadata not available attempt=%d reason=%s%s",
                        self.attempts, error, _advice(error))  # fmt: skip
            await asyncio.sleep(backoff_s(failures))
            failures += 1

    async def _bootstrap(self, cluster: Cluster) -> None:
        """Find the topic, or create it."""
        try:
            known = await cluster.topic(TOPIC)
        except Refused as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            await self._create(cluster)
            cluster.forget(TOPIC)
            known = await cluster.topic(TOPIC)
        self._count, self._topic_id = len(known.partitions), known.topic_id

    async def _create(self, cluster: Cluster) -> None:
        settings = self._settings
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(settings.retention_ms),
            "remote.storage.enable": "false",
            "min.insync.replicas": str(settings.min_insync_replicas),
        }
        topic = NewTopic(TOPIC, settings.partitions, settings.replication_factor, configs)
        try:
            await create_topic(cluster, topic)
        except Refused as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _follow(self, cluster: Cluster) -> None:
        self._followed.clear()
        self._caches.clear()
        try:
            async with open_producer(cluster) as producer:
                self._producer = producer
                while True:
                    await self._reconcile(cluster)
                    self.is_active = True
                    positions = {
                        TopicPartition(TOPIC, index): each.position
                        for index, each in self._followed.items()
                    }
                    options = ReaderOptions(is_committed_only=False, wait_ms_max=_POLL_MS)
                    async with open_reader(cluster, positions, options) as reader:
                        await self._read(reader)
        finally:
            self.is_active, self._producer = False, None

    async def _reconcile(self, cluster: Cluster) -> None:
        """Follow the assigned partitions, and no others."""
        self._changed.clear()
        assigned = self.assigned()
        for gone in [index for index in self._followed if index not in assigned]:
            del self._followed[gone]
            for at in [at for at in self._caches if metadata_partition(at, self._count) == gone]:
                del self._caches[at]
        new = [index for index in assigned if index not in self._followed]
        if not new:
            return
        places = {index: TopicPartition(TOPIC, index) for index in new}
        ends = await list_offsets(cluster, dict.fromkeys(places.values(), LATEST))
        starts = await list_offsets(cluster, dict.fromkeys(places.values(), EARLIEST))
        for index, place in places.items():
            start, end = starts[place] or Offset(0), ends[place] or Offset(0)
            self._followed[index] = _MetadataPartition(self._load(index, start, end), end)

    async def _read(self, reader: Reader) -> None:
        """Read until the assignment changes, or is to be applied again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + RECONCILE_S
        stored_at = loop.time()
        while not self._changed.is_set() and loop.time() < until:
            if not self._followed:
                await asyncio.sleep(_POLL_MS / 1000)
                continue
            for fetched in await reader.poll():
                followed = self._followed[fetched.partition.partition]
                for record in fetched.records():
                    self._apply(record.value)
                    followed.is_stored = False
                followed.position = fetched.next_offset
            async with self._progress:
                self._progress.notify_all()
            if loop.time() - stored_at >= self._settings.snapshot_interval_ms / 1000:
                await self._store()
                stored_at = loop.time()

    def _apply(self, value: bytes | None) -> None:
        if value is None:
            return
        try:
            event = decode_event(value)
        except (ProtocolFault, ValueError) as error:
            log.warning("record of %s ignored reason=%s", TOPIC, error)
            return
        if isinstance(event, SegmentMetadata):
            self._caches.setdefault(event.partition, MetadataCache()).add(event)
        elif isinstance(event, SegmentUpdate):
            cache = self._caches.get(event.segment_id.partition)
            if cache is None or not cache.update(event):
                log.info("update of a remote segment dropped segment=%s state=%s",
                         event.segment_id, event.state.name)  # fmt: skip

    # -- snapshots -------------------------------------------------------------------

    def _path(self, index: int) -> str:
        return f"{self._settings.snapshot_dir}/{index}.snapshot"

    def _load(self, index: int, start: Offset, end: Offset) -> Offset:
        """Load the snapshot of a partition; return where to read on."""
        if not self._settings.snapshot_dir or self._topic_id is None:
            return start
        data = read_file(self._ports.disk, self._path(index))
        found = None if data is None else decode_snapshot(data, self._topic_id)
        if found is None or not start <= found.offset <= end:
            return start
        for segment in found.segments:
            self._caches.setdefault(segment.partition, MetadataCache()).load(segment)
        return found.offset

    async def _store(self) -> None:
        """Write the snapshots of the partitions that have changed, off the event loop."""
        if not self._settings.snapshot_dir or self._topic_id is None:
            return
        for index, followed in list(self._followed.items()):
            if followed.is_stored or not followed.is_ready:
                continue
            segments = [
                segment
                for at, cache in self._caches.items()
                if metadata_partition(at, self._count) == index
                for segment in cache.all()
            ]
            data = encode_snapshot(self._topic_id, followed.position, segments)
            followed.is_stored = True
            await self._ports.worker.run(partial(self._write, index, data))

    def _write(self, index: int, data: bytes) -> None:
        self._ports.disk.make_dirs(self._settings.snapshot_dir)
        replace_file(self._ports.disk, self._path(index), data)
