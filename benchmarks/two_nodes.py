"""Two brokers on two cores: `ottla server --nodes 2` against `--nodes 1`, bound by their CPU.

A generator in C (`broker/pipelined.c`) sends one Produce request over and over, many in flight, to
two partitions: both on one node, or one on each of two. It shares the two cores with the brokers,
so its CPU time limits the ratio; the rows show it. The servers take turns within a round, and
nothing is pinned. A row of its own has what the machine gives to two processes that only compute
(`broker/compute.c`): more than that no two brokers can reach.

The loads are those that cost the broker much for each byte:

    small        one record of 100 bytes
    TLS          the same, each request in a TLS record of its own
    compression  20 records that the broker compresses: compression.type of the topic is not that
                 of the batch
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import trustme
from tests.free_ports import free_ports

from benchmarks.broker.brokers import (
    CLUSTER_ID,
    TICKS,
    Broker,
    Missing,
    exit_on_sigterm,
    ottla_command,
)
from benchmarks.broker.line import Line
from benchmarks.broker.programs import BUILT, program
from benchmarks.report import Row, render, spread
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.faults import Fault
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset

AREA: Final = "two_nodes"
RATIO_MIN: Final = 1.6
PORT_STEP: Final = 10
PARTITIONS: Final = 2
CONNECTIONS: Final = 16
"""To each partition."""
WINDOW: Final = 10
"""Requests in flight on a connection. Kafka's own producer allows itself 5, librdkafka any number;
the more there are, the smaller is the generator's share of the two cores."""
PRODUCE_VERSION: Final = 9
WAIT_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One load: its topic, the records of a batch, and how they are sent."""

    topic: str
    title: str
    records: int
    is_tls: bool = False
    compression: str = "producer"

    def frame(self, partition: int) -> bytes:
        """Return the request for a partition."""
        texts = [
            f'{{"id": {at}, "name": "customer {at}"}}'.ljust(100) for at in range(self.records)
        ]
        records = [
            Record(Offset(at), Millis(1_700_000_000_000), None, text.encode())
            for at, text in enumerate(texts)
        ]
        rows = [PartitionProduceData(partition, memoryview(build_batch(records)))]
        data = TopicProduceData(name=self.topic, partition_data=rows)
        header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench")
        return bytes(request_frame(header, ProduceRequest(None, 1, 30_000, [data])))

    @property
    def error_at(self) -> int:
        """Where the error code is in a reply: after size, header, counts, name and index."""
        return 4 + 5 + 1 + 1 + len(self.topic) + 1 + 4


KINDS: Final = (
    Kind("small", "small requests", 1),
    Kind("tls", "small requests over TLS", 1, is_tls=True),
    Kind("compressed", "requests that the broker compresses with gzip", 20, compression="gzip"),
)


class Machine:
    """The nodes of one `ottla server --nodes N`."""

    def __init__(self, folder: Path, count: int, store: Path) -> None:
        self.count = count
        self.port = free_ports(PORT_STEP * count)[0]
        root = folder / f"nodes-{count}"
        root.mkdir()
        settings = root / "server.properties"
        settings.write_text(
            f"""process.roles=broker,controller
