"""Small micro-batches are read beside the driver, with the same rows as tasks would read."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from source_cluster import Crash, Engine, SourceCluster, read_all

from ottla.client.offset_spec import Range
from ottla.protocol.types import TopicPartition
from ottla.spark.columns import full_schema
from ottla.spark.options import SourceOptions
from ottla.spark.prefetch import collect, is_small
from ottla.spark.stream_offsets import BadStreamOffset, from_json
from ottla.spark.stream_reader import StreamReader, survives_arrow


def options(**given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    return SourceOptions.parse(base | given, is_stream=True)


def ranges(*sizes: int) -> list[Range]:
    return [Range(TopicPartition("a", at), 5, 5 + size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "given", "expected"),
    [
        ([1000], {}, True),
        ([1001], {}, False),
        ([50, 50], {}, True),
        ([50, 51], {}, False),
        ([1] * 8, {}, True),
        ([1] * 9, {}, False),
        ([], {}, False),
        ([7], {"prefetchRecords": "7"}, True),
        ([8], {"prefetchRecords": "7"}, False),
        ([1], {"prefetchRecords": "0"}, False),
        ([1], {"minPartitions": "1"}, False),
        ([3], {"maxRecordsPerPartition": "3"}, True),
        ([2, 2], {"maxRecordsPerPartition": "3"}, False),
        ([1], {"tier": "direct", "tierPath": "/logs"}, False),
    ],
)
def test_only_small_batches_are_prefetched(
    sizes: list[int], given: dict[str, str], expected: bool
) -> None:
    assert is_small(ranges(*sizes), options(**given)) is expected


def test_rows_of_a_table_of_the_catalog_are_read_by_tasks() -> None:
    """Its columns have metadata, which Spark compares and Arrow does not carry."""
    schema = StructType.fromJson(full_schema(include_headers=False).jsonValue())
    assert survives_arrow(schema)
    schema.fields[0].metadata = {"ottla.options": "{}"}
    assert not survives_arrow(schema)


def test_prefetching_ends_at_its_limit() -> None:
    batch = pa.record_batch({"value": [b"x" * 1000]})
    size = batch.nbytes
    assert collect(iter([batch, batch]), 2 * size) == (batch, batch)
    left = iter([batch] * 9)
    assert collect(left, 2 * size - 1) is None
    assert len(list(left)) == 7, "nothing more is fetched"


def started(cluster: SourceCluster, **given: object) -> tuple[StreamReader, Any, Any]:
    """Return a reader with all columns, and the start and the end of its first batch."""
    parsed = SourceOptions.parse(
        cluster.options(startingOffsets="earliest", **given), is_stream=True
    )
    reader = StreamReader(parsed, full_schema(parsed.include_headers))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return reader, json.loads(json.dumps(start)), json.loads(json.dumps(end))


def handed_over(reader: StreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    assert isinstance(reader, _SimpleStreamReaderWrapper), "Spark asks for no rows"
    rows: Any = reader.getCache(start, end)
    return [row for batch in rows for row in batch.to_pylist()]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_prefetched_rows_are_those_of_a_task(cluster: SourceCluster, isolation: str) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, ["a", "b"], 0, key=b"k", headers=[("h", b"x"), ("n", None)])
    cluster.transact(topic, ["aborted"], commit=False)
    cluster.transact(topic, ["committed"])
    cluster.produce(topic, range(5), 1)
    given = {"subscribe": topic, "includeHeaders": "true", "isolation": isolation}
    reader, start, end = started(cluster, **given)
    (task,) = reader.partitions(start, end)
    rows = handed_over(reader, start, end)
    values = [row["value"].decode() for row in rows]
    aborted = ["aborted"] if isolation == "read_uncommitted" else []
    assert values == ["a", "b", *aborted, "committed", *map(str, range(5))]
    assert rows[0]["headers"] == [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]
    assert read_all(reader, [task]) == rows, "the task reads itself if the rows are lost"
    replaying = StreamReader(reader._options, reader._schema)
    assert read_all(replaying, replaying.partitions(start, end)) == rows


def test_rows_are_handed_over_once_and_the_lag_stays_known(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(3))
    reader, start, end = started(cluster, subscribe=topic)
    assert not isinstance(reader, _SimpleStreamReaderWrapper)
    reader.partitions(start, end)
    assert isinstance(reader, SupportsTriggerAvailableNow)
    assert len(handed_over(reader, start, end)) == 3
    assert type(reader) is StreamReader, "Spark asks it for the latest offset again"
    assert from_json(reader.reportLatestOffset()).ends == {TopicPartition(topic, 0): 3}
    (task,) = reader.partitions(start, end)
    assert type(reader) is StreamReader
    assert len(read_all(reader, [task])) == 3


def test_replay_of_a_prefetched_batch_keeps_its_one_task(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=3)
    for number in range(3):
        cluster.produce(topic, range(4), number)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest")
    engine.crash_at = "planned"
    with pytest.raises(Crash):
        engine.trigger()
    cluster.produce(topic, range(4, 9), 1)
    engine.restart(minPartitions=6, prefetchRecords=0)
    start, end = engine._start_of(0), json.loads(engine.offsets[0])
    assert len(engine.reader.partitions(start, end)) == 1
    engine.run()
    assert [len(rows) for _, rows in sorted(engine.sink.items())] == [12, 5]


def test_expired_part_of_a_replayed_prefetched_batch_is_left_out(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(4), 0)
    cluster.produce(topic, ["x"], 1)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    engine.crash_at = "planned"
    with pytest.raises(Crash):
        engine.trigger()
    cluster.delete_records(topic, 4, 0)
    engine.restart().run()
    assert engine.values == ["x"]


def plan_of(engine: Engine) -> list[int]:
    """Run one batch; return the number of rows of each of its tasks."""
    assert engine.trigger()
    return [len(read_all(engine.reader, [each])) for each in engine.reader.partitions(
        engine._start_of(0), json.loads(engine.offsets[0])
    )]  # fmt: skip


def test_large_records_are_left_to_tasks(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, ["x" * 400_000] * 3, 0)
    cluster.produce(topic, ["y"], 1)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest")
    assert plan_of(engine) == [3, 1]
    assert len(engine.values) == 4


def test_large_partitions_are_cut_and_not_prefetched(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, ["x" * 1000] * 20)
    engine = cluster.engine(
        subscribe=topic, startingOffsets="earliest", maxBytesPerPartition=10_500
    )
    assert plan_of(engine) == [10, 10]


def test_failed_prefetch_is_left_to_tasks(
    cluster: SourceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Iterator[object]:
        raise OSError("the connection broke")

    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(2), 0)
    cluster.produce(topic, range(2, 5), 1)
    monkeypatch.setattr("ottla.spark.stream_reader.fetch_range", fail)
    engine = cluster.engine(subscribe=topic, startingOffsets="earliest")
    assert plan_of(engine) == [2, 3]
    assert engine.values == list("01234")


def test_spark_without_the_private_class_reads_in_tasks(
    cluster: SourceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(2), 0)
    cluster.produce(topic, range(2, 5), 1)
    monkeypatch.setattr("ottla.spark.stream_reader.HAS_PREFETCH", False)
    assert plan_of(cluster.engine(subscribe=topic, startingOffsets="earliest")) == [2, 3]


def test_offset_of_a_prefetched_batch_is_checked() -> None:
    topics = {"a": {"id": "", "start": {"0": 1}, "end": {"0": 2}, "pieces": {}}}
    assert from_json({"version": 1, "joined": True, "topics": topics}).is_joined
    assert not from_json({"version": 1, "topics": topics}).is_joined
    with pytest.raises(BadStreamOffset):
        from_json({"version": 1, "joined": "yes", "topics": topics})
