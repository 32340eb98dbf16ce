"""A cluster for tests of the source, and a simulation of Spark's engine.

`SourceCluster` creates topics and produces to them; `Engine` runs a `StreamReader` as Spark's
micro-batch engine does: an offset log written before a batch, a commit log after it, everything
through JSON and pickle, and a restart that replays batches without a commit.
"""

import json
import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.datasource import InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructField, StructType
from tests.patience import SECONDS_MAX

from ottla.spark.columns import COLUMNS, full_schema
from ottla.spark.options import SourceOptions
from ottla.spark.source import BatchReader
from ottla.spark.stream_reader import StreamReader
from ottla.testing import Cluster

PLACE = ("topic", "partition", "offset")
ROWS = StructType([StructField(each, COLUMNS[each]) for each in ("value", *PLACE)])


def wait_until(
    condition: Callable[[], object], what: str = "it", seconds: float = SECONDS_MAX
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def recently() -> int:
    """Return a timestamp in ms a minute ago, within retention and not in whole seconds."""
    return int(time.time()) * 1000 - 60_000 + 123


class SourceCluster:
    """A cluster, and topic names unique to a test."""

    def __init__(self, node: Cluster, name: str, tmp_path: Path) -> None:
        self.node = node
        self.tmp_path = tmp_path
        self.prefix = re.sub(r"[^a-zA-Z0-9]+", "-", name)[-80:] + f"-{id(self):x}"
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})

    def name(self, short: str = "t") -> str:
        return f"{self.prefix}-{short}"

    def create(self, short: str = "t", partitions: int = 1, **config: str) -> str:
        topic = self.name(short)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(SECONDS_MAX)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(SECONDS_MAX)
        wait_until(
            lambda: topic not in self.admin.list_topics(timeout=SECONDS_MAX).topics, "the deletion"
        )

    def grow(self, topic: str, partitions: int) -> None:
        made = self.admin.create_partitions([NewPartitions(topic, partitions)])
        made[topic].result(SECONDS_MAX)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        asked = ConfluentPartition(topic, partition, before)
        for future in self.admin.delete_records([asked]).values():
            future.result(SECONDS_MAX)

    def produce(
        self, topic: str, values: Iterable[object], partition: int = 0, **record: Any
    ) -> None:
        producer = Producer({"bootstrap.servers": self.node.bootstrap, "linger.ms": 1})
        for value in values:
            producer.produce(topic, str(value).encode(), partition=partition, **record)
        assert producer.flush(SECONDS_MAX) == 0

    def transact(self, topic: str, values: Iterable[object], *, commit: bool = True) -> None:
        with self.open_transaction(topic, values) as producer:
            (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS_MAX)

    @contextmanager
    def open_transaction(self, topic: str, values: Iterable[object]) -> Iterator[Producer]:
        """Write records in a transaction and leave it open; the caller may end it."""
        settings = {"bootstrap.servers": self.node.bootstrap, "transactional.id": self.name("tx")}
        producer = Producer(settings)
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, str(value).encode(), partition=0)
        producer.flush(SECONDS_MAX)
        yield producer

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        consumer = Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": group})
        try:
            asked = [ConfluentPartition(topic, partition)]
            return int(consumer.committed(asked, timeout=SECONDS_MAX)[0].offset)
        finally:
            consumer.close()

    # -- options and readers -----------------------------------------------------

    def options(self, **options: object) -> dict[str, str]:
        """Return options for Spark; ``__`` stands for a dot."""
        base = {
            "kafka.bootstrap.servers": self.node.bootstrap,
            "fetchOffset.retryIntervalMs": "20",
            # A killed broker may restart slowly on a busy machine.
            "kafka.default.api.timeout.ms": "120000",
        }
        return base | {key.replace("__", "."): str(value) for key, value in options.items()}

    def batch(self, schema: StructType = ROWS, **options: object) -> BatchReader:
        return BatchReader(SourceOptions.parse(self.options(**options)), schema)

    def rows(self, **options: object) -> list[dict[str, Any]]:
        """Read everything as a batch query, in order of topic and offset."""
        schema = full_schema(options.get("includeHeaders") == "true")
        reader = self.batch(schema, **options)
        return sorted(read_all(reader, reader.partitions()), key=place)

    def values(self, **options: object) -> list[str]:
        return [each["value"].decode() for each in self.rows(**options)]

    def engine(self, **options: object) -> "Engine":
        return Engine(self.options(**options))