node.id=1
log.dirs={root}/data
controller.quorum.bootstrap.servers=127.0.0.1:{self.port + 1}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1},\
TLS://127.0.0.1:{self.port + 2}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL
inter.broker.listener.name=PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={store}
"""
        )
        format_by, run_by = ottla_command()
        nodes = ["--nodes", str(count)]
        formatting = [*format_by, "format", *nodes, "-t", CLUSTER_ID, "-c", str(settings)]
        self.server = Broker(
            f"--nodes {count}",
            root,
            self.port,
            [*formatting, "--standalone"],
            [*run_by, str(settings), *nodes],
            core=None,
        )

    def ports(self, kind: Kind) -> list[int]:
        """Return the port of the leader of each partition."""
        first = self.port + (2 if kind.is_tls else 0)
        return [first + PORT_STEP * (at % self.count) for at in range(PARTITIONS)]

    def create(self) -> None:
        """Wait for all brokers, and create the topic of every load."""
        deadline = monotonic() + WAIT_S_MAX
        while not self._are_there():
            assert monotonic() < deadline, self.server.said()[-2000:]
            sleep(0.05)
        line = Line(self.server)
        topics = [
            CreatableTopic(
                kind.topic,
                -1,
                -1,
                [CreatableReplicaAssignment(at, [1 + at % self.count]) for at in range(PARTITIONS)],
                [CreatableTopicConfig("compression.type", kind.compression)],
            )
            for kind in KINDS
        ]
        reply = line.ask(CreateTopicsRequest(topics, 30_000), CreateTopicsResponse)
        assert not any(each.error_code for each in reply.topics), reply
        line.close()
        sleep(1.0)

    def _are_there(self) -> bool:
        try:
            line = Line(self.server)
            reply = line.ask(DescribeClusterRequest(), DescribeClusterResponse)
            line.close()
        except (OSError, Fault):
            return False
        return len(reply.brokers) == self.count

    def cpu_seconds(self) -> float:
        """Return the CPU time of the supervisor and its nodes so far."""
        process = self.server.process
        assert process is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        total = self.server.cpu_seconds()
        for pid in children:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total


@dataclass(frozen=True, slots=True)
class Found:
    """Requests per second, and how many cores the brokers and the generator used."""

    rate: float
    brokers: float
    generator: float


def send(machine: Machine, kind: Kind, folder: Path, seconds: float) -> Found:
    """Send a load for so long; return its figures."""
    targets = []
    for partition, port in enumerate(machine.ports(kind)):
        path = folder / f"{kind.topic}-{partition}"
        path.write_bytes(kind.frame(partition))
        targets.append(f"{port}={path}")
    how = "tls" if kind.is_tls else "plain"
    options = [str(seconds), str(CONNECTIONS), str(WINDOW), str(kind.error_at), how]
    before = machine.cpu_seconds()
    done = subprocess.run(
        [program("pipelined"), *options, *targets],
        capture_output=True,
        text=True,
        timeout=seconds + WAIT_S_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"pipelined {kind.topic}: {done.stderr[-500:]}")
    used = machine.cpu_seconds() - before
    found = dict(part.split(": ") for part in done.stdout.strip(" {}\n").split(", "))
    return Found(float(found['"rate"']), used / seconds, float(found['"cpu"']))


@contextmanager
def machines(folder: Path) -> Iterator[list[Machine]]:
    """Run a server with one node and one with two."""
    leaf = trustme.CA().issue_cert("127.0.0.1")
    store = folder / "node.pem"
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    store.write_bytes(leaf.private_key_pem.bytes() + chain)
    with ExitStack() as stack:
        found = [Machine(folder, count, store) for count in (1, 2)]
        for machine in found:
            machine.server.format()
            machine.server.begin()
            stack.callback(machine.server.stop)
        for machine in found:
            machine.server.wait()
            machine.create()
        yield found


def run(rounds: int = 5, seconds: float = 4.0) -> list[Row]:
    """Return a row for each load."""
    if (os.cpu_count() or 1) < 2:
        print(f"{AREA}: not measured, the machine has one core", file=sys.stderr)
        return []
    try:
        program("pipelined")
    except Missing as error:
        print(f"{AREA}: not measured, {error}", file=sys.stderr)
        return []
    assert BUILT.exists()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        folder = Path(name)
        with machines(folder) as (one, two):
            rows = [_row(kind, one, two, folder, rounds, seconds) for kind in KINDS]
    return [*rows, _control(rounds, seconds / 2)]


def _control(rounds: int, seconds: float) -> Row:
    """Return the row of processes that only compute: two at a time against one."""
    singles, pairs = [], []
    for _ in range(rounds):
        singles.append(_compute(1, seconds))
        pairs.append(_compute(2, seconds))
    ratios = [b / a for a, b in zip(singles, pairs, strict=True)]
    return Row(
        AREA,
        "two processes that only compute, the most that the machine gives",
        f"{statistics.median(pairs):,.0f} thousand steps per s ({spread(ratios)})",
        f"one process, {statistics.median(singles):,.0f}",
        statistics.median(ratios),
        "reported",
        True,
    )


def _compute(count: int, seconds: float) -> float:
    command = [program("compute"), str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return sum(float(each.communicate(timeout=seconds + WAIT_S_MAX)[0]) for each in running)


def _row(kind: Kind, one: Machine, two: Machine, folder: Path, rounds: int, seconds: float) -> Row:
    singles: list[Found] = []
    pairs: list[Found] = []
    for turn in range(rounds + 1):  # the first warms up
        for machine, taken in ((one, singles), (two, pairs)):
            found = send(machine, kind, folder, seconds if turn else 1.0)
            if turn:
                taken.append(found)
                print(f"{AREA}: {kind.topic} {machine.server.name}: {found}", file=sys.stderr)
    ratios = [b.rate / a.rate for a, b in zip(singles, pairs, strict=True)]
    ratio = statistics.median(ratios)
    return Row(
        AREA,
        f"two nodes on two cores, {kind.title}",
        f"{_rate(pairs)}, {_cores(pairs)} ({spread(ratios)})",
        f"one node, {_rate(singles)}, {_cores(singles)}",
        ratio,
        f"at least {RATIO_MIN}",
        ratio >= RATIO_MIN,
    )


def _rate(found: Sequence[Found]) -> str:
    return f"{statistics.median(each.rate for each in found):,.0f} per s"


def _cores(found: Sequence[Found]) -> str:
    brokers = statistics.median(each.brokers for each in found)
    generator = statistics.median(each.generator for each in found)
    return f"{brokers:.2f} cores and {generator:.2f} of the generator"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load in a round")
    arguments = parser.parse_args()
    exit_on_sigterm()
    rows = run(arguments.rounds, arguments.seconds)
    print(render(rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
