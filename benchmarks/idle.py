"""The CPU share of an idle broker with thousands of partitions.

One node with all of them, and three nodes that replicate each other's: every broker hosts every
partition, leads a third and follows two thirds. One more node has five times as many, since what a
node costs at rest should not depend on their number. There are no clients. The CPU time is read
from the kernel over some time, after all partitions are in sync.
"""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.free_ports import free_ports

from benchmarks.nodes import NodeProcess
from benchmarks.report import Row, render
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

WAIT_S_MAX = 120.0
POLL_S = 0.2
# On a busy machine the reply may be late, and the client sends the request again.
MAYBE_MADE = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.TOPIC_ALREADY_EXISTS,
)
TICKS = os.sysconf("SC_CLK_TCK")
TOPIC = "idle"
# Creating a partition syncs to disk several times, which is no part of the cost of an idle one.
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Case:
    """A number of nodes with as many partitions each, and the share of a core that is allowed.

    Times are in seconds; what creating the partitions leaves to be done ends within ``settle_s``.
    """

    nodes: int
    partitions: int
    share_max: float
    settle_s: float
    measured_s: float


CASES = (
    Case(1, 2_000, 0.05, 8.0, 15.0),
    Case(3, 2_000, 0.05, 8.0, 15.0),
    Case(1, 10_000, 0.015, 20.0, 60.0),
)


def combined(folder: Path, count: int) -> list[NodeProcess]:
    """Return so many combined nodes, not formatted yet."""
    ports = free_ports(2 * count)
    clients, controllers = ports[:count], ports[count:]
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(controllers, 1))
    return [
        NodeProcess(
            i,
            folder / f"node-{i}",
            "\n".join(
                [
                    "process.roles=broker,controller",
                    f"node.id={i}",
                    f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
                    "controller.listener.names=CONTROLLER",
                    f"controller.quorum.voters={voters}",
                    "broker.session.timeout.ms=60000",
                    f"log.dirs={folder / f'node-{i}' / 'data'}",
                ]
            ),
            client,
        )
        for i, (client, controller) in enumerate(zip(clients, controllers, strict=True), 1)
    ]


async def wait_brokers(node: NodeProcess, count: int) -> None:
    """Wait until so many brokers are unfenced."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            try:
                reply = await node.ask(DescribeClusterRequest())
                assert isinstance(reply, DescribeClusterResponse)
                if len(reply.brokers) == count:
                    return
            except (OSError, Fault):
                pass
            await asyncio.sleep(POLL_S)


async def create(node: NodeProcess, partition_count: int, replicas: int) -> None:
    """Create the partitions, and wait until all have a leader and are in sync."""
    connection = await node.connect()
    try:
        made = await connection.send(
            CreateTopicsRequest([CreatableTopic(TOPIC, partition_count, replicas)], 60_000),
            timeout_ms=60_000,
        )
        assert isinstance(made, CreateTopicsResponse)
        assert made.topics[0].error_code in MAYBE_MADE, made
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
                reply = await connection.send(asked, timeout_ms=30_000)
                assert isinstance(reply, MetadataResponse)
                partitions = reply.topics[0].partitions
                in_sync = [each for each in partitions if len(each.isr_nodes) == replicas]
                if len(in_sync) == partition_count:
                    return
                await asyncio.sleep(POLL_S)
    finally:
        await connection.close()


def cpu_seconds(node: NodeProcess) -> float:
    """Return the CPU time that a node has used since its start."""
    assert node.process is not None
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def shares(nodes: Sequence[NodeProcess], case: Case) -> list[float]:
    """Return the share of a core that each idle node used."""
    await asyncio.sleep(case.settle_s)
    before = [cpu_seconds(node) for node in nodes]
    await asyncio.sleep(case.measured_s)
    after = [cpu_seconds(node) for node in nodes]
    seconds = case.measured_s
    return [(later - earlier) / seconds for earlier, later in zip(before, after, strict=True)]


async def measure(folder: Path, case: Case) -> Row:
    """Return the row of the node that used most."""
    count = case.nodes
    nodes = combined(folder, count)
    with ExitStack() as stack:
        for node in nodes:
            node.format()
            node.start()
            stack.callback(node.kill)
        await wait_brokers(nodes[0], count)
        await create(nodes[0], case.partitions, count)
        used = await shares(nodes, case)
    most = max(used)
    return Row(
        "idle",
        f"{case.partitions:,} partitions on each of {count} node{'s' if count > 1 else ''}, quiet",
        f"{most:.2%} of a core ({', '.join(f'{share:.2%}' for share in used)})",
        f"{case.share_max:.1%} allowed",
        most / case.share_max,
        "<= 1.0",
        most <= case.share_max,
    )


def run() -> list[Row]:
    """Measure every case."""
    rows = []
    for case in CASES:
        where = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=where) as folder:
            rows.append(asyncio.run(measure(Path(folder), case)))
    return rows


if __name__ == "__main__":
    print(render(run()))
