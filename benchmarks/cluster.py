"""Compare clusters of three nodes with Apache Kafka: replicated writes, failover, catching up.

Each round runs one cluster after the other, alone on the machine, with default settings except
those of a cluster of three: one partition with three replicas, min.insync.replicas=2, acks=all.
Catching up is compared with the loopback: sendfile to a reader that drops the bytes, and to one
that does only what every follower must do. Before each measurement all writes are on disk, and the
memory that will be needed has been touched: a virtual machine gets unused memory from its host at
a tenth of the speed, which would hide everything else.
"""

import argparse
import asyncio
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from tests.free_ports import free_ports

from benchmarks.broker.brokers import (
    CLUSTER_ID,
    Broker,
    Missing,
    fetch_jars,
    kafka_java,
    ottla_command,
)
from benchmarks.broker.comparison import Figures
from benchmarks.broker.programs import measure, program
from benchmarks.report import Row, render, spread
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
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.crc import crc32c
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Offset
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

AREA = "cluster"
NODES = (1, 2, 3)
MB, GB = 1e6, 1e9
RECORD_BYTES = 1024
DEBUGGER, LATEST = -2, -1
PRODUCE_VERSION = 9
WAIT_S_MAX = 120.0
POLL_S = 0.02
QUORUM = DescribeQuorumRequest(
    topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds, records written, bytes that a follower has to fetch."""

    rounds: int
    records: int
    behind_bytes: int


FULL = Effort(3, 600_000, 1_000_000_000)
QUICK = Effort(1, 100_000, 300_000_000)


# -- three nodes -----------------------------------------------------------------------


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


def three_of(name: str, folder: Path) -> Three:
    """Return a formatted cluster that is not started. Raises Missing."""
    ports, controllers = free_ports(3), free_ports(3)
    nodes = []
    for node_id in NODES:
        root = folder / f"{name}-{node_id}"
        root.mkdir(parents=True)
        settings = str(_settings(root, node_id, ports, controllers))
        format_by, run_by = ottla_command() if name == "Ottla" else kafka_java(root)
        formatting = [*format_by, "format", "-t", CLUSTER_ID, "-c", settings]
        node = Broker(name, root, ports[node_id - 1], formatting, [*run_by, settings])
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


# -- measurements ------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """The figures of all rounds."""

    written: Figures = field(default_factory=Figures)
    failed_over: Figures = field(default_factory=Figures)
    caught_up: Figures = field(default_factory=Figures)
    follower_cpu: Figures = field(default_factory=Figures)
    leader_cpu: Figures = field(default_factory=Figures)
    shares: list[float] = field(default_factory=list)
    least_shares: list[float] = field(default_factory=list)


def write(three: Three, effort: Effort) -> float:
    """Return the bytes a second that a producer writes with acks=all, once warm."""
    three.create("written")
    for count in (effort.records // 4, effort.records):
        reply = measure("rdload", "produce", three.bootstrap, "written", RECORD_BYTES, count, "all")
    return reply["bytes"] / reply["seconds"]


def fail_over(three: Three) -> float:
    """Return the seconds from the kill of a leader to the first acknowledged write.

    The leader is not the active controller: a partition fails over, not the quorum.
    """
    controller = three.controller()
    topic = "led"
    for attempt in range(20):
        topic = f"led-{attempt}"
        if three.create(topic) != controller:
            break
    dead = three.leader(topic, controller)
    until(lambda: _is_written(three, topic, dead), "the first write")
    process = three.nodes[dead].process
    assert process is not None
    process.kill()
    began = perf_counter()
    process.wait()

    def is_over() -> bool:
        leader = three.leader(topic, controller)
        return leader not in (-1, dead) and _is_written(three, topic, leader)

    until(is_over, "a write behind the death of a leader")
    taken = perf_counter() - began
    three.nodes[dead].start()
    return taken


def _is_written(three: Three, topic: str, leader: int) -> bool:
    batch = build_batch([Record(Offset(0), Millis(1_700_000_000_000), None, b"x" * 100)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(batch))])
    try:
        reply = three.ask(leader, ProduceRequest(None, -1, 5_000, [data]), PRODUCE_VERSION)
    except (OSError, Fault):
        return False
    return not reply.responses[0].partition_responses[0].error_code


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Bytes per second, and CPU seconds per GB of the follower and of the leader."""

    rate: float
    follower_cpu: float
    leader_cpu: float


def touch(folder: Path, size: int) -> None:
    """Touch the memory that files will need, and write back all dirty pages."""
    os.sync()
    block = bytes(1 << 18)
    with (folder / "touched").open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
    (folder / "touched").unlink()


def catch_up(three: Three, folder: Path, effort: Effort) -> CatchUp:
    """Measure how a stopped follower catches up."""
    leader = three.create("missed")
    away = next(each for each in NODES if each not in (leader, three.controller()))
    three.nodes[away].stop()
    count = effort.behind_bytes // RECORD_BYTES
    # The other two are enough for min.insync.replicas.
    measure("rdload", "produce", three.bootstrap, "missed", RECORD_BYTES, count, "all")
    wanted = three.end(leader, "missed")
    touch(folder, effort.behind_bytes * 3 // 2)
    three.nodes[away].start()
    until(lambda: three.end(away, "missed") > 0, "the follower begins")
    nodes = three.nodes[away], three.nodes[leader]
    start, before = three.end(away, "missed"), [node.cpu_seconds() for node in nodes]
    began = perf_counter()
    until(lambda: three.end(away, "missed") >= wanted, "the follower has caught up")
    taken = perf_counter() - began
    got = (wanted - start) * RECORD_BYTES
    used = [node.cpu_seconds() - was for node, was in zip(nodes, before, strict=True)]
    return CatchUp(got / taken, *(each * GB / got for each in used))


def loopback(folder: Path, size: int, take: Callable[[memoryview], object] = len) -> float:
    """Return the bytes per second of sendfile over loopback to a reader with large buffers."""
    with (folder / "bare").open("w+b") as file, socket.create_server(("127.0.0.1", 0)) as server:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            file.write(block)
        file.flush()
        touch(folder, size * 3 // 2)
        child = os.fork()
        if child == 0:
            _send_all(server.getsockname()[1], file.fileno(), size >> 20 << 20)
        line, _ = server.accept()
        with line:
            room, began = memoryview(bytearray(1 << 20)), perf_counter()
            while count := line.recv_into(room):
                take(room[:count])
            taken = perf_counter() - began
        os.waitpid(child, 0)
    (folder / "bare").unlink()
    return (size >> 20 << 20) / taken


def least(folder: Path, size: int) -> float:
    """Return the bytes per second of a reader that only checks the CRC and writes."""
    with (folder / "least").open("wb", buffering=0) as file:

        def take(data: memoryview) -> None:
            crc32c(data, 0, len(data))
            for start in range(0, len(data), 1 << 18):
                file.write(data[start : start + (1 << 18)])

        rate = loopback(folder, size, take)
    (folder / "least").unlink()
    return rate


def _send_all(port: int, file: int, size: int) -> None:
    """Send a file and exit, in a child process."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        sent = 0
        while sent < size:
            sent += os.sendfile(line.fileno(), file, sent, size - sent)
    os._exit(0)


def _round(name: str, folder: Path, effort: Effort, found: Found) -> None:
    three = three_of(name, folder)
    place = next(iter(three.nodes.values()))
    with running(three):
        _note(found.written.of(place), write(three, effort), f"{name} writes, B/s")
        _note(found.failed_over.of(place), fail_over(three), f"{name} fails over, s")
        caught = catch_up(three, folder, effort)
        _note(found.caught_up.of(place), caught.rate, f"{name} catches up, B/s")
        _note(found.follower_cpu.of(place), caught.follower_cpu, f"{name} follower, s/GB")
        _note(found.leader_cpu.of(place), caught.leader_cpu, f"{name} leader, s/GB")
        if name == "Ottla":
            found.shares.append(caught.rate / loopback(folder, effort.behind_bytes))
            found.least_shares.append(caught.rate / least(folder, effort.behind_bytes))


def _note(figures: list[float], value: float, what: str) -> None:
    """Record a figure and print it, as a round takes minutes."""
    figures.append(value)
    print(f"{AREA}: {what}: {value:,.1f}", file=sys.stderr, flush=True)


def _rate(value: float) -> str:
    return f"{value / MB:,.0f} MB/s"


def _seconds_a_gb(value: float) -> str:
    return f"{value:.2f} s/GB"


def _rows(found: Found) -> list[Row]:
    rows = [
        found.written.row("3 replicas, acks=all", _rate, "at least 0.8", lambda r: r >= 0.8),
        found.failed_over.row(
            "leader killed to first write",
            lambda v: f"{v:.1f} s",
            "at most 1.0",
            lambda r: r <= 1.0,
        ),
        found.caught_up.row("a follower catches up", _rate, "reported", lambda _: True),
        found.follower_cpu.row(
            "a follower catches up, its CPU time", _seconds_a_gb, "reported", lambda _: True
        ),
        found.leader_cpu.row(
            "a follower catches up, its leader's", _seconds_a_gb, "reported", lambda _: True
        ),
    ]
    return [_of_area(row) for row in rows] + [
        _share_row(found, "of bare loopback sendfile", found.shares, 0.5),
        _share_row(found, "of receive, CRC and write", found.least_shares, 0.0),
    ]


def _share_row(found: Found, of: str, shares: Sequence[float], least_share: float) -> Row:
    share, ours = statistics.median(shares), statistics.median(found.caught_up.ours)
    return Row(
        AREA,
        f"a follower catches up, {of}",
        f"{_rate(ours)} ({spread(shares)})",
        _rate(ours / share),
        share,
        f"at least {least_share}" if least_share else "reported",
        share >= least_share,
    )


def _of_area(row: Row) -> Row:
    return Row(AREA, row.what, row.measured, row.reference, row.ratio, row.target, row.met)


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; none, with the reason on stderr, if Java or a compiler is missing."""
    try:
        program("rdload")
        fetch_jars()
    except Missing as error:
        print(f"{AREA}: not measured, {error}", file=sys.stderr)
        return []
    found = Found()
    for _ in range(effort.rounds):
        for name in ("Ottla", "Kafka"):
            with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
                _round(name, Path(folder), effort, found)
    return _rows(found)


def main() -> int:
    """Measure and print the table; fail if a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    rows = run(QUICK if parser.parse_args().quick else FULL)
    print(render(rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
