"""Bits flipped in old segments of real files: found, never served, repaired from other replicas."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path

import pytest
from test_replication_in_process import (
    Cluster,
    ask,
    create,
    eventually,
    format_one,
    leader_of,
    produce,
    settings,
    values,
)

from ottla.node.handle import Node, start_node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.batch import batches, is_crc_valid
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.runtime.clock import SystemClock

SEGMENT_BYTES = 1 << 20
# One batch per segment: two of these do not fit.
VALUE = b"x" * 700_000
COUNT = 4
OFTEN = ("log.scrub.interval.ms=200", "log.scrub.max.bytes.per.second=1000000000")
SELDOM = ("log.scrub.interval.ms=3600000", "log.scrub.max.bytes.per.second=1000000000")


def on_a_loop(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on its own event loop."""

    @wraps(scenario)
    def test(**fixtures: object) -> None:
        asyncio.run(scenario(**fixtures))

    return test


class ScrubbedCluster(Cluster):
    """Three nodes with other settings for the scrubber."""

    def __init__(self, root: Path, *extra: str) -> None:
        super().__init__(root)
        self.extra = extra

    async def start(self, node_id: int) -> Node:
        at = self.controller or "127.0.0.1:1"
        loaded = settings(self.root, node_id, *self.extra, controller=at)
        if not (self.root / str(node_id)).exists():
            format_one(loaded)
        self.nodes[node_id] = await start_node(loaded, start_s_max=60)
        if node_id == 1:
            self.controller = str(self.nodes[1].controller_addr)
        return self.nodes[node_id]

    def old_segment(self, node_id: int) -> Path:
        """Return the file of the second segment, which was sealed long ago."""
        return Path(self.partition(node_id).log.segments[1].path)

    def counts(self, node_id: int):
        return self.nodes[node_id]._parts.broker.replica_manager.repairs.counts

    def isr(self) -> set[int]:
        topic = self.nodes[1].image.topics.named("orders")
        assert topic is not None
        return set(topic.partitions[0].isr)

    def files(self, node_id: int) -> dict[str, bytes]:
        """Return the batches of all segments."""
        return {
            Path(each.path).name: each.file.pread(each.size, 0)
            for each in self.partition(node_id).log.segments
        }