def place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    topic, partition, offset = (row[each] for each in PLACE)
    return topic, partition, offset


def read_all(
    reader: BatchReader | StreamReader, partitions: Iterable[InputPartition]
) -> list[dict[str, Any]]:
    """Read partitions as tasks do: reader and partition are pickled."""
    rows: list[dict[str, Any]] = []
    for each in partitions:
        there, part = pickle.loads(pickle.dumps((reader, each)))
        for batch in there.read(part):
            rows += batch.to_pylist()
    return rows


def plan_tasks(
    reader: StreamReader, start: Any, end: Any
) -> list[Callable[[], list[dict[str, Any]]]]:
    """Plan a batch as Spark's runner does; return what each task does to get its rows."""
    partitions = reader.partitions(start, end)
    if isinstance(reader, _SimpleStreamReaderWrapper):
        rows: Any = reader.getCache(start, end)
        if rows is not None:
            assert len(partitions) == 1, "as Spark asserts"
            found = [row for batch in rows for row in batch.to_pylist()]
            return [lambda: found]
    return [partial(read_all, reader, [each]) for each in partitions]


class Crash(Exception):
    """The driver crashes here."""


class Engine:
    """A simulation of Spark's micro-batch engine for one source.

    ``offsets`` and ``commits`` are the checkpoint: they survive `restart`. ``sink`` has the rows of
    each batch by its number; a repeated batch replaces its rows, as in a file sink.
    """

    READER: ClassVar = StreamReader

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.offsets: list[str] = []
        self.commits: set[int] = set()
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.crash_at: str | None = None
        self.restart()

    def restart(self, *, available_now: bool = False, **options: object) -> "Engine":
        """Start the query again on the same checkpoint, in a new process."""
        self.options |= {key.replace("__", "."): str(value) for key, value in options.items()}
        self.reader = self.READER(SourceOptions.parse(self.options, is_stream=True), ROWS)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._recovered = False
        self._initial: str | None = None
        return self

    def _step(self, name: str) -> None:
        if self.crash_at == name:
            self.crash_at = None
            raise Crash(name)

    def _start_of(self, batch: int) -> Any:
        if batch:
            return json.loads(self.offsets[batch - 1])
        self._initial = self._initial or json.dumps(self.reader.initialOffset())
        return json.loads(self._initial)

    def trigger(self, limit: ReadLimit | None = None) -> bool:
        """Plan and run one batch, or replay one; return whether there was one."""
        if not self._recovered:
            self._recovered = True
            if self.offsets and len(self.offsets) - 1 not in self.commits:
                self._run(len(self.offsets) - 1)
                return True
        batch = len(self.offsets)
        start = self._start_of(batch)
        self._step("initial")
        if batch:
            self.reader.commit(start)
        limit = limit or self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(start, limit))
        self._step("latest")
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        self._step("logged")
        self._run(batch)
        return True

    def _run(self, batch: int) -> None:
        start, end = self._start_of(batch), json.loads(self.offsets[batch])
        tasks = plan_tasks(self.reader, start, end)
        self._step("planned")
        rows = [row for task in tasks for row in task()]
        self._step("read")
        self.sink[batch] = rows
        self._step("written")
        self.commits.add(batch)
        self._step("committed")

    def run(self) -> "Engine":
        """Trigger until no data is left."""
        while self.trigger():
            pass
        return self

    @property
    def values(self) -> list[str]:
        """All rows of the sink, sorted by topic, partition and offset."""
        rows = [row for theirs in self.sink.values() for row in theirs]
        return [row["value"].decode() for row in sorted(rows, key=place)]
