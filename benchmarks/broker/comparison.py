"""The measurements of both brokers and their rows.

Every figure is measured on the two brokers in alternation inside one run. Ratios are ours over
theirs, for throughput and for costs; the target says which direction is good.
"""

import asyncio
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.broker.brokers import BROKER_CORE, Broker, kafka, ottla, pinned, stopped_after
from benchmarks.broker.programs import measure, program
from benchmarks.report import Row, spread
from ottla.client.connection import Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

AREA = "broker"
GB = 1e9
MB = 1e6
PRODUCE_VERSION = 9
CONNECTIONS = (1, 4, 16)
# How often a topic is read per round: one read with --quick takes a tenth of a second, and measures
# the client's threads rather than the broker.
READS = 3
# The size of a Produce v9 reply for one partition; the bare server sends as much.
REPLY_BYTES = 60


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure. ``counts`` are records by size in bytes."""

    rounds: int
    counts: dict[int, int]
    request_seconds: float
    latency_count: int
    latency_rate: int = 1000


FULL = Effort(5, {100: 2_000_000, 1024: 600_000}, 4.0, 20_000)
QUICK = Effort(2, {100: 300_000, 1024: 100_000}, 1.5, 3_000)


@dataclass(slots=True)
class Figures:
    """One figure of both brokers, round by round."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def of(self, broker: Broker) -> list[float]:
        """Return the list of a broker."""
        return self.ours if broker.name == "Ottla" else self.theirs

    @property
    def ratios(self) -> list[float]:
        """Return ours over theirs in every round."""
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    def row(
        self, what: str, show: Callable[[float], str], target: str, met: Callable[[float], bool]
    ) -> Row:
        """Return the row of the medians."""
        ratio = statistics.median(self.ratios)
        return Row(
            AREA,
            what,
            f"{show(statistics.median(self.ours))} ({spread(self.ratios)})",
            f"Kafka, {show(statistics.median(self.theirs))}",
            ratio,
            target,
            met(ratio),
        )


def create_topic(broker: Broker, name: str) -> None:
    """Create a topic with one partition."""

    async def create() -> None:
        address = Address("127.0.0.1", broker.port)
        connection = await Connection.open(TcpNetwork(), address, client_id="bench")
        try:
            request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 30_000)
            await connection.send(request, timeout_ms=30_000)
        finally:
            await connection.close()

    asyncio.run(create())


# -- throughput ----------------------------------------------------------------------


def throughput(brokers: Sequence[Broker], effort: Effort) -> list[Row]:
    """Return rows on producing and consuming through librdkafka, and their CPU cost."""
    rows = []
    for size, count in effort.counts.items():
        for acks in ("1", "all"):
            rows += _throughput(brokers, effort.rounds, (size, count, acks))
    return rows


def _throughput(brokers: Sequence[Broker], rounds: int, load: tuple[int, int, str]) -> list[Row]:
    size, count, acks = load
    sent, read, sent_cpu, read_cpu = Figures(), Figures(), Figures(), Figures()
    # The first round is not counted: it warms up the JVM and the page cache.
    for turn in range(rounds + 1):
        for broker in brokers:
            topic = f"t-{size}-{acks}-{turn}"
            create_topic(broker, topic)
            before = broker.cpu_seconds()
            made = measure("rdload", "produce", broker.bootstrap, topic, size, count, acks)
            between = broker.cpu_seconds()
            got = [_consume(broker, topic, count) for _ in range(READS)]
            after = broker.cpu_seconds()
            if turn:
                sent.of(broker).append(made["bytes"] / made["seconds"])
                read.of(broker).append(statistics.median(got))
                sent_cpu.of(broker).append((between - before) / (made["bytes"] / GB))
                read_cpu.of(broker).append((after - between) / (READS * made["bytes"] / GB))
    label = f"{size} B, acks={acks}"
    return [
        sent.row(f"produce, {label}", _rate, "at least 1.0", lambda r: r >= 1.0),
        sent_cpu.row(f"CPU per GB produced, {label}", _cost, "at most 0.7", lambda r: r <= 0.7),
        read.row(f"consume, {label}", _rate, "at least 1.0", lambda r: r >= 1.0),
        read_cpu.row(f"CPU per GB consumed, {label}", _cost, "at most 0.7", lambda r: r <= 0.7),
    ]


def _consume(broker: Broker, topic: str, count: int) -> float:
    """Read a topic; return the bytes per second."""
    got = measure("rdload", "consume", broker.bootstrap, topic, count)
    return got["bytes"] / got["seconds"]


def _rate(value: float) -> str:
    return f"{value / MB:,.0f} MB/s"


def _cost(value: float) -> str:
    return f"{value:.2f} s/GB"


# -- small requests ------------------------------------------------------------------


def small_request(topic: str) -> bytes:
    """Return the frame of a Produce of one record of 100 bytes, acks=1."""
    batch = build_batch([Record(Offset(0), Millis(1_700_000_000_000), None, b"x" * 100)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(batch))])
    header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench")
    return bytes(request_frame(header, ProduceRequest(None, 1, 30_000, [data])))


