"""Latency of streams: from a record's timestamp until its row is visible in a sink.

A producer writes records at a steady rate to a topic with one partition and keeps the time of each.
Our source and Spark's connector read it in alternation into Spark's memory sink, as often as they
can. A row is visible when the trigger that read it ends: the start of the trigger and its duration
are in the query's progress, and so are the offsets that it read.
"""

import json
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from benchmarks.pipeline.comparison import Effort
from benchmarks.pipeline.connector import session
from benchmarks.pipeline.decoding import AREA, value
from benchmarks.pipeline.one_node import create_topics, one_node
from benchmarks.report import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = 1.0
TOPIC = "latency"
PER_SECOND = 50
WARM_BATCHES = 10
"""Batches of a query before its latencies count: Java compiles."""
STEPS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


class Feed:
    """Writes records at a steady rate; ``sent`` has the time of each in ms, by its offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")
        self.sent: list[float] = []

    def _run(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            stamp = int(time.time() * 1000)
            self._producer.produce(self._topic, value(len(self.sent)), partition=0, timestamp=stamp)
            self._producer.poll(0)
            self.sent.append(stamp)
            due += 1 / PER_SECOND

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.flush(30)


class Measured:
    """The latencies of one source in ms, and the median duration of each step of its triggers."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.steps: dict[str, list[float]] = {each: [] for each in STEPS}

    def add(self, progress: Any, sent: list[float]) -> None:  # noqa: ANN401 - of pyspark
        """Add one trigger."""
        source, durations = progress["sources"][0], progress["durationMs"]
        began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        visible = began * 1000 + durations["triggerExecution"]
        for offset in range(end_of(source["startOffset"]), end_of(source["endOffset"])):
            self.latencies.append(visible - sent[offset])
        for name in STEPS:
            self.steps[name].append(durations.get(name, 0))

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def explained(self) -> str:
        """Return the medians of the steps."""
        return ", ".join(
            f"{name} {statistics.median(each):.0f}" for name, each in self.steps.items()
        )


def end_of(offset: object) -> int:
    """Return the position in the only partition, from the offset of either source."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(found, Mapping):
        return 0
    if "topics" in found:  # ours
        (topic,) = found["topics"].values()
        return int(topic["end"]["0"])
    (partitions,) = found.values()
    return int(partitions["0"])


def measure(
    spark: "SparkSession", bootstrap: str, root: Path, effort: Effort
) -> dict[str, Measured]:
    """Run both sources in alternation, in an even number of rounds with a query each."""
    found = {"ottla": Measured(), "kafka": Measured()}
    with Feed(bootstrap, TOPIC) as feed:
        for number in range(effort.rounds + effort.rounds % 2):
            # Java still compiles in the first rounds: each source is first as often as the other.
            for name, measured in sorted(found.items(), reverse=number % 2 == 0):
                query = (
                    spark.readStream.format(name)
                    .option("kafka.bootstrap.servers", bootstrap)
                    .option("subscribe", TOPIC)
                    .load()
                    .select("value", "timestamp")
                    .writeStream.format("memory")
                    .queryName(f"latency_{name}_{number}")
                    .option("checkpointLocation", str(root / f"latency-{name}-{number}"))
                    .start()
                )
                try:
                    for progress in _batches(query, effort.seconds):
                        measured.add(progress, feed.sent)
                finally:
                    query.stop()
    return found


def _batches(query: Any, seconds: float) -> Iterator[Any]:  # noqa: ANN401 - of pyspark
    """Yield the triggers with rows of ``seconds``, after those that warm up."""
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    ends = None
    while time.monotonic() < (ends or deadline):
        time.sleep(0.2)
        for each in query.recentProgress:
            if each["batchId"] in seen or not each["numInputRows"]:
                continue
            seen.add(each["batchId"])
            if len(seen) <= WARM_BATCHES:
                continue
            ends = ends or time.monotonic() + seconds
            yield each


def latency_rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows for the median and the 99th percentile. Raises Missing."""
    with one_node() as (bootstrap, root):
        create_topics(bootstrap, {TOPIC: 1})
        spark = session(root / "warehouse")
        try:
            found = measure(spark, bootstrap, root, effort)
        finally:
            spark.stop()
    ours, theirs = found["ottla"], found["kafka"]
    for share, name in ((0.5, "median"), (0.99, "p99")):
        ratio = ours.quantile(share) / theirs.quantile(share)
        yield Row(
            AREA,
            f"record to visible row of a stream, {name}",
            f"{ours.quantile(share):.0f} ms ({ours.explained()})",
            f"connector {theirs.quantile(share):.0f} ms ({theirs.explained()})",
            ratio,
            f"at most {TARGET}",
            ratio <= TARGET,
        )
