"""The source in Spark itself: what a user writes, and what Spark makes of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from source_table import Table
from source_world import World, recently, wait_until

from ottla.pipeline.progress import GroupOffsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(600)
OFTEN = {"processingTime": "100 milliseconds"}


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def read(spark: "SparkSession", world: World, **options: object) -> "DataFrame":
    return spark.read.format("ottla").options(**world.options(**options)).load()


def numbers(table: Table) -> list[int]:
    return [int(each) for each in table.values]


def test_a_batch(spark: "SparkSession", world: World) -> None:
    topic = world.create(partitions=2)
    stamp = recently()
    world.produce(topic, ["a"], 0, key=b"k", timestamp=stamp, headers=[("h", b"x"), ("n", None)])
    world.produce(topic, range(20), 1, timestamp=stamp + 1)
    frame = read(spark, world, subscribe=topic, includeHeaders="true", minPartitions=3)
    row = frame.filter("partition = 0").withColumn("ms", frame.timestamp.cast("double")).first()
    assert row is not None
    assert (row.key, row.value, row.topic, row.offset) == (b"k", b"a", topic, 0)
    assert (row.ms, row.timestampType) == (stamp / 1000, 0)
    assert [tuple(each) for each in row.headers] == [("h", b"x"), ("n", None)]
    assert (frame.filter("offset < 5").count(), frame.count()) == (6, 21)  # never 6 twice
    pruned = spark.read.schema("offset bigint, value binary").format("ottla")
    pruned = pruned.options(**world.options(subscribe=topic))
    assert pruned.load().columns == ["offset", "value"]
    assert pruned.load().selectExpr("sum(offset)").first()[0] == 190  # type: ignore[index]


def test_what_is_wrong_is_said_in_one_sentence(spark: "SparkSession", world: World) -> None:
    def said(**options: object) -> str:
        with pytest.raises(Exception) as raised:
            read(spark, world, **options).collect()
        return str(raised.value)

    assert "unknown option 'startingoffset'; did you mean 'startingOffsets'?" in said(
        subscribe="a", startingOffset="earliest"
    )
    assert "'subscribe': no such topic or partition: not-there" in said(subscribe="not-there")
    assert "kafka.security.protocol=SASL_SSL is not supported yet; only PLAINTEXT is" in said(
        subscribe="a", kafka__security__protocol="SASL_SSL"
    )
    reader = spark.read.schema("value string").format("ottla")
    with pytest.raises(Exception, match="column 'value' is binary, not string"):
        reader.options(**world.options(subscribe="a")).load().collect()


def test_a_stream_stopped_and_started_reads_every_row_once(
    spark: "SparkSession", table: Table, world: World
) -> None:
    topic, group = world.create(partitions=2), world.name("group")
    options = world.options(subscribe=topic, maxOffsetsPerTrigger=4, groupId=group)
    world.produce(topic, ["before"], 0)
    query = table.stream(options, **OFTEN)
    wait_until(lambda: table.batches("commits"), "the first batch")
    query.stop()  # nothing was read, but where to begin is kept
    world.produce(topic, range(7), 0)
    query = table.stream(options, **OFTEN)
    wait_until(lambda: query.exception() or len(table.batches("commits")) == 3, "two batches")
    query.stop()
    assert query.exception() is None
    world.produce(topic, range(7, 12), 1)
    listener = GroupOffsets(options)
    spark.streams.addListener(listener)
    try:
        progress = table.run(options)
        assert [each.numInputRows for each in progress] == [4, 1]
        assert '"version": 1' in progress[0].sources[0].latestOffset
        assert numbers(table) == list(range(12))
        wait_until(lambda: world.committed(group, topic, 1) == 5, "the commit of the last batch")
    finally:
        spark.streams.removeListener(listener)


def test_a_batch_whose_commit_is_lost_is_replayed_as_it_was(table: Table, world: World) -> None:
    """Spark asks for the initial offset again, and by then the latest is another one."""
    topic = world.create()
    options = world.options(subscribe=topic, startingOffsets="latest")
    query = table.stream(options, **OFTEN)
    wait_until(lambda: table.batches("commits"), "the first batch")
    world.produce(topic, range(5))
    wait_until(lambda: query.exception() or len(table.batches("commits")) == 2, "the rows")
    query.stop()
    for log in (table.checkpoint / "commits", table.rows / "_spark_metadata"):
        for name in ("1", ".1.crc"):
            (log / name).unlink(missing_ok=True)  # as if the driver had died before it wrote them
    world.produce(topic, range(5, 8))
    progress = table.run(options)
    assert [each.numInputRows for each in progress] == [5, 3]
    assert numbers(table) == list(range(8))


def test_a_broker_that_dies_and_comes_back_costs_no_row(table: Table, world: World) -> None:
    topic = world.create()
    world.produce(topic, range(50))
    options = world.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query = table.stream(options, **OFTEN)
    wait_until(lambda: query.exception() or table.batches("offsets"), "the first batch")
    world.node.kill(1)
    world.node.start(1)
    world.produce(topic, range(50, 80))
    wait_until(lambda: query.exception() or sum_of(query) == 80, "all rows")
    query.stop()
    assert query.exception() is None
    assert numbers(table) == list(range(80))


def sum_of(query: "StreamingQuery") -> int:
    return sum(each.numInputRows for each in query.recentProgress)


def test_a_driver_that_is_killed_costs_no_row(table: Table, world: World, tmp_path: Path) -> None:
    topic = world.create(partitions=2)
    world.produce(topic, range(40), 0)
    world.produce(topic, range(40, 60), 1)
    options = world.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    (tmp_path / "options.json").write_text(json.dumps(options))
    command = [sys.executable, str(Path(__file__).with_name("driver_process.py")), str(tmp_path)]
    output = tmp_path / "driver.log"
    with output.open("w") as log:
        driver = subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)
    try:
        # A driver takes long to start where others are busy too.
        has_begun = lambda: len(table.batches("offsets")) >= 3 or driver.poll() is not None  # noqa: E731
        wait_until(has_begun, "three batches", seconds=180)
        assert driver.poll() is None, output.read_text()[-2000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python, Java and all workers at once
        driver.wait()
    assert len(table.batches("offsets")) < 15, "it was killed too late"
    table.run(options)
    assert numbers(table) == list(range(60))