def small_requests(brokers: Sequence[Broker], effort: Effort, folder: Path) -> list[Row]:
    """Return rows on one small Produce after the other over some connections."""
    frame = folder / "frame"
    frame.write_bytes(small_request("small"))
    for broker in brokers:
        create_topic(broker, "small")
    rows = []
    command = [*pinned(BROKER_CORE), program("bare_server"), str(folder / "bare"), str(REPLY_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bare:
        try:
            assert bare.stdout is not None
            port = int(bare.stdout.readline())
            for connections in CONNECTIONS:
                rows += _small_requests(brokers, effort, frame, (connections, port))
        finally:
            bare.kill()
    return rows


def _small_requests(
    brokers: Sequence[Broker], effort: Effort, frame: Path, where: tuple[int, int]
) -> list[Row]:
    connections, bare_port = where
    rates, slowest, bare, p99 = Figures(), Figures(), list[float](), list[float]()
    for turn in range(effort.rounds + 1):
        ports = [(broker, broker.port) for broker in brokers]
        for broker, port in ports:
            arguments = ("127.0.0.1", port, frame, connections, effort.request_seconds)
            reply = measure("requests", *arguments)
            if turn:
                rates.of(broker).append(reply["rate"])
                slowest.of(broker).append(reply["p99"])
        arguments = ("127.0.0.1", bare_port, frame, connections, effort.request_seconds)
        reply = measure("requests", *arguments)
        if turn:
            bare.append(reply["rate"])
            p99.append(reply["p99"])
    label = f"small Produce over {connections} connections"
    shares = [mine / limit for mine, limit in zip(rates.ours, bare, strict=True)]
    ours = statistics.median(rates.ours)
    is_sixteen = connections == max(CONNECTIONS)
    limit = Row(
        AREA,
        f"{label}, of the bare C server",
        f"{ours:,.0f} per s ({spread(shares)})",
        f"{statistics.median(bare):,.0f} per s",
        statistics.median(shares),
        "at least 25,000 per s and 0.3" if is_sixteen else "reported",
        (ours >= 25_000 and statistics.median(shares) >= 0.3) if is_sixteen else True,
    )
    return [
        rates.row(label, lambda v: f"{v:,.0f} per s", "reported", lambda _: True),
        slowest.row(f"{label}, p99", _milliseconds, "reported", lambda _: True),
        limit,
    ]


def _milliseconds(value: float) -> str:
    return f"{value * 1000:.2f} ms"


# -- latency, start, memory --------------------------------------------------------------


def latency(brokers: Sequence[Broker], effort: Effort) -> list[Row]:
    """Return rows on the latency from producer to consumer."""
    found = {"p50": Figures(), "p99": Figures(), "p999": Figures()}
    for turn in range(effort.rounds + 1):
        for broker in brokers:
            topic = f"latency-{turn}"
            create_topic(broker, topic)
            arguments = (broker.bootstrap, topic, effort.latency_count, effort.latency_rate, "1")
            reply = measure("rdload", "latency", *arguments)
            if turn:
                for name, figures in found.items():
                    figures.of(broker).append(reply[name])
    label = f"end to end at {effort.latency_rate} per s"
    return [
        found["p50"].row(f"{label}, p50", _milliseconds, "reported", lambda _: True),
        found["p99"].row(f"{label}, p99", _milliseconds, "at most 1.0", lambda r: r <= 1.0),
        found["p999"].row(f"{label}, p99.9", _milliseconds, "reported", lambda _: True),
    ]


def starts(brokers: Sequence[Broker], rounds: int) -> list[Row]:
    """Return rows on starting and on memory; leaves the brokers running."""
    times, idle = Figures(), Figures()
    for turn in range(rounds):
        for broker in brokers:
            times.of(broker).append(broker.start())
            idle.of(broker).append(float(broker.rss_bytes()))
            if turn < rounds - 1:
                broker.stop()
    ours = statistics.median(times.ours)
    rss = statistics.median(idle.ours)
    return [
        times.row(
            "start to first reply",
            lambda v: f"{v * 1000:,.0f} ms",
            "at most 0.1 and under 250 ms",
            lambda r: r <= 0.1 and ours < 0.250,
        ),
        idle.row("RSS after start", _megabytes, "under 60 MB", lambda _: rss < 60 * MB),
    ]


def loaded_memory(brokers: Sequence[Broker]) -> Row:
    """Return the row on memory after everything else."""
    figures = Figures()
    for broker in brokers:
        figures.of(broker).append(float(broker.rss_bytes()))
    return figures.row("RSS after all loads", _megabytes, "reported", lambda _: True)


def _megabytes(value: float) -> str:
    return f"{value / MB:,.0f} MB"


def compare(effort: Effort) -> list[Row]:
    """Run everything; return all rows. Raises Missing before anything is started."""
    for name in ("rdload", "requests", "bare_server"):
        program(name)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
        folder = Path(temporary)
        brokers = (ottla(folder / "ottla"), kafka(folder / "kafka"))
        with stopped_after(*brokers):
            for broker in brokers:
                broker.format()
            rows = starts(brokers, effort.rounds)
            rows += throughput(brokers, effort)
            rows += small_requests(brokers, effort, folder)
            rows += latency(brokers, effort)
            rows.append(loaded_memory(brokers))
    return rows
