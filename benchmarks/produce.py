"""The cost of a Produce request from its bytes to its reply, in one process, without sockets.

Small: one record of 100 bytes, acks=1, version 9: what limits requests per second. Large: one
batch of 1 MB: what limits bytes per second. The log writes to real files in a temporary
directory; the reference is the same batch appended directly to the log, so the difference to 1 is
what Produce adds: parsing, validating, answering.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Row, interleaved, spread
from ottla.api.produce.handler import ProduceHandler
from ottla.api.surface.routes import Caller
from ottla.config.generated import TopicConfig
from ottla.metadata.image import EMPTY
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionRegistration
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode
from ottla.protocol.frames import Request
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.isr_state import Proposal
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address, Clock
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts, format_directory
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig

VERSION = 9
NOW = SystemClock().now()
CALLER = Caller("User:ANONYMOUS", "bench", Address("127.0.0.1", 1), "PLAINTEXT")
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
NODE = NodeId(1)
TOPIC_ID = Uuid(bytes(range(16)))

# The append is at least a third of a small request, and nearly all of a large one except for the
# walk over its records, which takes 14 ns each.
SMALL_RATIO_MIN = 0.25
LARGE_RATIO_MIN = 0.5


class FakeHost:
    """A node with this one broker."""

    node_id = NODE
    broker_epoch = 1
    lag_ms_max = 30_000

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()

    def is_alive(self, broker: int) -> bool:
        return broker == NODE

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        return broker == NODE

    def is_online(self, broker: int, directory: Uuid) -> bool:
        return broker == NODE

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        raise AssertionError("alone")

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Check nothing."""

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        raise AssertionError(reason)


@contextmanager
def two_logs() -> Iterator[tuple[Partition, Log]]:
    """Yield a partition that is led here, and a bare log beside it."""
    with tempfile.TemporaryDirectory() as folder:
        ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
        path = str(Path(folder) / "data")
        format_directory(ports, path, node_id=NODE, cluster_id=CLUSTER)
        directory = LogDirectory.open(ports, path, node_id=NODE, cluster_id=CLUSTER)
        directory.open_all(lambda _: LogConfig())
        name = TopicPartition("bench", 0)
        led = directory.create_log(name, TOPIC_ID, LogConfig())
        bare = directory.create_log(
            TopicPartition("bare", 0), Uuid(bytes(range(1, 17))), LogConfig()
        )
        partition = Partition(name, TOPIC_ID, directory, led.log, TopicConfig(), FakeHost())
        partition.apply(
            PartitionRegistration(
                replicas=(NODE,),
                isr=(NODE,),
                leader=NODE,
                leader_epoch=0,
                partition_epoch=0,
                directories=(DIRECTORY_UNASSIGNED,),
            )
        )
        yield partition, bare.log


def batch_of(count: int, size: int, codec: Compression = Compression.NONE) -> bytearray:
    """Return a batch as a producer sends it, with incompressible values."""
    noise = SystemRandom().bytes(size)
    records = [Record(Offset(index), NOW, None, noise) for index in range(count)]
    return build_batch(records, compression=codec)


def producing(partition: Partition, batch: bytearray) -> Callable[[], object]:
    """Return work that serves one request repeatedly, with the body as a connection passes it."""
    partitions = Partitions(lambda: EMPTY)
    partitions.add(partition)
    handler = ProduceHandler(partitions, lambda: EMPTY, SystemClock())
    data = [PartitionProduceData(0, bytes(batch))]
    message = ProduceRequest(None, 1, 30_000, [TopicProduceData("bench", TOPIC_ID, data)])
    fresh = bytes(encode(message, VERSION))
    body = memoryview(bytearray(fresh))
    at = fresh.index(bytes(batch[:61]))
    head = fresh[at : at + 61]
    request = Request(ApiKey.PRODUCE, VERSION, 1, "bench", body)

    def serve() -> object:
        body[at : at + 61] = head  # undo the fields that the leader patched
        return handler.handle(CALLER, request, body)

    assert isinstance(serve(), list)
    return serve


def appending(log: Log, batch: bytearray) -> Callable[[], object]:
    """Return the same append without Produce around it."""
    head = bytes(batch[:61])

    def append() -> object:
        batch[:61] = head
        return log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(NOW))

    append()
    return append


def repeated(work: Callable[[], object], times: int) -> Callable[[], None]:
    """Return ``work``, repeated until it is long enough to time."""

    def run() -> None:
        for _ in range(times):
            work()

    return run


def compare(what: str, batch: bytearray, times: int, ratio_min: float) -> Row:
    """Compare requests with bare appends of the same batch."""
    with two_logs() as (partition, bare):
        ours, theirs, ratios = interleaved(
            repeated(producing(partition, batch), times),
            repeated(appending(bare, bytearray(batch)), times),
        )
    return Row(
        "produce",
        what,
        f"{ours / times * 1e6:.1f} us, {ours / times / len(batch) * 1e9:.2f} s/GB",
        f"bare append {theirs / times * 1e6:.1f} us",
        theirs / ours,
        f"at least {ratio_min} ({spread(ratios)})",
        theirs / ours >= ratio_min,
    )


def run() -> list[Row]:
    """Measure all of the area."""
    return [
        compare("one record of 100 B, acks=1", batch_of(1, 100), 1000, SMALL_RATIO_MIN),
        compare("1 MB of 1 KiB records", batch_of(1000, 1024), 20, LARGE_RATIO_MIN),
        compare("1 MB of 100 B records", batch_of(9000, 100), 20, LARGE_RATIO_MIN),
    ]
