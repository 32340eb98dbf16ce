"""The source in Spark: batch reads, streams, and failures."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from source_cluster import SourceCluster, recently, wait_until
from source_table import Table

from ottla.spark.progress import GroupOffsets
from ottla.spark.stream_reader import StreamReader
from pyspark_ottla import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

OFTEN = {"processingTime": "100 milliseconds"}


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def read(spark: "SparkSession", cluster: SourceCluster, **options: object) -> "DataFrame":
    return spark.read.format("ottla").options(**cluster.options(**options)).load()


def numbers(table: Table) -> list[int]:
    return [int(each) for each in table.values]


def test_batch_read_in_spark_returns_all_rows(
    spark: "SparkSession", cluster: SourceCluster
) -> None:
    topic = cluster.create(partitions=2)
    stamp = recently()
    cluster.produce(topic, ["a"], 0, key=b"k", timestamp=stamp, headers=[("h", b"x"), ("n", None)])
    cluster.produce(topic, range(20), 1, timestamp=stamp + 1)
    frame = read(spark, cluster, subscribe=topic, includeHeaders="true", minPartitions=3)
    row = frame.filter("partition = 0").withColumn("ms", frame.timestamp.cast("double")).first()
    assert row is not None
    assert (row.key, row.value, row.topic, row.offset) == (b"k", b"a", topic, 0)
    assert (row.ms, row.timestampType) == (stamp / 1000, 0)
    assert [tuple(each) for each in row.headers] == [("h", b"x"), ("n", None)]
    assert (frame.filter("offset < 5").count(), frame.count()) == (6, 21)  # never 6 twice
    pruned = spark.read.schema("offset bigint, value binary").format("ottla")
    pruned = pruned.options(**cluster.options(subscribe=topic))
    assert pruned.load().columns == ["offset", "value"]
    assert pruned.load().selectExpr("sum(offset)").first()[0] == 190  # type: ignore[index]


def test_invalid_options_are_reported_in_one_sentence(
    spark: "SparkSession", cluster: SourceCluster
) -> None:
    def message(**options: object) -> str:
        with pytest.raises(Exception) as raised:
            read(spark, cluster, **options).collect()
        return str(raised.value)

    assert "unknown option 'startingoffset'; did you mean 'startingOffsets'?" in message(
        subscribe="a", startingOffset="earliest"
    )
    assert "'subscribe': no such topic or partition: not-there" in message(subscribe="not-there")
    assert "sasl.mechanism is not set, so it is GSSAPI" in message(
        subscribe="a", kafka__security__protocol="SASL_SSL"
    )
    reader = spark.read.schema("value string").format("ottla")
    with pytest.raises(Exception, match="column 'value' is binary, not string"):
        reader.options(**cluster.options(subscribe="a")).load().collect()


def test_restarted_stream_reads_every_row_once(
    spark: "SparkSession", table: Table, cluster: SourceCluster
) -> None:
    topic, group = cluster.create(partitions=2), cluster.name("group")
    options = cluster.options(subscribe=topic, maxOffsetsPerTrigger=4, groupId=group)
    cluster.produce(topic, ["before"], 0)
    query = table.stream(options, **OFTEN)
    wait_until(lambda: table.batches("commits"), "the first batch")
    query.stop()  # nothing was read, but the start is stored
    cluster.produce(topic, range(7), 0)
    query = table.stream(options, **OFTEN)
    wait_until(lambda: query.exception() or len(table.batches("commits")) == 3, "two batches")
    query.stop()
    assert query.exception() is None
    cluster.produce(topic, range(7, 12), 1)
    listener = GroupOffsets(options)
    spark.streams.addListener(listener)
    try:
        progress = table.run(options)
        assert [each.numInputRows for each in progress] == [4, 1]
        assert '"version": 1' in progress[0].sources[0].latestOffset
        assert numbers(table) == list(range(12))
        wait_until(lambda: cluster.committed(group, topic, 1) == 5, "the commit of the last batch")
    finally:
        spark.streams.removeListener(listener)


def test_batch_with_lost_commit_is_replayed_unchanged(table: Table, cluster: SourceCluster) -> None:
    """Spark requests the initial offset again, when the latest offset is higher."""
    topic = cluster.create()
    options = cluster.options(subscribe=topic, startingOffsets="latest")
    query = table.stream(options, **OFTEN)
    wait_until(lambda: table.batches("commits"), "the first batch")
    cluster.produce(topic, range(5))
    wait_until(lambda: query.exception() or len(table.batches("commits")) == 2, "the rows")
    query.stop()
    for log in (table.checkpoint / "commits", table.rows / "_spark_metadata"):
        for name in ("1", ".1.crc"):
            (log / name).unlink(missing_ok=True)  # as if the driver had crashed before writing them
    cluster.produce(topic, range(5, 8))
    progress = table.run(options)
    assert [each.numInputRows for each in progress] == [5, 3]
    assert numbers(table) == list(range(8))


def test_restarted_broker_loses_no_row(table: Table, cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(50))
    options = cluster.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query = table.stream(options, **OFTEN)
    wait_until(lambda: query.exception() or table.batches("offsets"), "the first batch")
    cluster.node.kill(1)
    cluster.node.start(1)
    cluster.produce(topic, range(50, 80))
    wait_until(lambda: query.exception() or sum_of(query) == 80, "all rows")
    query.stop()
    assert query.exception() is None
    assert numbers(table) == list(range(80))


def sum_of(query: "StreamingQuery") -> int:
    return sum(each.numInputRows for each in query.recentProgress)


def test_small_batch_in_spark_needs_no_python_worker(
    spark: "SparkSession", cluster: SourceCluster, tmp_path: Path
) -> None:
    class Refusing(DefaultSource):  # local, so that Spark sends it to its processes by value
        @classmethod
        def name(cls) -> str:
            return "ottla_refusing"

        def streamReader(self, schema: "StructType") -> "StreamReader":
            class Reader(StreamReader):
                def read(self, partition: object) -> "Iterator[object]":
                    raise AssertionError("a Python worker reads")

            reader = super().streamReader(schema)
            reader.__class__ = Reader
            return reader

    spark.dataSource.register(Refusing)
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(5), 0, headers=[("h", b"x")])
    cluster.produce(topic, range(5, 8), 1)

    def run(name: str, **given: object) -> Any:
        asked = cluster.options(
            subscribe=topic, startingOffsets="earliest", includeHeaders="true", **given
        )
        frame = spark.readStream.format("ottla_refusing").options(**asked).load()
        writer = frame.selectExpr("int(string(value)) v", "headers[0].value h").writeStream
        writer = writer.format("memory").queryName(name).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    query = run("prefetched")
    assert query.awaitTermination(120)
    assert [each["numInputRows"] for each in query.recentProgress] == [8]
    assert '"version": 1' in query.recentProgress[0].sources[0].latestOffset
    rows = spark.table("prefetched").orderBy("v").collect()
    assert [tuple(each) for each in rows] == [(n, b"x" if n < 5 else None) for n in range(8)]
    with pytest.raises(Exception, match="a Python worker reads"):
        run("by_tasks", prefetchRecords=0).awaitTermination(120)
