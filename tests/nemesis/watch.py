"""Ask every node all the time which partitions it leads, and their high watermarks.

Each node is asked separately for the end of each partition, with the newest leader epoch that any
node has reported: a node that answers has acted as leader in that epoch (so answers from two nodes
mean two leaders), and its answer is the high watermark that a client may see. A stale leader must
reject the request, because it does not know the epoch.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace
from tests.nemesis.load import Worker, title
from tests.nemesis.recorder import Recorder, now

from ottla.client.connection import Connection, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.security.sasl.credentials import LoginFailed
from ottla.testing import Cluster
from ottla.testing.history.events import Leader, Phase, Watermark

T = TypeVar("T")

LATEST = -1
EVERY_S = 0.2
ASK_MS_MAX = 1500
QUORUM = DescribeQuorumRequest(
    topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)


def address_of(cluster: Cluster, node_id: int) -> Address:
    host, _, port = cluster.address(node_id).rpartition(":")
    return Address(host, int(port))


def options_of(cluster: Cluster) -> Options:
    """Return how to connect to a node, with a short timeout."""
    return replace(cluster.access.options, connect_timeout_ms=ASK_MS_MAX)


async def _ask(address: Address, request: Message, options: Options) -> Message | None:
    try:
        connection = await Connection.open(TcpNetwork(), address, options=options)
        try:
            return await connection.send(request, timeout_ms=ASK_MS_MAX)
        finally:
            await connection.close()
    except (OSError, Fault, LoginFailed):
        return None


def ask(cluster: Cluster, node_id: int, request: Message) -> Message | None:
    """Send a request to one node; None when it does not answer."""
    return asyncio.run(_ask(address_of(cluster, node_id), request, options_of(cluster)))


def partitions_of(cluster: Cluster, node_id: int, topic: str) -> list[MetadataResponsePartition]:
    """Return a topic's partitions as one node knows them; empty when it does not answer."""
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    reply = ask(cluster, node_id, request)
    return [] if reply is None or not reply.topics else list(reply.topics[0].partitions)


def controller_of(cluster: Cluster) -> int | None:
    """Return the leader of the metadata quorum, from the first node that knows it."""
    for node_id in cluster.running:
        reply = ask(cluster, node_id, QUORUM)
        if reply is not None and reply.error_code == 0 and reply.topics:
            leader = int(reply.topics[0].partitions[0].leader_id)
            if leader > 0:
                return leader
    return None


class Watcher(Worker):
    """Ask all nodes; ``leaders`` has the last node that answered for each partition."""

    def __init__(self, recorder: Recorder, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__("watcher", recorder)
        self._cluster, self.topic, self._partitions = cluster, topic, partitions
        self._epochs = dict.fromkeys(range(partitions), -1)
        self.leaders: dict[int, int] = {}

    def run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for node_id in self._cluster.node_ids:
                tasks.create_task(self._watch_node(node_id))

    async def _watch_node(self, node_id: int) -> None:
        connection: Connection | None = None
        options = options_of(self._cluster)
        while not self.stopping.is_set():
            try:
                if connection is None or not connection.is_open:
                    connection = await Connection.open(
                        TcpNetwork(), address_of(self._cluster, node_id), options=options
                    )
                if -1 in self._epochs.values():
                    await self._learn(connection)
                else:
                    await self._look(node_id, connection)
            except (OSError, Fault, LoginFailed):
                pass
            await asyncio.sleep(EVERY_S)
        if connection is not None:
            with contextlib.suppress(OSError, Fault):
                await connection.close()

    async def _look(self, node_id: int, connection: Connection) -> None:
        process = f"watcher-{node_id}"
        for index in self._epochs:
            where = title(self.topic, index)
            self.recorder.add(
                Watermark(time=now(), process=process, phase=Phase.INVOKE, partition=where)
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    self.topic,
                    [ListOffsetsPartition(at, epoch, LATEST) for at, epoch in self._epochs.items()],
                )
            ],
        )
        asked = dict(self._epochs)
        reply = await connection.send(request, timeout_ms=ASK_MS_MAX)
        is_behind = False
        for each in reply.topics[0].partitions:
            is_behind |= each.error_code == ErrorCode.FENCED_LEADER_EPOCH
            if each.error_code == ErrorCode.NONE:
                epoch = asked[each.partition_index]
                self._led(node_id, each.partition_index, epoch, each.offset)
        if is_behind:
            await self._learn(connection)

    def _led(self, node_id: int, index: int, epoch: int, end: int) -> None:
        process, where = f"watcher-{node_id}", title(self.topic, index)
        self.recorder.add(Watermark(time=now(), process=process, partition=where, high=end))
        self.recorder.add(
            Leader(time=now(), process=process, partition=where, epoch=epoch, node=node_id)
        )
        self.leaders[index] = node_id

    async def _learn(self, connection: Connection) -> None:
        """Remember newer leader epochs that a node reports."""
        request = MetadataRequest([MetadataRequestTopic(name=self.topic)])
        reply = await connection.send(request, timeout_ms=ASK_MS_MAX)
        for each in reply.topics[0].partitions if reply.topics else ():
            index = each.partition_index
            self._epochs[index] = max(self._epochs[index], each.leader_epoch)


def wait_until(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Repeat until the condition is true. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.05)
    return found


def reassign_partition(cluster: Cluster, topic: str, index: int, replicas: list[int]) -> None:
    """Request other replicas; a node that does not answer has not accepted it, which is fine."""
    wanted = ReassignableTopic(topic, [ReassignablePartition(index, list(replicas))])
    request = AlterPartitionReassignmentsRequest(timeout_ms=ASK_MS_MAX, topics=[wanted])
    ask(cluster, cluster.running[0], request)


def move_replica(cluster: Cluster, node_id: int, topic: str, index: int, directory: str) -> None:
    """Ask a node to move a replica to another of its directories; as `reassign_partition`."""
    wanted = AlterReplicaLogDir(directory, [AlterReplicaLogDirTopic(topic, [index])])
    ask(cluster, node_id, AlterReplicaLogDirsRequest([wanted]))


def has_settled(cluster: Cluster, node_id: int) -> bool:
    """Return whether a node reports no replica that is moving between directories."""
    reply = ask(cluster, node_id, DescribeLogDirsRequest(topics=None))
    return reply is not None and not any(
        partition.is_future_key
        for result in reply.results
        for topic in result.topics
        for partition in topic.partitions
    )
