"""The sink in Spark: every column is written, and replays write nothing twice."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from registry_server import run_registry
from source_cluster import SourceCluster, wait_until
from source_table import Table
from spark_session import kill_workers

from ottla.testing import run_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


ALL_COLUMNS = (
    "topic",
    "cast(key as string) key",
    "cast(value as string) value",
    "partition",
    "transform(headers, h -> concat(h.key, '=', cast(h.value as string))) headers",
)


def sink_options(cluster: SourceCluster, **options: object) -> dict[str, str]:
    texts = {key: str(value) for key, value in options.items()}
    return {"kafka.bootstrap.servers": cluster.node.bootstrap, **texts}


class Copy:
    """A stream from one topic to another, with its checkpoint."""

    def __init__(self, spark: "SparkSession", cluster: SourceCluster) -> None:
        self._spark = spark
        self._cluster = cluster
        self.checkpoint = cluster.tmp_path / "checkpoint"
        self.source = cluster.create("source", 2)
        self.copied = cluster.create("copied", 3)

    def start(self, *, available_now: bool = True, **options: object) -> "StreamingQuery":
        cluster = self._cluster
        read = cluster.options(
            subscribe=self.source, startingOffsets="earliest", maxOffsetsPerTrigger=30
        )
        target = {"topic": self.copied, "delivery": "exactly-once", **options}
        write = sink_options(cluster, **target)
        frame = self._spark.readStream.format("ottla").options(**read).load()
        writer = frame.selectExpr("value").writeStream.format("ottla").options(**write)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        trigger: dict[str, Any] = (
            {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        )
        return writer.trigger(**trigger).start()

    def run(self, **options: object) -> list[Any]:
        query = self.start(**options)
        assert query.awaitTermination(120), "the query did not end"
        assert query.exception() is None
        return query.recentProgress

    def delete_last_commit(self) -> int:
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        return int(last.name)

    @property
    def values(self) -> list[int]:
        return sorted(map(int, self._cluster.values(subscribe=self.copied)))


@pytest.fixture
def copy(spark: "SparkSession", cluster: SourceCluster) -> Copy:
    return Copy(spark, cluster)


def write(spark: "SparkSession", cluster: SourceCluster, query: str, **options: object) -> None:
    writer = spark.sql(query).write.format("ottla").options(**sink_options(cluster, **options))
    writer.mode("append").save()


def test_every_column_is_written_to_its_field(spark, cluster):
    orders, clicks = cluster.create("orders", 3), cluster.create("clicks", 2)
    write(
        spark,
        cluster,
        f"""
        select * from values
            ('{orders}', 'k1', 'v1', 2, array(named_struct('key', 'h', 'value', X'61'))),
            ('{orders}', null, 'v2', 0, null),
            ('{clicks}', 'k3', null, 1, array())
        as rows(topic, key, value, partition, headers)
        """,
    )
    options = cluster.options(subscribe=f"{orders},{clicks}", includeHeaders="true")
    found = spark.read.format("ottla").options(**options).load().selectExpr(*ALL_COLUMNS)
    assert {tuple(map(str, each)) for each in found.collect()} == {
        (orders, "k1", "v1", "2", "['h=a']"),
        (orders, "None", "v2", "0", "None"),
        (clicks, "k3", "None", "1", "None"),
    }


def test_exactly_once_batch_write_removes_its_markers(spark, cluster):
    topic = cluster.create("once", 2)
    markers = cluster.name("markers")
    query = "select cast(id as string) key, concat('v', id) value from range(200)"
    write(spark, cluster, query, topic=topic, delivery="exactly-once", markerTopic=markers)
    values = cluster.values(subscribe=topic)
    assert sorted(values) == sorted(f"v{each}" for each in range(200))
    last = {each["key"]: each["value"] for each in cluster.rows(subscribe=markers)}
    assert last and set(last.values()) == {None}


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("select 'x' as worth", {"topic": "t"}, "column 'value' is missing"),
        ("select 'x' as value", {}, "add a column 'topic'"),
        ("select 1 as value", {"topic": "t"}, "column 'value' is int"),
        ("select 'x' as value, 1L as partition", {"topic": "t"}, "column 'partition' is bigint"),
        ("select 'x' as value, 'h' as headers", {"topic": "t"}, "column 'headers' is string"),
        ("select 'x' as value", {"topic": "t", "delivry": "exactly-once"}, "delivery"),
        ("select 'x' as value", {"topic": "t", "atomicBatches": "true"}, "delivery=exactly-once"),
    ],
)
def test_invalid_write_is_rejected_with_a_reason(spark, cluster, query, options, message):
    with pytest.raises(PySparkException, match=message):
        write(spark, cluster, query, **options)


def test_overwrite_mode_is_rejected(spark, cluster):
    settings = sink_options(cluster, topic=cluster.create())
    writer = spark.sql("select 'x' as value").write.format("ottla").options(**settings)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_replay_after_lost_commit_writes_nothing_twice(cluster, copy, atomic):
    cluster.produce(copy.source, range(50), partition=0)
    cluster.produce(copy.source, range(50, 100), partition=1)
    assert len(copy.run(atomicBatches=atomic)) >= 4
    assert copy.values == list(range(100))
    lost = copy.delete_last_commit()
    cluster.produce(copy.source, range(100, 120), partition=0)
    progress = copy.run(atomicBatches=atomic)
    assert progress[0]["batchId"] == lost
    assert copy.values == list(range(120))


def run_while_killing_workers(spark: "SparkSession", running: "list[StreamingQuery]") -> bool:
    """Kill worker processes until a query ends; return whether one failed because of it."""

    def one_ends() -> bool:
        kill_workers(spark)
        return not all(query.isActive for query in running)

    wait_until(one_ends, "the end of a query")
    for query in running:
        with suppress(StreamingQueryException):
            assert query.awaitTermination(120), "the query did not end"
    return any(query.exception() is not None for query in running)


def test_killed_workers_neither_lose_nor_duplicate_rows(spark, cluster, copy, tmp_path: Path):
    """Writes a topic to a topic and to a table while worker processes are killed."""
    table = Table(spark, tmp_path / "table")
    read = cluster.options(
        subscribe=copy.source, startingOffsets="earliest", maxOffsetsPerTrigger=30
    )
    sent = 0
    for _ in range(20):  # Spark ignores the loss of an idle worker
        cluster.produce(copy.source, range(sent, sent + 60), partition=sent // 60 % 2)
        sent += 60
        if run_while_killing_workers(spark, [copy.start(), table.stream(read)]):
            break
    else:
        pytest.fail("no busy worker was killed")
    copy.run()
    table.run(read)
    assert copy.values == list(range(sent))
    assert sorted(map(int, table.values)) == list(range(sent))


def test_killed_broker_neither_loses_nor_duplicates_rows(spark, request, tmp_path: Path):
    with run_node(processes=True, directory=tmp_path / "node") as node:
        cluster = SourceCluster(node, request.node.name, tmp_path)
        copy = Copy(spark, cluster)
        query = copy.start(available_now=False)
        cluster.produce(copy.source, range(40))
        query.processAllAvailable()  # warm-up, so that micro-batches follow each other
        is_fed = threading.Event()

        def feed() -> None:
            for first in range(40, 300, 10):
                cluster.produce(copy.source, range(first, first + 10), partition=first // 10 % 2)
            is_fed.set()

        feeding = threading.Thread(target=feed)
        feeding.start()
        wait_until(lambda: len(cluster.values(subscribe=copy.copied)) > 60, "the first rows")
        node.kill(1)
        node.start(1)
        feeding.join(240)
        assert is_fed.is_set()
        query.processAllAvailable()
        query.stop()
        assert copy.values == list(range(300))


@pytest.mark.parametrize(("before", "after"), [("false", "true"), ("true", "false")])
def test_replay_with_changed_atomic_batches_writes_nothing_twice(cluster, copy, before, after):
    cluster.produce(copy.source, range(50), partition=0)
    cluster.produce(copy.source, range(50, 100), partition=1)
    copy.run(atomicBatches=before)
    lost = copy.delete_last_commit()
    cluster.produce(copy.source, range(100, 120), partition=0)
    progress = copy.run(atomicBatches=after)
    assert progress[0]["batchId"] == lost
    assert copy.values == list(range(120))


def test_replay_with_changed_formats_and_partitions_writes_nothing_twice(cluster, copy):
    """Markers depend neither on the target's partitions nor on how its records are encoded."""
    cluster.produce(copy.source, range(20))
    copy.run()
    cluster.grow(copy.copied, 7)
    settings = {"kafka.compression.type": "gzip", "kafka.batch.size": "1000"}
    with run_registry() as registry:
        formats = {"valueFormat": "avro", "schema.registry.url": registry.url}
        for changed in (settings, formats, {"topic": cluster.create("other")}):
            copy.delete_last_commit()
            copy.run(**changed)
            assert copy.values == list(range(20)), changed
    assert cluster.values(subscribe=cluster.name("other")) == []
