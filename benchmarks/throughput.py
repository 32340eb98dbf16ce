"""Compare the throughput of one partition, and its CPU cost, with Apache Kafka by librdkafka."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.broker.programs import measure, program
from benchmarks.report import (
    REPORTED,
    Details,
    Figures,
    Row,
    Target,
    at_least,
    at_most,
    megabytes,
    megabytes_per_second,
    seconds_per_gb,
)
from benchmarks.warm import Bench, Pair, Side, say

AREA = "throughput"
GB = 1e9
COUNTS = {100: 4_000_000, 1024: 1_000_000}
"""Records of a turn, by their size in bytes."""
READS = 3
"""How often a topic is read in a turn."""


@dataclass(frozen=True, slots=True)
class Load:
    """Records of one size, and how they are acknowledged."""

    size: int
    count: int
    acks: str

    @property
    def label(self) -> str:
        """What a row calls it."""
        return f"{self.size} B, acks={self.acks}"


@dataclass(slots=True)
class Rates:
    """The figures of one kind of work: bytes per second, and CPU seconds per GB."""

    rate: Figures = field(default_factory=Figures)
    broker: Figures = field(default_factory=Figures)
    client: Figures = field(default_factory=Figures)

    def add(self, name: str, rate: float, broker: float, client: float) -> None:
        """Add one round of a broker."""
        self.rate.add(name, rate)
        self.broker.add(name, broker)
        self.client.add(name, client)
        say(f"{name}: {rate / 1e6:,.0f} MB/s, broker {broker:.2f}, client {client:.2f} s/GB")

    def rows(self, area: str, work: str, label: str, cost: Target) -> Iterator[Row]:
        """Yield the rows on the rate, with the client's CPU, and on the broker's CPU."""
        show = Details(self.client, lambda value: f"client {seconds_per_gb(value)}")
        yield self.rate.row(area, f"{work}, {label}", megabytes_per_second, at_least(1.0), show)
        done = f"{work}d" if work.endswith("e") else work
        what = f"broker CPU per GB {done}, {label}"
        yield self.broker.row(area, what, seconds_per_gb, cost)


def run(bench: Bench) -> Iterator[Row]:
    """Yield the rows of all loads. Raises Missing."""
    program("rdload")
    pair = bench.nodes()
    for size, count in COUNTS.items():
        for acks in ("1", "all"):
            yield from _rows(pair, Load(size, bench.effort.of(count), acks))
    memory = Figures()
    for side in pair.sides:
        memory.add(side.name, float(side.rss_bytes()))
    yield memory.row(AREA, "RSS after the loads above", megabytes, REPORTED)


def warm_up(pair: Pair, size: int) -> None:
    """Warm both brokers up for records of a size."""
    load = Load(size, pair.effort.of(COUNTS[size]), "all")

    def serve(side: Side) -> float:
        with side.topic() as topic:
            served = _produce(side, topic, load)["bytes"]
            measure("rdload", "consume", side.bootstrap, topic, load.count)
        return served

    pair.warm_up(f"records of {size} B", serve)


def _rows(pair: Pair, load: Load) -> Iterator[Row]:
    warm_up(pair, load.size)
    produced, consumed = Rates(), Rates()
    for side in pair.turns(pair.effort.rounds):
        with side.topic() as topic:
            before = side.cpu_seconds()
            sent = _produce(side, topic, load)
            between = side.cpu_seconds()
            reads = [
                measure("rdload", "consume", side.bootstrap, topic, load.count)
                for _ in range(READS)
            ]
            after = side.cpu_seconds()
        gigabytes = sent["bytes"] / GB
        rate = sent["bytes"] / sent["seconds"]
        produced.add(side.name, rate, (between - before) / gigabytes, sent["cpu"] / gigabytes)
        rate = statistics.median(read["bytes"] / read["seconds"] for read in reads)
        cost = statistics.median(read["cpu"] for read in reads) / gigabytes
        consumed.add(side.name, rate, (after - between) / gigabytes / READS, cost)
    yield from produced.rows(AREA, "produce", load.label, at_most(0.7))
    yield from consumed.rows(AREA, "consume", load.label, at_most(0.7))


def _produce(side: Side, topic: str, load: Load) -> dict[str, float]:
    return measure("rdload", "produce", side.bootstrap, topic, load.size, load.count, load.acks)
