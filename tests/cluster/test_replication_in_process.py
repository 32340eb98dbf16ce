"""Three brokers in this process replicate over real sockets and files."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection
from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, start_node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.randomness import SystemRandom

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
RANDOM = SystemRandom()


def settings(root: Path, node_id: int, *extra: str, controller: str = "127.0.0.1:1") -> Loaded:
    is_controller = node_id == 1
    roles = "broker,controller" if is_controller else "broker"
    listeners = "PLAINTEXT://127.0.0.1:0" + (",CONTROLLER://127.0.0.1:0" if is_controller else "")
    text = f"""
        process.roles={roles}
        node.id={node_id}
        listeners={listeners}
        controller.quorum.bootstrap.servers={controller}
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
        log.dirs={root / str(node_id)}
        broker.heartbeat.interval.ms=200
        broker.session.timeout.ms=2000
        replica.lag.time.max.ms=2000
        replica.fetch.backoff.ms=50
    """
    lines = [line.strip() for line in text.splitlines()]
    return load("\n".join([*lines, *extra]))


def format_one(loaded: Loaded) -> None:
    is_controller = "controller" in loaded.broker.process_roles
    quorum = Quorum(is_standalone=True) if is_controller else Quorum()
    plan = plan_format(loaded, FormatOptions(cluster_id=CLUSTER, quorum=quorum), RANDOM)
    format_node(RealDisk(), RANDOM, SystemClock().now(), plan)


class Cluster:
    """One combined node and two brokers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nodes: dict[int, Node] = {}
        self.controller = ""

    async def start(self, node_id: int) -> Node:
        loaded = settings(self.root, node_id, controller=self.controller or "127.0.0.1:1")
        if not (self.root / str(node_id)).exists():
            format_one(loaded)
        self.nodes[node_id] = await start_node(loaded, start_s_max=60)
        if node_id == 1:
            self.controller = str(self.nodes[1].controller_addr)
        return self.nodes[node_id]

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).shutdown()

    def partition(self, node_id: int, topic: str = "orders", index: int = 0) -> Partition:
        found = self.nodes[node_id]._parts.broker.replica_manager.partitions.get(topic, index)
        assert found is not None
        return found


@asynccontextmanager
async def three(root: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(root)
    try:
        for node_id in (1, 2, 3):
            await cluster.start(node_id)
        yield cluster
    finally:
        for node_id in sorted(cluster.nodes, reverse=True):
            await cluster.stop(node_id)


async def eventually(condition: Callable[[], bool], timeout_s: float = SECONDS_MAX) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - many parts, no one event
            await asyncio.sleep(0.01)


async def ask(node: Node, request: Any) -> Any:
    connection = await Connection.open(TcpNetwork(), node.listen_addr, client_id="test")
    try:
        return await connection.send(request, timeout_ms=10_000)
    finally:
        await connection.close()


async def create(cluster: Cluster, **configs: str) -> None:
    topic = CreatableTopic(
        "orders", 1, 3, configs=[CreatableTopicConfig(k, v) for k, v in configs.items()]
    )
    response = await ask(cluster.nodes[1], CreateTopicsRequest([topic], 10_000))
    assert response.topics[0].error_code == 0, response
    await eventually(lambda: all(n.has_partition("orders", 0) for n in cluster.nodes.values()))


def leader_of(cluster: Cluster) -> int:
    for node_id in cluster.nodes:
        if cluster.partition(node_id).is_leader:
            return node_id
    return -1


async def produce(cluster: Cluster, value: bytes, acks: int = -1) -> ErrorCode:
    node = cluster.nodes[leader_of(cluster)]
    topic = node.image.topics.named("orders")
    assert topic is not None
    batch = build_batch([Record(0, SystemClock().now(), b"k", value)])
    data = TopicProduceData(
        name="orders", topic_id=topic.id, partition_data=[PartitionProduceData(0, bytes(batch))]
    )
    response = await ask(node, ProduceRequest(None, acks, 5000, [data]))
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def values(partition: Partition) -> list[bytes | None]:
    log, found, offset = partition.log, [], partition.log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, upto=log.log_end_offset)
        data = part.file.pread(part.length, part.position)
        for start, header in batches(data):
            found += [r.value for r in read_records(data[start : start + header.size])]
            offset = header.next_offset
    return found


def test_three_brokers_replicate_shrink_elect_and_catch_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with three(tmp_path) as cluster:
            await create(cluster, **{"min.insync.replicas": "2"})
            await eventually(lambda: leader_of(cluster) > 0)
            expected = [b"%d" % number for number in range(20)]
            for value in expected:
                assert await produce(cluster, value) is ErrorCode.NONE
            await eventually(
                lambda: all(
                    cluster.partition(node_id).log.high_watermark == 20 for node_id in (1, 2, 3)
                )
            )
            for node_id in (1, 2, 3):
                assert values(cluster.partition(node_id)) == expected
            # A broker stops; the others elect a leader, shrink the ISR and continue.
            victim = leader_of(cluster) if leader_of(cluster) != 1 else 2
            await cluster.stop(victim)
            await eventually(lambda: leader_of(cluster) > 0)
            await eventually(lambda: len(cluster.partition(leader_of(cluster)).isr) == 2)
            # Enough for fetch responses that are appended while they arrive.
            missed = [bytes((number,)) * 500_000 for number in range(30)]
            for value in missed:
                assert await produce(cluster, value) is ErrorCode.NONE
            # It comes back, catches up, and rejoins the ISR.
            await cluster.start(victim)
            await eventually(lambda: len(cluster.partition(leader_of(cluster)).isr) == 3)
            assert values(cluster.partition(victim)) == expected + missed

    asyncio.run(scenario())


def test_deleted_topic_is_removed_from_every_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with three(tmp_path) as cluster:
            await create(cluster)
            await eventually(lambda: leader_of(cluster) > 0)
            request = DeleteTopicsRequest(topics=[DeleteTopicState("orders")], timeout_ms=5000)
            await ask(cluster.nodes[1], request)
            await eventually(
                lambda: (
                    not any(
                        len(node._parts.broker.replica_manager.partitions)
                        for node in cluster.nodes.values()
                    )
                )
            )
            names = [p.name for n in (1, 2, 3) for p in (tmp_path / str(n)).iterdir()]
            assert "orders-0" not in names

    asyncio.run(scenario())
