"""A cluster of three combined nodes of one kind, and requests to its nodes."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.free_ports import free_ports

from benchmarks.broker.brokers import CLUSTER_ID, Broker, kafka_java, ottla_command
from ottla.client.connection import Connection
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
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
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

NODES = (1, 2, 3)
DEBUGGER, LATEST = -2, -1
WAIT_S_MAX = 120.0
POLL_S = 0.02
QUORUM = DescribeQuorumRequest(
    topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)


class Three:
    """A cluster of three combined nodes of one kind."""

    def __init__(self, name: str, nodes: Sequence[Broker]) -> None:
        self.name = name
        self.nodes = dict(zip(NODES, nodes, strict=True))
        self._loop = asyncio.new_event_loop()
        self._lines: dict[int, Connection] = {}

    @property
    def bootstrap(self) -> str:
        """Where it serves."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def ask(self, node_id: int, request: Message, version: int | None = None) -> Any:  # noqa: ANN401
        """Send a request to one node and return its response. Raises OSError or a Fault."""
        return self._loop.run_until_complete(self._ask(node_id, request, version))

    async def _ask(self, node_id: int, request: Message, version: int | None) -> Message:
        # The connection is reused: opening one is work for the node that is measured.
        line = self._lines.get(node_id)
        if line is None or not line.is_open:
            address = Address("127.0.0.1", self.nodes[node_id].port)
            line = self._lines[node_id] = await Connection.open(TcpNetwork(), address)
        return await line.send(request, version=version, timeout_ms=30_000)

    def hang_up(self) -> None:
        """Close all connections."""

        async def close() -> None:
            for line in self._lines.values():
                await line.close()

        self._loop.run_until_complete(close())
        self._loop.close()

    def leader(self, topic: str, asked: int) -> int:
        """Return the partition's leader according to one node; -1 without a leader or an answer."""
        request = MetadataRequest(
            [MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        try:
            found = self.ask(asked, request).topics
        except (OSError, Fault):
            return -1
        return found[0].partitions[0].leader_id if found and found[0].partitions else -1

    def controller(self) -> int:
        """Return the id of the active controller."""
        return int(self.ask(1, QUORUM).topics[0].partitions[0].leader_id)

    def create(self, topic: str) -> int:
        """Create a topic with one partition on all nodes; return its leader."""
        configs = [CreatableTopicConfig("min.insync.replicas", "2")]
        made = CreateTopicsRequest([CreatableTopic(topic, 1, 3, configs=configs)], 30_000)
        self.ask(1, made)
        until(lambda: all(self.leader(topic, each) > 0 for each in NODES), f"{topic} is led")
        return self.leader(topic, 1)

    def end(self, node_id: int, topic: str) -> int:
        """Return the end offset of a replica's log; -1 without an answer."""
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, LATEST)])
        try:
            reply = self.ask(node_id, ListOffsetsRequest(replica_id=DEBUGGER, topics=[asked]))
        except (OSError, Fault):
            return -1
        row = reply.topics[0].partitions[0]
        return -1 if row.error_code else int(row.offset)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Raises TimeoutError."""
    deadline = monotonic() + WAIT_S_MAX
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(what)
        sleep(POLL_S)


def _settings(root: Path, node_id: int, ports: Sequence[int], controllers: Sequence[int]) -> Path:
    voters = ",".join(f"{i}@127.0.0.1:{p}" for i, p in zip(NODES, controllers, strict=True))
    port, controller = ports[node_id - 1], controllers[node_id - 1]
    path = root / "server.properties"
    path.write_text(
        f"""process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={root / "data"}
"""
    )
    return path


def three_of(name: str, folder: Path, settings: str = "") -> Three:
    """Return a formatted cluster, not started, with more lines of settings. Raises Missing."""
    ports, controllers = free_ports(3), free_ports(3)
    nodes = []
    for node_id in NODES:
        root = folder / f"{name}-{node_id}"
        root.mkdir(parents=True)
        path = _settings(root, node_id, ports, controllers)
        path.write_text(path.read_text() + settings)
        format_by, run_by = ottla_command() if name == "Ottla" else kafka_java(root)
        formatting = [*format_by, "format", "-t", CLUSTER_ID, "-c", str(path)]
        node = Broker(name, root, ports[node_id - 1], formatting, [*run_by, str(path)])
        node.core = None
        node.format()
        nodes.append(node)
    return Three(name, nodes)


@contextmanager
def running(three: Three) -> Iterator[None]:
    """Start all three nodes."""
    with ExitStack() as stack:
        for node in three.nodes.values():
            stack.callback(node.stop)
        stack.callback(three.hang_up)
        for node in three.nodes.values():
            node.begin()
        for node in three.nodes.values():
            node.wait()
        yield
