"""A log of some segments, an object store that fails on demand, and brokers that copy to it."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.patience import SECONDS_MAX

from ottla.metadata.image import EMPTY, Image
from ottla.protocol.faults import OffsetOutOfRange, StorageFailed
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import NewObject, ObjectMeta, ObjectStore
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import InlineWorker
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.tiering.metadata_manager import InMemoryMetadata
from ottla.tiering.read_cache import ReadCache
from ottla.tiering.remote_log_manager import (
    ManagerPorts,
    ManagerSettings,
    RemoteLogManager,
)
from ottla.tiering.remote_reads import RemoteReads
from ottla.tiering.remote_segment import SegmentReads
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState, SegmentUpdate
from ottla.tiering.segment_objects import ObjectKind, object_key
from ottla.tiering.segment_store import SegmentStore, StorePorts

TOPIC_ID = Uuid(bytes(range(16)))
AT = TopicIdPartition(TOPIC_ID, 0)
CONFIG = LogConfig(
    segment_bytes=2000, is_tiered=True, retention_ms=-1, local_retention_bytes=1,
    file_delete_delay_ms=0,
    index_interval_bytes=300,
)  # fmt: skip


class Crash(Exception):
    """The process ends here."""


class Steps:
    """Counts the steps of copying and deleting; crashes before or after one of them."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.count = 0
        self.crash_at = crash_at

    def before(self) -> None:
        if self.count == self.crash_at:
            raise Crash
        self.count += 1

    def after(self) -> None:
        if self.count == self.crash_at:
            raise Crash
        self.count += 1