@asynccontextmanager
async def scrubbed(
    root: Path, *extra: str, records: Sequence[int] = ()
) -> AsyncIterator[ScrubbedCluster]:
    """Three nodes with small batches of ``records``, and then large ones."""
    cluster = ScrubbedCluster(root, *extra)
    try:
        for node_id in (1, 2, 3):
            await cluster.start(node_id)
        await create(cluster, **{"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "1"})
        await eventually(lambda: leader_of(cluster) > 0 and len(cluster.isr()) == 3)
        for count in records:
            await append(cluster, count)
        for _ in range(COUNT):
            assert await produce(cluster, VALUE) is ErrorCode.NONE
        yield cluster
    finally:
        for node_id in sorted(cluster.nodes, reverse=True):
            await cluster.stop(node_id)


def flip(path: Path, position: int = 5000) -> None:
    """Flip one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))


async def fetch(node: Node, offset: int) -> tuple[ErrorCode, bytes]:
    topic = node.image.topics.named("orders")
    assert topic is not None
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(topics=[FetchTopic("orders", topic.id, [asked])])
    row = (await ask(node, request)).responses[0].partitions[0]
    return ErrorCode(row.error_code), bytes(row.records or b"")


def is_sound(data: bytes) -> bool:
    return all(is_crc_valid(data, position, header) for position, header in batches(data))


@on_a_loop
async def test_damaged_follower_leaves_the_isr_and_is_repaired(tmp_path: Path) -> None:
    async with scrubbed(tmp_path, *OFTEN) as cluster:
        follower = next(node for node in (3, 2, 1) if node != leader_of(cluster))
        good = cluster.files(leader_of(cluster))
        flip(cluster.old_segment(follower))

        await eventually(lambda: follower not in cluster.isr())
        await eventually(lambda: cluster.isr() == {1, 2, 3})

        assert cluster.files(follower) == good
        assert cluster.counts(follower).found == 1
        assert cluster.counts(follower).finished == 1
        assert not cluster.partition(follower).log.damaged_ranges


def overwrite(path: Path) -> None:
    path.write_bytes(b"garbage" * 40)


async def append(cluster: Cluster, records: int) -> None:
    """Produce a batch of small records."""
    node = cluster.nodes[leader_of(cluster)]
    topic = node.image.topics.named("orders")
    assert topic is not None
    batch = build_batch([Record(at, SystemClock().now(), b"k", b"v") for at in range(records)])
    rows = [PartitionProduceData(0, bytes(batch))]
    request = ProduceRequest(None, -1, 5000, [TopicProduceData("orders", topic.id, rows)])
    response = await ask(node, request)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@on_a_loop
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 3)], ids=["between", "within"])
async def test_damaged_batches_around_the_start_of_the_log_are_fetched_again(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """The others serve nothing before the start of the log, between two batches or within one."""
    async with scrubbed(tmp_path, *OFTEN, records=sizes) as cluster:
        leader = leader_of(cluster)
        follower = next(node for node in (3, 2, 1) if node != leader)
        logs = {node: cluster.partition(node).log for node in (leader, follower)}
        part = [DeleteRecordsPartition(0, 3)]
        await ask(
            cluster.nodes[leader],
            DeleteRecordsRequest([DeleteRecordsTopic("orders", part)], 10_000),
        )
        await eventually(lambda: all(log.log_start_offset == 3 for log in logs.values()))
        first = Path(logs[follower].segments[0].path)
        assert first.name.startswith("00000000000000000000.")
        overwrite(first)

        await eventually(lambda: follower not in cluster.isr())
        await eventually(lambda: cluster.isr() == {1, 2, 3})

        assert values(cluster.partition(follower)) == values(cluster.partition(leader))
        assert not logs[follower].damaged_ranges


@on_a_loop
async def test_damaged_leader_resigns_and_is_repaired(tmp_path: Path) -> None:
    async with scrubbed(tmp_path, *OFTEN) as cluster:
        leader = leader_of(cluster)
        good = cluster.files(leader)
        flip(cluster.old_segment(leader))

        await eventually(lambda: leader_of(cluster) not in (-1, leader))
        error, records = await fetch(cluster.nodes[leader_of(cluster)], 1)
        assert error is ErrorCode.NONE
        assert records
        assert is_sound(records)
        await eventually(lambda: cluster.isr() == {1, 2, 3})

        assert cluster.files(leader) == good
        assert cluster.counts(leader).finished == 1
        assert await produce(cluster, b"goes on") is ErrorCode.NONE


@on_a_loop
async def test_follower_that_rejects_a_damaged_batch_alerts_its_leader(
    tmp_path: Path,
) -> None:
    async with scrubbed(tmp_path, *SELDOM) as cluster:
        leader = leader_of(cluster)
        good = cluster.files(leader)
        behind = next(node for node in (3, 2) if node != leader)
        log = Path(cluster.partition(behind).log.directory)
        await cluster.stop(behind)
        shutil.rmtree(log)
        flip(cluster.old_segment(leader))
        await cluster.start(behind)

        await eventually(lambda: cluster.isr() == {1, 2, 3})

        assert cluster.counts(leader).finished == 1
        assert cluster.files(leader) == cluster.files(behind) == good


@on_a_loop
async def test_only_replica_rejects_reads_of_the_damaged_batch_and_serves_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = settings(tmp_path, 1, *OFTEN)
    format_one(loaded)
    node = await start_node(loaded, start_s_max=60)
    try:
        configs = [CreatableTopicConfig("segment.bytes", str(SEGMENT_BYTES))]
        topic = CreatableTopic("orders", 1, 1, configs=configs)
        assert (await ask(node, CreateTopicsRequest([topic], 10_000))).topics[0].error_code == 0
        await eventually(lambda: node.has_partition("orders", 0))
        cluster = ScrubbedCluster(tmp_path)
        cluster.nodes[1] = node
        for _ in range(COUNT):
            assert await produce(cluster, VALUE) is ErrorCode.NONE
        with caplog.at_level(logging.ERROR):
            flip(cluster.old_segment(1))
            await eventually(lambda: cluster.counts(1).found == 1)
        assert (await fetch(node, 1))[0] is ErrorCode.CORRUPT_MESSAGE
        for offset in (0, 2, 3):
            error, records = await fetch(node, offset)
            assert error is ErrorCode.NONE
            assert records
            assert is_sound(records)
        await asyncio.sleep(0)
        lines = [each for each in caplog.messages if "ottla log verify" in each]
        assert len(lines) == 1
        assert "orders-0" in lines[0]
        assert leader_of(cluster) == 1
    finally:
        await node.shutdown()
