"""The sink in Spark itself: what a user writes, and that a replay writes nothing twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from sink_driver_process import copy_stream
from source_table import Table
from source_world import World, wait_until
from spark_session import kill_workers

from ottla.testing import run_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(600)

ALL_COLUMNS = (
    "topic",
    "cast(key as string) key",
    "cast(value as string) value",
    "partition",
    "transform(headers, h -> concat(h.key, '=', cast(h.value as string))) headers",
)


def sink_options(world: World, **options: object) -> dict[str, str]:
    given = {key: str(value) for key, value in options.items()}
    return {"kafka.bootstrap.servers": world.node.bootstrap, **given}


class Copy:
    """A stream from one topic to another, with its checkpoint."""

    def __init__(self, spark: "SparkSession", world: World) -> None:
        self._spark = spark
        self._world = world
        self.checkpoint = world.tmp_path / "checkpoint"
        self.given = world.create("given", 2)
        self.copied = world.create("copied", 3)

    def start(self, *, available_now: bool = True, **options: object) -> "StreamingQuery":
        world = self._world
        read = world.options(
            subscribe=self.given, startingOffsets="earliest", maxOffsetsPerTrigger=30
        )
        write = sink_options(world, topic=self.copied, delivery="exactly-once", **options)
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
        return sorted(map(int, self._world.values(subscribe=self.copied)))


@pytest.fixture
def copy(spark: "SparkSession", world: World) -> Copy:
    return Copy(spark, world)


def write(spark: "SparkSession", world: World, query: str, **options: object) -> None:
    writer = spark.sql(query).write.format("ottla").options(**sink_options(world, **options))
    writer.mode("append").save()


def test_every_column_reaches_its_field(spark, world):
    orders, clicks = world.create("orders", 3), world.create("clicks", 2)
    write(
        spark,
        world,
        f"""
        select * from values
            ('{orders}', 'k1', 'v1', 2, array(named_struct('key', 'h', 'value', X'61'))),
            ('{orders}', null, 'v2', 0, null),
            ('{clicks}', 'k3', null, 1, array())
        as rows(topic, key, value, partition, headers)
        """,
    )
    options = world.options(subscribe=f"{orders},{clicks}", includeHeaders="true")
    found = spark.read.format("ottla").options(**options).load().selectExpr(*ALL_COLUMNS)
    assert {tuple(map(str, each)) for each in found.collect()} == {
        (orders, "k1", "v1", "2", "['h=a']"),
        (orders, "None", "v2", "0", "None"),
        (clicks, "k3", "None", "1", "None"),
    }


def test_a_batch_write_exactly_once_leaves_no_marker_behind(spark, world):
    topic = world.create("once", 2)
    markers = world.name("markers")
    query = "select cast(id as string) key, concat('v', id) value from range(200)"
    write(spark, world, query, topic=topic, delivery="exactly-once", markerTopic=markers)
    values = world.values(subscribe=topic)
    assert sorted(values) == sorted(f"v{each}" for each in range(200))
    last = {each["key"]: each["value"] for each in world.rows(subscribe=markers)}
    assert last and set(last.values()) == {None}


@pytest.mark.parametrize(
    ("query", "options", "said"),
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
def test_what_cannot_be_written_says_why(spark, world, query, options, said):
    with pytest.raises(PySparkException, match=said):
        write(spark, world, query, **options)


def test_a_topic_is_not_overwritten(spark, world):
    given = sink_options(world, topic=world.create())
    writer = spark.sql("select 'x' as value").write.format("ottla").options(**given)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_a_stream_whose_last_commit_is_lost_writes_nothing_twice(world, copy, atomic):
    world.produce(copy.given, range(50), partition=0)
    world.produce(copy.given, range(50, 100), partition=1)
    assert len(copy.run(atomicBatches=atomic)) >= 4
    assert copy.values == list(range(100))
    lost = copy.delete_last_commit()
    world.produce(copy.given, range(100, 120), partition=0)
    progress = copy.run(atomicBatches=atomic)
    assert progress[0]["batchId"] == lost
    assert copy.values == list(range(120))


def run_under_fire(spark: "SparkSession", running: "list[StreamingQuery]") -> bool:
    """Kill the processes of tasks until a query ends; say whether one ended by it."""

    def one_ends() -> bool:
        kill_workers(spark)
        return not all(query.isActive for query in running)

    wait_until(one_ends, "the end of a query")
    for query in running:
        with suppress(StreamingQueryException):
            assert query.awaitTermination(120), "the query did not end"
    return any(query.exception() is not None for query in running)


def test_workers_that_are_killed_cost_nothing_but_time(spark, world, copy, tmp_path: Path):
    """One topic into a topic and into a table, while the processes of their tasks are killed."""
    table = Table(spark, tmp_path / "table")
    read = world.options(subscribe=copy.given, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    sent = 0
    for _ in range(20):  # an idle one that dies is no loss to Spark
        world.produce(copy.given, range(sent, sent + 60), partition=sent // 60 % 2)
        sent += 60
        if run_under_fire(spark, [copy.start(), table.stream(read)]):
            break
    else:
        pytest.fail("nobody was killed at work")
    copy.run()
    table.run(read)
    assert copy.values == list(range(sent))
    assert sorted(map(int, table.values)) == list(range(sent))


def test_a_broker_killed_under_a_stream_costs_nothing_but_time(spark, request, tmp_path: Path):
    with run_node(processes=True, directory=tmp_path / "node") as node:
        world = World(node, request.node.name, tmp_path)
        copy = Copy(spark, world)
        query = copy.start(available_now=False)
        world.produce(copy.given, range(40))
        query.processAllAvailable()  # warm: from here on micro-batches follow each other
        is_fed = threading.Event()

        def feed() -> None:
            for first in range(40, 300, 10):
                world.produce(copy.given, range(first, first + 10), partition=first // 10 % 2)
            is_fed.set()

        feeding = threading.Thread(target=feed)
        feeding.start()
        wait_until(lambda: len(world.values(subscribe=copy.copied)) > 60, "the first rows")
        node.kill(1)
        node.start(1)
        feeding.join(240)
        assert is_fed.is_set()
        query.processAllAvailable()
        query.stop()
        assert copy.values == list(range(300))


def test_killed_driver_whose_tasks_would_be_cut_anew_writes_every_row_once(
    spark, world, tmp_path: Path
):
    """One of four tasks is committed; then records arrive that would make it one task."""
    given, copied = world.create("given"), world.create("copied")
    world.produce(given, [f"{each:0100}" for each in range(2000)])
    source = world.options(subscribe=given, startingOffsets="earliest", maxBytesPerPartition=60_000)
    sink = sink_options(world, topic=copied, delivery="exactly-once")
    (tmp_path / "copy.json").write_text(json.dumps({"source": source, "sink": sink}))
    script = Path(__file__).with_name("sink_driver_process.py")
    output = tmp_path / "driver.log"
    with output.open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: len(world.values(subscribe=copied)) > 0 or driver.poll() is not None,
            "the first task",
            seconds=180,
        )
        assert driver.poll() is None, output.read_text()[-2000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python, Java and all workers at once
        driver.wait()
    assert 0 < len(world.values(subscribe=copied)) < 2000, "it was not killed between two tasks"
    world.produce(given, [str(each) for each in range(2000, 22_000)])
    (tmp_path / "open").touch()
    query = copy_stream(spark, tmp_path)
    assert query.awaitTermination(120), "the query did not end"
    assert query.exception() is None
    assert sorted(map(int, world.values(subscribe=copied))) == list(range(22_000))