class Objects:
    """An object store in memory. ``fault`` may raise, ``spoil`` change what a get returns."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.steps = Steps()
        self.fault: Callable[[str, str], None] = lambda request, key: None
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self.spoils = ""  # only objects whose key ends with this
        self.hold: asyncio.Event | None = None

    async def put(self, key: str, data: Buffer) -> None:
        await asyncio.sleep(0)
        self.fault("put", key)
        self.steps.before()
        if self.hold is not None:
            await self.hold.wait()
        self.stored[key] = bytes(data)
        self.steps.after()

    async def put_file(self, key: str, path: str) -> None:
        await self.put(key, Path(path).read_bytes())  # noqa: ASYNC240 - a few kilobytes

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await asyncio.sleep(0)
        self.fault("get", key)
        if key not in self.stored:
            raise FileNotFoundError(errno.ENOENT, "no such object", key)
        part = self.stored[key][start : start + length]
        return self.spoil(part) if key.endswith(self.spoils) else part

    async def head(self, key: str) -> ObjectMeta:
        self.fault("head", key)
        if key not in self.stored:
            raise FileNotFoundError(errno.ENOENT, "no such object", key)
        return ObjectMeta(key, len(self.stored[key]))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        for key in sorted(self.stored):
            yield ObjectMeta(key, len(self.stored[key]))

    async def delete(self, key: str) -> None:
        self.fault("delete", key)
        self.steps.before()
        self.stored.pop(key, None)
        self.steps.after()


def contents_of(new: NewObject) -> bytes:
    return new.data if new.path is None else Path(new.path).read_bytes()


class GroupedObjects(Objects):
    """A store with groups, as a directory is.

    A crash while a group is written leaves nothing of it; one while the objects get their names
    leaves some. ``is_reversed``: the last ones; a power cut may keep later names and lose earlier.
    """

    def __init__(self, *, is_reversed: bool = False) -> None:
        super().__init__()
        self.is_reversed = is_reversed
        self.groups: list[list[str]] = []

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        await asyncio.sleep(0)
        written: dict[str, bytes] = {}
        for each in objects:
            self.fault("put", each.key)
            self.steps.before()
            written[each.key] = contents_of(each)
        self.groups.append(list(written))
        if self.hold is not None:
            await self.hold.wait()
        for key in reversed(written) if self.is_reversed else written:
            self.stored[key] = written[key]
            self.steps.after()


class Metadata(InMemoryMetadata):
    """The metadata that all brokers share, with the same steps."""

    def __init__(self, steps: Callable[[], Steps]) -> None:
        super().__init__()
        self._steps = steps

    async def add(self, metadata: SegmentMetadata) -> None:
        self._steps().before()
        await super().add(metadata)
        self._steps().after()

    async def update(self, update: SegmentUpdate) -> None:
        self._steps().before()
        await super().update(update)
        self._steps().after()


class Replica:
    """A hosted partition."""

    topic, index, topic_id = "t", 0, TOPIC_ID
    offline: StorageFailed | None = None

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_leader = True
        self.leader_epoch = LeaderEpoch(0)

    def log_trimmed(self) -> None:
        """Nobody waits."""


class Tier:
    """A log of some segments, a store, and brokers that may lead it."""

    def __init__(
        self,
        root: Path,
        records: int = 60,
        objects: ObjectStore | None = None,
        memory: Objects | None = None,
    ) -> None:
        self.clock = SystemClock()
        self.log = Log.open(RealDisk(), str(root / "t-0"), CONFIG, clock=self.clock)
        for number in range(records):
            record = Record(Offset(0), Millis(1000 + number), None, b"%04d" % number * 40)
            batch = bytearray(build_batch([record]))
            self.log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(5))
        self.log.set_high_watermark(self.log.log_end_offset)
        self.bytes = b"".join(Path(each.path).read_bytes() for each in self.log.segments)
        self.objects = memory or Objects()
        self.metadata = Metadata(lambda: self.objects.steps)
        ports = StorePorts(objects or self.objects, RealDisk(), InlineWorker(), SystemRandom())
        self.store = SegmentStore(ports)
        self.hurried: list[bool] = []
        """What the brokers asked for, in each round."""

    def append(self, count: int, epoch: int) -> None:
        """Write records of another leader epoch."""
        for number in range(count):
            record = Record(Offset(0), Millis(5000 + number), None, b"new%d" % epoch * 40)
            batch = bytearray(build_batch([record]))
            self.log.append_as_leader(batch, leader_epoch=LeaderEpoch(epoch), now=Millis(5))
        self.log.set_high_watermark(self.log.log_end_offset)

    def broker(self, node_id: int, replica: Replica, abandoned_ms: int = 0) -> RemoteLogManager:
        return self.broker_of(node_id, lambda: [replica], abandoned_ms=abandoned_ms)

    def broker_of(
        self,
        node_id: int,
        hosted: Callable[[], list[Replica]],
        image: Callable[[], Image] = lambda: EMPTY,
        abandoned_ms: int = 0,
    ) -> RemoteLogManager:
        clock = TrustedClock.of(self.clock)
        ports = ManagerPorts(clock, SystemRandom(), hosted, image, hurry=self.hurried.append)
        settings = ManagerSettings(
            NodeId(node_id), 1, backoff_ms=1, backoff_ms_max=1, abandoned_ms=abandoned_ms
        )
        return RemoteLogManager(settings, ports, self.store, self.metadata)

    @property
    def sealed_end(self) -> int:
        return self.log.segments[-1].base_offset

    def check_nothing_is_orphaned(self) -> None:
        """Every object belongs to a finished segment, and each of those is complete."""
        segments = self.metadata.cache(AT).all()
        assert {each.state for each in segments} <= {SegmentState.COPY_SEGMENT_FINISHED}
        keys = {object_key("", each, kind) for each in segments for kind in ObjectKind}
        assert set(self.objects.stored) <= keys
        for each in segments:
            asyncio.run(self.store.verify(each))


async def lead(
    manager: RemoteLogManager, until: Callable[[], bool], seconds: float = SECONDS_MAX
) -> None:
    """Run the tasks of a broker until a condition holds, or it crashes."""
    service = asyncio.ensure_future(manager.run(lambda: None))
    try:
        async with asyncio.timeout(seconds):
            while not until() and not service.done():  # noqa: ASYNC110 - no one event
                await asyncio.sleep(0.001)
    finally:
        service.cancel()
        await asyncio.wait([service])
    if service.done() and not service.cancelled():
        service.exception()


@asynccontextmanager
async def running_reads(tier: Tier, blocks_bytes: int = 1 << 20) -> AsyncIterator[RemoteReads]:
    """Reads of remote storage as a broker has them."""
    reads = SegmentReads(tier.store, ReadCache(blocks_bytes), ReadCache(1 << 20), InlineWorker())
    remote = RemoteReads(tier.metadata, reads, tier.clock)
    service = asyncio.ensure_future(remote.run(lambda: None))
    await asyncio.sleep(0)
    try:
        yield remote
    finally:
        service.cancel()
        await asyncio.wait([service])


async def read_all(tier: Tier) -> bytes:
    """Read what is in remote storage, in fetches of a few batches."""
    found, offset = b"", tier.log.log_start_offset
    replica = Replica(tier.log)
    async with running_reads(tier) as remote:
        while True:
            try:
                records = await remote.fetch(replica, offset, 700, is_committed=False)
            except OffsetOutOfRange:
                return found
            found += records.data
            position = 0
            while position < len(records.data):
                length = int.from_bytes(records.data[position + 8 : position + 12], "big") + 12
                position += length
                offset = Offset(offset + 1)


def is_settled(tier: Tier) -> bool:
    states = {each.state for each in tier.metadata.cache(AT).all()}
    return tier.log.remote_end == tier.sealed_end and states == {SegmentState.COPY_SEGMENT_FINISHED}


def sealed_bytes(tier: Tier) -> int:
    return sum(each.size for each in tier.log.segments[:-1])
