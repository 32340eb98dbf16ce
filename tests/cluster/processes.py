"""Nodes as real processes on this machine: format, start, kill and query them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection
from ottla.config.loading import load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import FormatPlan, format_node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.describe_quorum import ResponsePartitionData as QuorumData
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
ELECTION_MS = 1000
FETCH_MS = 600
QUICK = f"""\
controller.quorum.election.timeout.ms={ELECTION_MS}
controller.quorum.fetch.timeout.ms={FETCH_MS}
controller.quorum.election.backoff.max.ms=200
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=3000
"""


@dataclass
class NodeProcess:
    """One node: a directory, its settings, and a process while it runs."""

    node_id: int
    root: Path
    settings: str
    port: int
    process: subprocess.Popen[str] | None = None
    output: list[str] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    plan: FormatPlan | None = None

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    @property
    def directory_id(self) -> Uuid:
        assert self.plan is not None
        return self.plan.metadata_directory_id

    def format(self, quorum: Quorum | None = None) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "server.properties").write_text(self.settings)
        options = FormatOptions(cluster_id=CLUSTER_ID, quorum=quorum or Quorum())
        random = SystemRandom()
        self.plan = plan_format(load(self.settings), options, random)
        format_node(RealDisk(), random, SystemClock().now(), self.plan)

    def start(self) -> None:
        self.started.clear()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ottla.cli.main",
                "server",
                str(self.root / "server.properties"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.output.append(line)
                if line.startswith("started node"):
                    self.started.set()

    async def wait_started(self) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not self.started.is_set():
                assert self.process is not None and self.process.poll() is None, self.text
                await asyncio.sleep(0.02)

    @property
    def text(self) -> str:
        return "".join(self.output)

    def end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(SECONDS_MAX)

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    async def ask(self, request: Message, timeout_ms: int = 3000) -> Message:
        connection = await Connection.open(TcpNetwork(), self.address, client_id="test")
        try:
            response: Message = await connection.send(request, timeout_ms=timeout_ms)
        finally:
            await connection.close()
        return response


def controller_settings(node_id: int, root: Path, ports: Sequence[int], quorum: str) -> str:
    return (
        f"process.roles=controller\nnode.id={node_id}\n{quorum}"
        f"listeners=CONTROLLER://127.0.0.1:{ports[node_id - 1]}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={root / 'data'}\n{QUICK}"
    )


def broker_settings(node_id: int, root: Path, port: int, quorum: str) -> str:
    return (
        f"process.roles=broker\nnode.id={node_id}\n{quorum}"
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nlistener.security.protocol.map="
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={root / 'data'}\n{QUICK}"
    )


DESCRIBE = DescribeQuorumRequest(
    topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)


async def describe_leader(nodes: Sequence[NodeProcess]) -> tuple[NodeProcess, QuorumData] | None:
    """Ask every running controller; return the leader and its answer."""
    for node in nodes:
        if node.process is None:
            continue
        try:
            response = await node.ask(DESCRIBE, 1000)
        except (OSError, Fault):
            continue
        assert isinstance(response, DescribeQuorumResponse)
        if response.error_code == ErrorCode.NONE:
            reply = response.topics[0].partitions[0]
            leader = next((each for each in nodes if each.node_id == reply.leader_id), None)
            if leader is not None and reply.high_watermark >= 0:
                return leader, reply
    return None


async def wait_leader(
    nodes: Sequence[NodeProcess], besides: NodeProcess | None = None
) -> tuple[NodeProcess, QuorumData]:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            found = await describe_leader([node for node in nodes if node is not besides])
            if found is not None:
                return found
            await asyncio.sleep(0.02)
