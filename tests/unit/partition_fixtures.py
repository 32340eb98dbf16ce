"""Fixtures of partition tests: a fake host, and partitions on a simulated disk."""

from dataclasses import dataclass, field

from ottla.config.generated import TopicConfig
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionRegistration
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.faults import StorageFailed
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, NodeId, Offset, TopicPartition, Uuid
from ottla.replication.leading.isr_state import Proposal
from ottla.replication.log_events import LogEvents
from ottla.replication.partition import Partition
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts, format_directory
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.read import Slice
from simulation.disk import SimDisk
from simulation.random import SimRandom

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = Uuid(bytes(range(16)))
ORDERS = TopicPartition("orders", 0)
NOW = Millis(1_700_000_000_000)
LAG_MS = 30_000


@dataclass
class HandClock:
    """A clock that the test advances."""

    wall: int = NOW
    since: int = 0

    def now(self) -> Millis:
        return Millis(self.wall)

    def monotonic(self) -> Millis:
        return Millis(self.since)

    def expiry(self) -> Millis:
        return self.now()

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.since += ms


@dataclass
class FakeHost:
    """`PartitionHost` controlled by the test; proposals are recorded."""

    node_id: NodeId
    broker_epoch: int = 100
    lag_ms_max: int = LAG_MS
    unexplained_deletion_delay_ms: int = 3_600_000
    clock: HandClock = field(default_factory=HandClock)
    epochs: dict[int, int] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    proposals: list[tuple[Partition, Proposal]] = field(default_factory=list)
    failed_at: set[int] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    hosted: list[Partition] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    suspected: list[tuple[str, int]] = field(default_factory=list)
    events: TopicMeter = field(default_factory=TopicMeter)
    log_events: LogEvents = field(default_factory=LogEvents)

    def __post_init__(self) -> None:
        self.log_events.on_truncated(lambda partition: self.cut.append(str(partition)))

    def is_alive(self, broker: int) -> bool:
        return broker not in self.dead

    def is_online(self, broker: int, directory: Uuid) -> bool:
        return broker not in self.failed_at

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        if broker in self.dead or broker_epoch is None:
            return False
        return broker_epoch in (-1, self.epochs.get(broker, broker_epoch))

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self.proposals.append((partition, proposal))

    def suspect(self, partition: Partition, offset: int) -> None:
        self.suspected.append((str(partition), int(offset)))

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        directory.fail(reason)
        self.failed.append(directory.path)
        for partition in self.hosted:
            partition.go_offline(StorageFailed(directory.path, reason))


@dataclass
class Machine:
    """A broker's disk with one log directory, and the partitions on it."""

    node_id: int = 0
    seed: int = 0
    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        self.disk = SimDisk(seed=self.seed)
        self.ports = LogDirPorts(self.disk, self.clock, SimRandom(self.seed))
        self.fake_host = FakeHost(NodeId(self.node_id), clock=self.clock)
        format_directory(self.ports, "/d", node_id=NodeId(self.node_id), cluster_id=CLUSTER)
        self.directory = LogDirectory.open(
            self.ports, "/d", node_id=NodeId(self.node_id), cluster_id=CLUSTER
        )
        self.directory.open_all(lambda _: LogConfig())

    def host(
        self,
        name: TopicPartition = ORDERS,
        config: TopicConfig | None = None,
        log_config: LogConfig | None = None,
    ) -> Partition:
        hosted = self.directory.create_log(name, TOPIC_ID, log_config or LogConfig())
        partition = Partition(
            name, TOPIC_ID, self.directory, hosted.log, config or TopicConfig(), self.fake_host
        )
        self.fake_host.hosted.append(partition)
        return partition


def registration(
    *,
    leader: int = 0,
    epoch: int = 0,
    replicas: tuple[int, ...] = (0,),
    isr: tuple[int, ...] | None = None,
    partition_epoch: int = 0,
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas,
        isr=replicas if isr is None else isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        directories=(DIRECTORY_UNASSIGNED,) * len(replicas),
    )


def lone_leader(config: TopicConfig | None = None, **log_config) -> Partition:
    """A partition of one replica that leads."""
    partition = Machine().host(config=config, log_config=LogConfig(**log_config))
    partition.apply(registration())
    return partition


def batch_of(*values: bytes, **fields) -> bytearray:
    records = [Record(Offset(at), NOW, b"k", value) for at, value in enumerate(values)]
    return build_batch(records, **fields)


def append(partition: Partition, *values: bytes, **terms):
    return partition.append(batch_of(*values), now=NOW, **terms)


def bytes_of(found: Slice) -> bytes:
    return found.file.pread(found.length, found.position)


def values_in(log: Log, upto: Offset | None = None) -> list[bytes | None]:
    """Every value from the log's start to its end, or below ``upto``."""
    found: list[bytes | None] = []
    offset = log.log_start_offset
    end = log.log_end_offset if upto is None else upto
    while offset < end:
        data = bytes_of(log.read(offset, 1 << 20, upto=end))
        if not data:
            break
        for start, header in batches(data):
            whole = data[start : start + header.size]
            found += [r.value for r in read_records(whole) if offset <= r.offset < end]
            offset = header.next_offset
    return found
