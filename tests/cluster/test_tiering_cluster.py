"""Tiered storage on three brokers: new followers, other leaders, a broker with an empty disk."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.patience import SECONDS_MAX

from ottla.client.admin_replicas import alter_reassignments
from ottla.client.cluster import ClientPorts, Cluster
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.producer import open_producer
from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, start_node
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.types import Offset, TopicPartition
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.randomness import SystemRandom

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
RANDOM = SystemRandom()
T = TopicPartition("t", 0)
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}


def settings(root: Path, node_id: int, controller: str) -> Loaded:
    is_controller = node_id == 1
    roles = "broker,controller" if is_controller else "broker"
    listeners = "PLAINTEXT://127.0.0.1:0" + (",CONTROLLER://127.0.0.1:0" if is_controller else "")
    lines = f"""
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
        remote.log.storage.system.enable=true
        remote.log.storage.manager.class.name=directory
        rsm.config.directory={root / "tier"}
        remote.log.manager.task.interval.ms=50
        log.retention.check.interval.ms=50
        log.initial.task.delay.ms=0
        rlmm.config.remote.log.metadata.topic.num.partitions=2
    """
    return load("\n".join(line.strip() for line in lines.splitlines()))


class Brokers:
    """One combined node and two brokers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nodes: dict[int, Node] = {}
        self._controller = "127.0.0.1:1"

    async def start(self, node_id: int) -> None:
        loaded = settings(self.root, node_id, self._controller)
        if not (self.root / str(node_id)).exists():
            quorum = Quorum(is_standalone=True) if node_id == 1 else Quorum()
            options = FormatOptions(cluster_id=CLUSTER, quorum=quorum)
            format_node(
                RealDisk(), RANDOM, SystemClock().now(), plan_format(loaded, options, RANDOM)
            )
        self.nodes[node_id] = await start_node(loaded, start_s_max=60)
        if node_id == 1:
            self._controller = str(self.nodes[1].controller_addr)

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).shutdown()

    def partition(self, node_id: int) -> Partition:
        found = self.find(node_id)
        assert found is not None
        return found

    def find(self, node_id: int) -> Partition | None:
        partitions = self.nodes[node_id].partitions
        assert partitions is not None
        return partitions.get("t", 0)

    def is_in_isr(self, *node_ids: int) -> bool:
        leaders = [each for each in self.nodes if self.find(each)]
        return any(
            self.partition(each).is_leader and set(node_ids) <= set(self.partition(each).isr)
            for each in leaders
        )

    async def client(self) -> Cluster:
        ports = ClientPorts(TcpNetwork(), SystemClock(), RANDOM)
        address = self.nodes[1].listen_addr
        assert address is not None
        return await Cluster.open(ports, [address])


async def eventually(condition: Callable[[], bool], timeout_s: float = SECONDS_MAX) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - many parts, no one event
            await asyncio.sleep(0.02)


async def create(cluster: Cluster, *replicas: int) -> None:
    topic = CreatableTopic(
        "t",
        -1,
        -1,
        [CreatableReplicaAssignment(0, list(replicas))],
        [CreatableTopicConfig(*each) for each in TOPIC.items()],
    )
    request = CreateTopicsRequest([topic], 30_000)
    response = await cluster.send_any(request, CreateTopicsResponse, may_repeat=False)
    assert response.topics[0].error_code == 0, response


async def produce(cluster: Cluster, first: int, count: int) -> None:
    async with open_producer(cluster) as producer:
        for start in range(first, first + count, 10):
            for number in range(start, start + 10):
                await producer.send("t", b"%06d" % number + b"x" * 150, partition=0)
            await producer.flush()


async def consume(cluster: Cluster) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    options = ReaderOptions(wait_ms_max=100, failures_max=200)
    async with open_reader(cluster, {T: Offset(0)}, options) as reader:
        while not reader.is_at_end:
            for fetched in await reader.poll():
                found += [(each.offset, (each.value or b"")[:6]) for each in fetched.records()]
    return found


def numbers(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%06d" % number) for number in range(count)]


def is_tiered(partition: Partition) -> bool:
    log = partition.log
    return log.local_log_start_offset > 0 and len(log.segments) == 1


async def story(root: Path) -> None:
    brokers = Brokers(root)
    try:
        for node_id in (1, 2, 3):
            await brokers.start(node_id)
        async with await brokers.client() as cluster:
            await create(cluster, 2, 1)
            await produce(cluster, 0, 150)
            # The leader copies; leader and follower delete what was copied.
            await eventually(lambda: all(is_tiered(brokers.partition(each)) for each in (1, 2)))
            assert await consume(cluster) == numbers(150)
            # A follower that is added later begins after the tier, with the whole history.
            await alter_reassignments(cluster, {T: [2, 1, 3]})
            await eventually(lambda: brokers.is_in_isr(1, 2, 3))
            leader, added = brokers.partition(2).log, brokers.partition(3).log
            assert added.local_log_start_offset > 0
            assert added.log_start_offset == leader.log_start_offset == 0
            assert added.epochs.entries == leader.epochs.entries
            # Another leader serves everything, and goes on copying.
            await brokers.stop(2)
            await eventually(lambda: any(brokers.partition(each).is_leader for each in (1, 3)))
            await produce(cluster, 150, 100)
            await eventually(lambda: all(is_tiered(brokers.partition(each)) for each in (1, 3)))
            assert await consume(cluster) == numbers(250)
            # A broker returns with an empty disk.
            shutil.rmtree(root / "2")
            await brokers.start(2)
            await eventually(lambda: brokers.is_in_isr(1, 2, 3))
            assert brokers.partition(2).log.local_log_start_offset > 0
            assert await consume(cluster) == numbers(250)
        ends = [brokers.partition(each).log.log_end_offset for each in (1, 2, 3)]
        assert ends == [250, 250, 250]
    finally:
        for node_id in sorted(brokers.nodes, reverse=True):
            await brokers.stop(node_id)


def test_followers_and_new_leaders_continue_after_the_tier(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path))
