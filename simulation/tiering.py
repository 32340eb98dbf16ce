"""Brokers that copy one partition to a bucket, while leaders change and processes are killed.

Each broker has a replica, a `RemoteLogManager` and its own view of the metadata, which it reads in
the one order of a shared list, late. The director appends, changes leaders (brokers learn of it
late, so two may lead in different epochs), elects a leader that lacks records, kills processes,
deletes records, shrinks retention, deletes the topic, and makes the bucket fail.

At all times a local segment may only be deleted if remote segments hold its records. At the end,
everything from the log start on reads as it was written, and the bucket has no other objects.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ottla.metadata.image import EMPTY, Image
from ottla.protocol.faults import OffsetOutOfRange, StorageFailed
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import InlineWorker
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_maintenance import delete_old_segments
from ottla.tiering.metadata_cache import MetadataCache
from ottla.tiering.metadata_manager import MetadataNotReady, UpdateRejected
from ottla.tiering.metadata_records import decode_event, encode_event
from ottla.tiering.read_cache import ReadCache
from ottla.tiering.remote_log_manager import ManagerPorts, ManagerSettings, RemoteLogManager
from ottla.tiering.remote_reads import RemoteReads
from ottla.tiering.remote_segment import SegmentReads
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState, SegmentUpdate
from ottla.tiering.segment_objects import ObjectKind, object_key
from ottla.tiering.segment_store import SegmentStore, StorePorts
from simulation.objects import Request, SimGroupedObjects, Trouble
from simulation.simulation import Host, Ports, Simulation

TOPIC_ID = Uuid(bytes(range(16)))
AT = TopicIdPartition(TOPIC_ID, 0)
CONFIG = LogConfig(
    segment_bytes=700, is_tiered=True, retention_ms=-1, local_retention_bytes=1,
    file_delete_delay_ms=0, index_interval_bytes=150,
)  # fmt: skip
GRACE_MS = 60_000
SETTLE_S = 2.5 * GRACE_MS / 1000
_GONE: Image = msgspec.structs.replace(EMPTY)
"""An image without the topic."""
_FAULTS: tuple[tuple[Trouble, Request], ...] = (
    ("unavailable", "put"),
    ("unavailable", "delete"),
    ("unavailable", "get"),
    ("truncated", "get"),
    ("wrong bytes", "get"),
)


class Written(NamedTuple):
    """A record: its leader epoch, and a number that no other record has."""

    epoch: int
    number: int


class MetadataList:
    """The one order of all metadata events."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.truth = MetadataCache()

    def append(self, event: SegmentMetadata | SegmentUpdate) -> int:
        """Append an event; return its position."""
        self.events.append(encode_event(event))
        _apply(self.truth, self.events[-1])
        return len(self.events) - 1


def _apply(cache: MetadataCache, value: bytes) -> None:
    match decode_event(value):
        case SegmentMetadata() as metadata:
            cache.add(metadata)
        case SegmentUpdate() as update:
            cache.update(update)


