"""Measurements through Spark: our source and its own connector in alternation.

The same records are on a node of ours and on Apache Kafka, with three codecs. Throughput is the
wall time of a scan without a sink, on two threads; costs are the CPU time of Python's processes.
Ratios are ours over the connector's on our node; the target says which direction is good. The
connector on Apache Kafka is shown as well.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.broker.brokers import Broker, kafka, ottla, stopped_after
from benchmarks.pipeline.connector import Usage, fetch_connector, session
from benchmarks.pipeline.decoding import AREA, value
from benchmarks.report import Row, spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "lz4", "zstd")
PARTITIONS = 2
TWO = "value binary, offset bigint"
FULL_TARGET, TWO_TARGET = 1.0, 1.5
CPU_TARGET = 0.35


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: records per topic, rounds per figure, seconds per stream."""

    records: int
    rounds: int
    seconds: float


# All parts in their full form take less than 20 minutes on two idle cores.
FULL = Effort(2_000_000, 3, 20)
QUICK = Effort(1_000_000, 2, 10)


def compare(effort: Effort) -> Iterator[Row]:
    """Run both brokers and Spark, and yield the rows as they are measured. Raises Missing."""
    fetch_connector()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as place:
        root = Path(place)
        brokers = (ottla(root / "ottla"), kafka(root / "kafka"))
        with stopped_after(*brokers):
            for broker in brokers:
                broker.core = None  # Spark has two threads and takes both cores
                broker.format()
                broker.start()
                fill(broker, effort.records)
            spark = session(root / "warehouse")
            try:
                bench = Bench(spark, brokers, effort)
                yield from bench.scans()
                yield bench.cpu()
            finally:
                spark.stop()


def fill(broker: Broker, records: int) -> None:
    """Write the same records to a topic for each codec."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(codec, PARTITIONS, 1) for codec in CODECS]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": codec,
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for number in range(records):
            while True:
                try:
                    producer.produce(
                        codec, value(number), b"key-%08d" % number, partition=number % PARTITIONS
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(120):
            raise RuntimeError(f"{broker.name} did not take the records")


class Bench:
    """One session and both brokers."""

    def __init__(
        self, spark: "SparkSession", brokers: tuple[Broker, Broker], effort: Effort
    ) -> None:
        self._spark = spark
        self._ottla, self._kafka = brokers
        self._effort = effort
        self._usage = Usage(spark)

    def _read(self, name: str, broker: Broker, topic: str, *, two: bool) -> "DataFrame":
        """Return a frame with all columns and headers, or with two columns, of each source."""
        reader = (
            self._spark.read.format(name)
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
        )
        if not two:
            return reader.option("includeHeaders", "true").load()
        if name == "ottla":
            return reader.schema(TWO).load()
        return reader.load().select("value", "offset")

    def _scan(self, name: str, broker: Broker, topic: str, *, two: bool) -> Callable[[], None]:
        def work() -> None:
            nowhere(self._read(name, broker, topic, two=two))

        return work

    # -- throughput --------------------------------------------------------------

    def scans(self) -> Iterator[Row]:
        """Yield a row for each codec and choice of columns."""
        for two in (False, True):
            for codec in CODECS:
                works = (
                    self._scan("ottla", self._ottla, codec, two=two),
                    self._scan("kafka", self._ottla, codec, two=two),
                    self._scan("kafka", self._kafka, codec, two=two),
                )
                ours, here, there = turns(works, self._effort.rounds)
                yield self._scan_row(codec, two, ours, here, there)

    def _scan_row(
        self, codec: str, two: bool, ours: list[float], here: list[float], there: list[float]
    ) -> Row:
        ratios = [theirs / mine for mine, theirs in zip(ours, here, strict=True)]
        ratio, target = statistics.median(ratios), TWO_TARGET if two else FULL_TARGET
        return Row(
            AREA,
            f"scan to nowhere, {'2' if two else '8'} columns, {codec}",
            self._rate(ours),
            f"connector {self._rate(here)}, on Kafka {self._rate(there)} ({spread(ratios)})",
            ratio,
            f"at least {target}",
            ratio >= target,
        )

    def _rate(self, taken: list[float]) -> str:
        return f"{self._effort.records / statistics.median(taken) / 1e6:.2f} M/s"

    # -- costs -------------------------------------------------------------------

    def cpu(self) -> Row:
        """Return the CPU cost of Python's and of all processes for a million zstd records."""
        millions = self._effort.records / 1e6
        mine = self._cost(self._scan("ottla", self._ottla, "zstd", two=False))
        other = self._cost(self._scan("kafka", self._ottla, "zstd", two=False))
        python = statistics.median(each[1] for each in mine) / millions
        java = statistics.median(each[0] for each in mine) / millions
        theirs = statistics.median(sum(each) for each in other) / millions
        return Row(
            AREA,
            "CPU time of Python for a million records, 8 columns, zstd",
            f"{python:.2f} s, and {java:.2f} s of Java",
            f"connector {theirs:.2f} s of Java",
            python,
            f"at most {CPU_TARGET}",
            python <= CPU_TARGET,
        )

    def _cost(self, work: Callable[[], None]) -> list[tuple[float, float]]:
        found = []
        for _ in range(self._effort.rounds):
            before = self._usage.now()
            work()
            after = self._usage.now()
            found.append((after[0] - before[0], after[1] - before[1]))
        return found


def nowhere(rows: "DataFrame") -> None:
    rows.write.format("noop").mode("overwrite").save()


def turns(works: tuple[Callable[[], None], ...], rounds: int) -> list[list[float]]:
    """Time several functions in alternation, after one round to warm up."""
    taken: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, times in zip(works, taken, strict=True):
            began = perf_counter()
            work()
            if number:
                times.append(perf_counter() - began)
    return taken
