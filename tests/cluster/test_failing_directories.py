"""A broker whose directories fail one after the other, on a simulated disk and real sockets.

Node 1 is controller and broker on the machine's disk; node 2 is a broker with its metadata in
``/m`` and its partitions in ``/a`` and ``/b``, leading all of them.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from test_replication_in_process import (
    CLUSTER,
    RANDOM,
    ask,
    eventually,
    format_one,
    settings,
    values,
)

from ottla.config.loading import Loaded
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, start_node
from ottla.node.ports import NodePorts
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from simulation.committer import SimCommitter
from simulation.disk import SimDisk

COUNT = 4
UNASSIGNED = bytes(16)


class TwoNodes:
    """Both nodes, and the disk of the second."""

    def __init__(self, first: Node, second: Node, disk: SimDisk) -> None:
        self.first, self.second, self.disk = first, second, disk

    def partition(self, index: int, node: Node | None = None) -> Partition:
        partitions = (node or self.second).partitions
        assert partitions is not None
        found = partitions.get("orders", index)
        assert found is not None
        return found

    def leader(self, index: int) -> int:
        """Return a partition's leader as the first node knows it."""
        topic = self.first.image.topics.named("orders")
        assert topic is not None
        return topic.partitions[index].leader

    def known_directory(self, index: int) -> bytes | None:
        """Return the directory of node 2's replica as the controller knows it."""
        topic = self.first.image.topics.named("orders")
        assert topic is not None
        return topic.partitions[index].directory(2)

    def in_directory(self, path: str) -> list[int]:
        return [i for i in range(COUNT) if self.partition(i).directory.path == path]

    async def produce(self, index: int, value: bytes, node: Node | None = None) -> ErrorCode:
        topic = self.first.image.topics.named("orders")
        assert topic is not None
        batch = build_batch([Record(0, SystemClock().now(), b"k", value)])
        data = TopicProduceData(
            name="orders",
            topic_id=topic.id,
            partition_data=[PartitionProduceData(index, bytes(batch))],
        )
        response = await ask(node or self.second, ProduceRequest(None, -1, 5000, [data]))
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


def second_settings(root: Path, controller: str) -> Loaded:
    return settings(root, 2, "metadata.log.dir=/m", "log.dirs=/a,/b", controller=controller)


@asynccontextmanager
async def two(root: Path) -> AsyncIterator[TwoNodes]:
    disk = SimDisk(1)
    loaded = settings(root, 1)
    format_one(loaded)
    first = await start_node(loaded, start_s_max=60)
    loaded = second_settings(root, str(first.controller_addr))
    plan = plan_format(loaded, FormatOptions(cluster_id=CLUSTER, quorum=Quorum()), RANDOM)
    format_node(disk, RANDOM, SystemClock().now(), plan)
    network = TcpNetwork()
    ports = NodePorts(
        disk=disk,
        clock=SystemClock(),
        random=RANDOM,
        network=network,
        committer=lambda path: SimCommitter(path, delay_s=lambda: 0.001),
        bind=network.bind,
    )
    second = await start_node(loaded, ports, start_s_max=60)
    try:
        nodes = TwoNodes(first, second, disk)
        await create(nodes)
        yield nodes
    finally:
        disk.heal()
        with suppress(Exception):
            await second.shutdown()
        await first.shutdown()


async def create(nodes: TwoNodes) -> None:
    assigned = [CreatableReplicaAssignment(index, [2, 1]) for index in range(COUNT)]
    topic = CreatableTopic("orders", -1, -1, assignments=assigned)
    for node in (nodes.first, nodes.second):
        await node.wait_image(lambda image: image.cluster.is_unfenced(2))
    response = await ask(nodes.first, CreateTopicsRequest([topic], 10_000))
    assert response.topics[0].error_code == 0, response
    await eventually(
        lambda: all(
            node.has_partition("orders", index)
            for node in (nodes.first, nodes.second)
            for index in range(COUNT)
        )
    )
    # Both directories are in use, and the controller knows which replica is in which.
    await eventually(
        lambda: all(
            nodes.known_directory(index) not in (None, UNASSIGNED) for index in range(COUNT)
        )
    )
    assert len(nodes.in_directory("/a")) == len(nodes.in_directory("/b")) == COUNT // 2


def run(root: Path, scenario: Callable[[TwoNodes], Any]) -> None:
    async def work() -> None:
        async with two(root) as nodes:
            await scenario(nodes)

    asyncio.run(work())