class MetadataView:
    """`RemoteLogMetadataManager`: what one process has read of the list."""

    def __init__(self, events: MetadataList, ports: Ports) -> None:
        self._list, self._random = events, ports.random
        self._cache = MetadataCache()
        self._position = 0
        self._ready_at = len(events.events)
        self._progress = asyncio.Condition()

    async def follow(self) -> None:
        """Read on, late."""
        while True:
            await asyncio.sleep(0.05 + self._random.fraction() * 0.3)
            while self._position < len(self._list.events):
                _apply(self._cache, self._list.events[self._position])
                self._position += 1
            async with self._progress:
                self._progress.notify_all()

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Do nothing: everything is read."""

    async def add(self, metadata: SegmentMetadata) -> None:
        """Append and read back."""
        self.cache(metadata.partition)
        await self._publish(metadata)

    async def update(self, update: SegmentUpdate) -> None:
        """Append and read back; rejected if the state is another one then."""
        self.cache(update.segment_id.partition)
        await self._publish(update)
        found = self._cache.get(update.segment_id.id)
        state = SegmentState.DELETE_SEGMENT_FINISHED if found is None else found.state
        if state is not update.state:
            raise UpdateRejected(f"{update.segment_id}: cannot become {update.state.name}")

    async def _publish(self, event: SegmentMetadata | SegmentUpdate) -> None:
        await asyncio.sleep(self._random.fraction() * 0.2)
        if self._random.fraction() < 0.02:
            raise MetadataNotReady("the write was lost")
        position = self._list.append(event)
        async with self._progress:
            await self._progress.wait_for(lambda: self._position > position)
        if self._random.fraction() < 0.02:
            raise MetadataNotReady("the reply was lost")

    def cache(self, partition: TopicIdPartition) -> MetadataCache:
        """Return the segments; not before everything was read that was there at the start."""
        if self._position < self._ready_at:
            raise MetadataNotReady("not read yet")
        return self._cache

    def known(self) -> dict[TopicIdPartition, MetadataCache]:
        """Return all that was read."""
        return {AT: self._cache}

    def is_responsible(self, partition: TopicIdPartition) -> bool:
        """Return True: several brokers may delete the same segments."""
        return True


class Replica:
    """A hosted partition, as `RemoteLogManager` sees it."""

    topic, index, topic_id = "t", 0, TOPIC_ID
    offline: StorageFailed | None = None

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_leader = False
        self.leader_epoch = LeaderEpoch(0)

    def log_trimmed(self) -> None:
        """Nobody waits."""


class Broker:
    """A host with a replica. ``has`` are the records in its log, from offset 0 on."""

    def __init__(self, world: "TieringScenario", host: Host, node_id: int) -> None:
        self._world, self.host, self.node_id = world, host, node_id
        self.has: list[Written] = []
        self.replica: Replica | None = None
        self.is_lagging = False
        self.known_epoch = -1

    async def main(self, ports: Ports) -> None:
        """Open the log and run the services of a broker until killed."""
        log = Log.open(ports.disk, "/data/t-0", CONFIG, clock=ports.clock)
        self.replica = Replica(log)
        self.known_epoch = -1
        view = MetadataView(self._world.events, ports)
        store = self._world.store_of(ports)
        manager_ports = ManagerPorts(
            TrustedClock.of(ports.clock), ports.random, self._hosted, lambda: self._world.image
        )
        settings = ManagerSettings(
            NodeId(self.node_id), interval_ms=1000, backoff_ms=200, abandoned_ms=GRACE_MS
        )
        manager = RemoteLogManager(settings, manager_ports, store, view)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(view.follow())
            tasks.create_task(manager.run(lambda: None))
            while True:
                self._catch_up(ports)
                await asyncio.sleep(0.4)
                self._retain(ports)

    def _hosted(self) -> list[Replica]:
        return [] if self.replica is None or self._world.is_deleted else [self.replica]

    def learn(self) -> None:
        """Learn who leads."""
        world = self._world
        if self.replica is not None and self.known_epoch < world.epoch:
            self.known_epoch = world.epoch
            self.replica.is_leader = world.leader is self
            self.replica.leader_epoch = LeaderEpoch(world.epoch)

    def _catch_up(self, ports: Ports) -> None:
        """Make the log that of the leader, unless this broker does not know it yet."""
        world, replica = self._world, self.replica
        assert replica is not None
        if self.is_lagging or (replica.is_leader and world.leader is not self):
            return
        same = 0
        while same < min(len(self.has), len(world.written)):
            if self.has[same] != world.written[same]:
                break
            same += 1
        if same < len(self.has):
            replica = self._truncate(ports, same)
        for written in world.written[len(self.has) :]:
            self.append(written)
        log = replica.log
        log.set_high_watermark(log.log_end_offset)
        log.advance_log_start(Offset(min(world.start_of_leader(), len(self.has))))

    def append(self, written: Written) -> None:
        """Write one record."""
        assert self.replica is not None
        value = b"%08d" % written.number * 5
        record = Record(Offset(0), Millis(1000 + written.number), None, value)
        epoch = LeaderEpoch(written.epoch)
        batch = bytearray(build_batch([record]))
        self.replica.log.append_as_leader(batch, leader_epoch=epoch, now=Millis(5))
        self.has.append(written)

    def _truncate(self, ports: Ports, offset: int) -> Replica:
        """Remove records that the leader does not have; a log that began later is made anew."""
        replica = self.replica
        assert replica is not None
        if offset > replica.log.local_log_start_offset:
            replica.log.truncate_to(Offset(offset))
            del self.has[offset:]
            return replica
        replica.log.close(is_discarded=True)
        for name in ports.disk.list("/data/t-0"):
            ports.disk.remove(f"/data/t-0/{name}")
        self.has.clear()
        fresh = Replica(Log.open(ports.disk, "/data/t-0", CONFIG, clock=ports.clock))
        fresh.is_leader, fresh.leader_epoch = replica.is_leader, replica.leader_epoch
        self.replica = fresh
        return fresh

    def _retain(self, ports: Ports) -> None:
        """Delete local segments, and check that their records are in remote storage."""
        replica = self.replica
        assert replica is not None
        replica.log.configure(self._world.config)
        before = replica.log.local_log_start_offset
        delete_old_segments(replica.log, ports.clock.now())
        start = max(before, self._world.start_of_leader())
        for offset in range(start, replica.log.local_log_start_offset):
            epoch = LeaderEpoch(self.has[offset].epoch)
            if offset >= replica.log.log_start_offset and self._world.is_current(offset, self):
                found = self._world.events.truth.find(epoch, Offset(offset))
                assert found is not None, f"{self.node_id}: offset {offset} was deleted everywhere"


class TieringScenario:
    """The world of one seed. Run it with `Simulation.run`.

    ``is_grouped``: the store makes several objects durable together, as a directory does.
    """

    def __init__(
        self, simulation: Simulation, *, operations: int = 60, is_grouped: bool = False
    ) -> None:
        self._simulation = simulation
        self._is_grouped = is_grouped
        self._random = simulation.random.stream("tiering")
        self._operations = operations
        self.events = MetadataList()
        self.written: list[Written] = []
        self.log_start = 0
        self.epoch = 0
        self.config = CONFIG
        self.image = EMPTY
        self.is_deleted = False
        self._numbers = 0
        hosts = [simulation.host(f"broker-{number}") for number in range(3)]
        self.brokers = [Broker(self, host, number) for number, host in enumerate(hosts)]
        self.leader = self.brokers[0]

    def store_of(self, ports: Ports) -> SegmentStore:
        """Return the store as a host sees it."""
        objects = ports.objects
        if self._is_grouped:
            objects = SimGroupedObjects(self._simulation.bucket, ports.disk)
        return SegmentStore(StorePorts(objects, ports.disk, InlineWorker(), ports.random))

    def start_of_leader(self) -> int:
        """Return where the log begins; followers learn it with their fetches."""
        leader = self.leader.replica
        return (
            self.log_start if leader is None else max(self.log_start, leader.log.log_start_offset)
        )

    def is_current(self, offset: int, broker: Broker) -> bool:
        """Say whether a broker's record is one that counts now."""
        return offset < len(self.written) and self.written[offset] == broker.has[offset]

    # -- the director ------------------------------------------------------------------

    async def run(self) -> None:
        """Do random things, then let everything settle, and check it."""
        self._simulation.bucket.delay_s = 0.1
        for broker in self.brokers:
            broker.host.start(broker.main)
        acts = (
            self._append, self._append, self._append, self._change_leader, self._elect_uncleanly,
            self._kill, self._fail_bucket, self._delete_records, self._shrink,
        )  # fmt: skip
        for _ in range(self._operations):
            acts[self._random.below(len(acts))]()
            await asyncio.sleep(self._random.between(0.05, 3.0))
            self._revive()
        self._simulation.bucket.heal()
        await self._settle()
        await self._check()
        if self._random.chance(0.5):
            self._append()
            await asyncio.sleep(self._random.between(0, 3))
            self.is_deleted, self.image = True, _GONE
            await asyncio.sleep(SETTLE_S)
            assert self._simulation.bucket.contents() == {}
            assert not len(self.events.truth)

    def _append(self) -> None:
        for _ in range(1 + self._random.below(12)):
            self._numbers += 1
            self.written.append(Written(self.epoch, self._numbers))

    def _change_leader(self) -> None:
        """Elect another broker that has everything."""
        for broker in self.brokers:
            broker.is_lagging = False
        up = [each for each in self.brokers if each.host.is_up and each.has == self.written]
        if up:
            self._elect(up[self._random.below(len(up))])

    def _elect_uncleanly(self) -> None:
        """Elect a broker that lacks records; those are lost, and others take their offsets."""
        behind = [each for each in self.brokers if each.is_lagging and each.host.is_up]
        if not behind:
            other = self.brokers[self._random.below(len(self.brokers))]
            other.is_lagging = other is not self.leader
            self._append()
            return
        chosen = behind[0]
        if len(chosen.has) >= self.log_start:
            self.written = list(chosen.has)
            self._elect(chosen)

    def _elect(self, broker: Broker) -> None:
        self.epoch, self.leader = self.epoch + 1, broker
        for each in self.brokers:
            each.is_lagging = False
            delay = self._random.between(0, 4) if each is not broker else 0.01
            self._simulation.loop.call_later(delay, self._inside(each, each.learn))

    def _inside(self, broker: Broker, act: Callable[[], None]) -> Callable[[], None]:
        return lambda: broker.host.call_inside(act)

    def _kill(self) -> None:
        """End a process wherever it is, or the leader's at one of its next steps."""
        broker = self.brokers[self._random.below(len(self.brokers))]
        if broker.host.is_up:
            broker.host.kill()
            broker.replica = None

    def _revive(self) -> None:
        for broker in self.brokers:
            if not broker.host.is_up:
                broker.host.start(broker.main)
            self._simulation.loop.call_later(0.01, self._inside(broker, broker.learn))

    def _fail_bucket(self) -> None:
        trouble, request = _FAULTS[self._random.below(len(_FAULTS))]
        times = 1 + self._random.below(12)
        self._simulation.bucket.fail(trouble, request, self._random.below(5), times)

    def _delete_records(self) -> None:
        """Move the log start, maybe into what is being copied."""
        if self._random.chance(0.3) and self.written:
            most = min(len(each.has) for each in self.brokers)
            self.log_start = max(self.log_start, self._random.below(most + 1))

    def _shrink(self) -> None:
        """Keep a few segments only, for a while."""
        is_small = self._random.chance(0.2)
        size = 2500 if is_small else -1
        self.config = msgspec.structs.replace(CONFIG, retention_bytes=size)

    # -- the end -----------------------------------------------------------------------

    async def _settle(self) -> None:
        """Let copies, retries and deletions come to their end."""
        self.config = CONFIG
        for broker in self.brokers:
            broker.is_lagging = False
        await asyncio.sleep(20)
        self._revive()
        await asyncio.sleep(SETTLE_S)

    async def _check(self) -> None:
        log = self._log()
        segments = self.events.truth.all()
        states = {each.state for each in segments} - {SegmentState.COPY_SEGMENT_FINISHED}
        assert not states, f"unfinished: {states}"
        keys = {object_key("", each, kind) for each in segments for kind in ObjectKind}
        orphans = set(self._simulation.bucket.contents()) - keys
        assert not orphans, f"orphans: {sorted(orphans)}"
        copied = max(log.remote_end, log.log_start_offset)
        assert copied >= log.segments[-1].base_offset, "not everything was copied"
        await self._read()

    def _log(self) -> Log:
        replica = self.leader.replica
        assert replica is not None
        assert replica.is_leader, "the leader does not know that it leads"
        return replica.log

    async def _read(self) -> None:
        """Read what is in remote storage on the leader, and compare it with what was written."""
        log = self._log()
        ports = self.leader.host.ports()
        view = MetadataView(self.events, ports)
        reads = SegmentReads(
            self.store_of(ports), ReadCache(1 << 20), ReadCache(1 << 20), InlineWorker()
        )
        remote = RemoteReads(view, reads, ports.clock)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(view.follow()), tasks.create_task(remote.run(_ignore))]
            await asyncio.sleep(1)
            offset = log.log_start_offset
            while offset < log.segments[-1].base_offset:
                offset = await self._compare(remote, offset)
            for task in running:
                task.cancel()

    async def _compare(self, remote: RemoteReads, offset: Offset) -> Offset:
        replica = self.leader.replica
        assert replica is not None
        try:
            found = await remote.fetch(replica, offset, 500, is_committed=False)
        except OffsetOutOfRange as error:
            raise AssertionError(f"offset {offset} is in no storage") from error
        position = 0
        while position < len(found.data):
            header = read_header(found.data, position)
            data = found.data[position : position + header.size]
            for record in read_records(data):
                expected = self.written[record.offset]
                assert record.value == b"%08d" % expected.number * 5, f"offset {record.offset}"
                assert header.leader_epoch == expected.epoch
            position, offset = position + header.size, header.next_offset
        return offset


def _ignore() -> None:
    """Nobody waits for the service."""
