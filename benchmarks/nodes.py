"""Nodes for benchmarks: real processes that are formatted, started, queried and killed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.free_ports import free_ports

from ottla.client.connection import Connection
from ottla.config.loading import load
from ottla.node.directories.format_plan import FormatOptions, plan_format
from ottla.node.directories.formatting import format_node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.protocol.schema import Message
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
BROKER_ID = 10
WAIT_S_MAX = 30.0
POLL_S = 0.02


@dataclass
class NodeProcess:
    """One node: a directory that holds its settings, and a process while it runs."""

    node_id: int
    root: Path
    settings: str
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address("127.0.0.1", self.port)

    def format(self) -> None:
        """Format its directory."""
        self.root.mkdir(parents=True)
        (self.root / "server.properties").write_text(self.settings)
        random = SystemRandom()
        plan = plan_format(load(self.settings), FormatOptions(cluster_id=CLUSTER_ID), random)
        format_node(RealDisk(), random, SystemClock().now(), plan)

    def start(self) -> None:
        """Run ``ottla server``; its output goes to a file next to its settings."""
        command = [sys.executable, "-m", "ottla.cli.main", "server"]
        with (self.root / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [*command, str(self.root / "server.properties")], stdout=output, stderr=output
            )

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_S_MAX)
            self.process = None

    async def connect(self) -> Connection:
        """Open a connection. Raises as `Connection.open`."""
        return await Connection.open(TcpNetwork(), self.address, client_id="bench")

    async def ask(self, request: Message) -> Message:
        """Send a request once. Raises OSError or Fault if there is no answer."""
        connection = await self.connect()
        try:
            return await connection.send(request, timeout_ms=1000)
        finally:
            await connection.close()


@dataclass(frozen=True)
class Cluster:
    """Voters, and one broker that hosts partitions."""

    controllers: tuple[NodeProcess, ...]
    broker: NodeProcess

    async def leader(self) -> NodeProcess:
        """Wait for a leader that all voters follow closely; return it."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                for node in self.controllers:
                    reply = await _describe(node)
                    if reply is not None and _is_whole(reply):
                        return next(n for n in self.controllers if n.node_id == reply.leader_id)
                await asyncio.sleep(POLL_S)

    async def wait_broker(self) -> None:
        """Wait until partitions can be placed on the broker."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                with suppress(OSError, Fault):
                    reply = await self.broker.ask(DescribeClusterRequest())
                    assert isinstance(reply, DescribeClusterResponse)
                    if reply.brokers:
                        return
                await asyncio.sleep(POLL_S)


async def _describe(node: NodeProcess) -> ResponsePartitionData | None:
    """Return the leader's description of the quorum; None from any other node."""
    topic = RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])
    try:
        response = await node.ask(DescribeQuorumRequest(topics=[topic]))
    except (OSError, Fault):
        return None
    assert isinstance(response, DescribeQuorumResponse)
    reply = response.topics[0].partitions[0] if response.topics else None
    is_leader = response.error_code == ErrorCode.NONE and reply is not None
    return reply if is_leader and reply is not None and reply.leader_id == node.node_id else None


def _is_whole(reply: ResponsePartitionData) -> bool:
    ends = [voter.log_end_offset for voter in reply.current_voters]
    return reply.high_watermark > 0 and min(ends) >= reply.high_watermark - 2


def _node(node_id: int, root: Path, port: int, settings: Sequence[str]) -> NodeProcess:
    is_broker = node_id == BROKER_ID
    role, listener = ("broker", "PLAINTEXT") if is_broker else ("controller", "CONTROLLER")
    lines = [
        f"process.roles={role}",
        f"node.id={node_id}",
        f"listeners={listener}://127.0.0.1:{port}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={root / 'data'}",
        *settings,
    ]
    return NodeProcess(node_id, root, "\n".join(lines), port)


@asynccontextmanager
async def cluster(folder: Path, voters: int, settings: Sequence[str]) -> AsyncIterator[Cluster]:
    """Run so many controllers and a broker; kill them all at the end."""
    *ports, broker_port = free_ports(voters + 1)
    addresses = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports, 1))
    settings = [f"controller.quorum.voters={addresses}", *settings]
    controllers = tuple(
        _node(i, folder / f"voter-{i}", port, settings) for i, port in enumerate(ports, 1)
    )
    broker = _node(BROKER_ID, folder / "broker", broker_port, settings)
    nodes = (*controllers, broker)
    try:
        for node in nodes:
            node.format()
            node.start()
        running = Cluster(controllers, broker)
        await running.wait_broker()
        yield running
    finally:
        for node in nodes:
            node.kill()