Kind = Literal["write", "sync", "create"]


@pytest.mark.parametrize(("kind", "error"), [("write", errno.ENOSPC), ("sync", errno.EIO)])
def test_broker_survives_one_failed_directory_and_stops_after_the_last(
    tmp_path: Path, kind: Kind, error: int
) -> None:
    async def scenario(nodes: TwoNodes) -> None:
        for index in range(COUNT):
            assert await nodes.produce(index, b"before") is ErrorCode.NONE
        bad, good = nodes.in_directory("/a"), nodes.in_directory("/b")
        nodes.disk.fail(kind, error=error, path_contains="/a/", times=10**6)
        if kind == "write":
            assert await nodes.produce(bad[0], b"lost") is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            # Only the checkpoints sync: any of them notices the failure.
            directory = nodes.partition(bad[0]).directory
            host = nodes.second._parts.broker.replica_manager.host  # type: ignore[union-attr]
            with suppress(Exception):
                await host.commit(directory, directory.checkpoint_writes())
                log = nodes.partition(bad[0]).log
                await host.commit(directory, log.flush_plan().files)
        # Every partition in it is offline there, and node 1 leads them all; the others continue.
        await eventually(lambda: all(nodes.leader(index) == 1 for index in bad))
        for index in bad:
            assert nodes.partition(index).offline is not None
            assert await nodes.produce(index, b"after", nodes.first) is ErrorCode.NONE
        for index in good:
            assert nodes.leader(index) == 2
            assert await nodes.produce(index, b"after") is ErrorCode.NONE
        assert b"lost" not in values(nodes.partition(bad[0], nodes.first))
        await _described(nodes)
        # The last one: the broker has no directory left, and shuts down by itself.
        nodes.disk.fail("write", error=error, path_contains="/b/", times=10**6)
        assert await nodes.produce(good[0], b"lost") is ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.wait_for(nodes.second.wait_should_shut_down(), 60)
        with pytest.raises(Exception, match=r"/a: .*; /b: "):
            await asyncio.wait_for(nodes.second.wait_stopped(), 60)
        await eventually(lambda: all(nodes.leader(index) == 1 for index in range(COUNT)))
        assert await nodes.produce(good[0], b"last", nodes.first) is ErrorCode.NONE

    run(tmp_path, scenario)


async def _described(nodes: TwoNodes) -> None:
    reply = await ask(nodes.second, DescribeLogDirsRequest(topics=None))
    codes = {row.log_dir: ErrorCode(row.error_code) for row in reply.results}
    assert codes == {"/a": ErrorCode.KAFKA_STORAGE_ERROR, "/b": ErrorCode.NONE}
    to_a = AlterReplicaLogDir("/a", [AlterReplicaLogDirTopic("orders", nodes.in_directory("/b"))])
    refused = await ask(nodes.second, AlterReplicaLogDirsRequest([to_a]))
    found = {row.error_code for topic in refused.results for row in topic.partitions}
    assert found == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_controller_is_notified_of_a_move_and_of_a_failure_after_it(
    tmp_path: Path,
) -> None:
    async def scenario(nodes: TwoNodes) -> None:
        index = nodes.in_directory("/a")[0]
        assert await nodes.produce(index, b"1") is ErrorCode.NONE
        before = nodes.known_directory(index)
        to_b = AlterReplicaLogDir("/b", [AlterReplicaLogDirTopic("orders", [index])])
        reply = await ask(nodes.second, AlterReplicaLogDirsRequest([to_b]))
        assert reply.results[0].partitions[0].error_code == 0
        await eventually(lambda: nodes.partition(index).directory.path == "/b")
        moved = nodes.partition(index).directory.directory_id
        await eventually(lambda: nodes.known_directory(index) == moved != before)
        assert nodes.leader(index) == 2
        assert await nodes.produce(index, b"2") is ErrorCode.NONE
        assert values(nodes.partition(index)) == [b"1", b"2"]
        # The directory that it left does not affect it any more.
        nodes.disk.fail("write", path_contains="/a/", times=10**6)
        left = nodes.in_directory("/a")
        assert await nodes.produce(left[0], b"x") is ErrorCode.KAFKA_STORAGE_ERROR
        await eventually(lambda: nodes.leader(left[0]) == 1)
        assert nodes.leader(index) == 2
        assert await nodes.produce(index, b"3") is ErrorCode.NONE

    run(tmp_path, scenario)
