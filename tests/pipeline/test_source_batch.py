"""Batch reads: topics, offsets, pieces and columns, by every option."""

import datetime
import time

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
)
from source_cluster import SourceCluster, read_all, recently

from ottla.spark.columns import BadSchema, chosen_columns, full_schema
from ottla.spark.data_loss import DataLoss
from ottla.spark.option_values import OptionError

DAY_MS = 86_400_000


def test_batch_read_returns_every_column(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    stamp = recently()
    cluster.produce(topic, ["a"], partition=1, key=b"k", timestamp=stamp, headers=[("h", b"x")])
    cluster.produce(topic, ["b"], partition=1, timestamp=stamp + 1, headers=[("n", None)])
    rows = cluster.rows(subscribe=topic, includeHeaders="true")
    when = datetime.datetime.fromtimestamp(stamp / 1000, datetime.UTC)
    assert rows[0] == {
        "key": b"k",
        "value": b"a",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": when,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}],
    }
    assert (rows[1]["key"], rows[1]["headers"]) == (None, [{"key": "n", "value": None}])
    assert "headers" not in cluster.rows(subscribe=topic)[0]


def test_timestamp_type_of_log_append_time_is_1(cluster: SourceCluster) -> None:
    topic = cluster.create(message_timestamp_type="LogAppendTime")
    cluster.produce(topic, ["a"], timestamp=5)
    row = cluster.rows(subscribe=topic)[0]
    assert row["timestampType"] == 1 and row["timestamp"].year > 2000


def test_topics_are_selected_by_name_pattern_or_partition(cluster: SourceCluster) -> None:
    one, two = cluster.create("one", 2), cluster.create("two")
    cluster.produce(one, ["1-0"], 0)
    cluster.produce(one, ["1-1"], 1)
    cluster.produce(two, ["2-0"], 0)
    assert cluster.values(subscribe=f"{one},{two}") == ["1-0", "1-1", "2-0"]
    assert cluster.values(subscribePattern=cluster.name("t.o")) == ["2-0"]
    assert cluster.values(subscribePattern=cluster.name(".*")) == ["1-0", "1-1", "2-0"]
    assert cluster.values(assign=f'{{"{one}": [1], "{two}": [0]}}') == ["1-1", "2-0"]
    assert cluster.values(subscribePattern="__(consumer|transaction).*") == []
    assert cluster.values(subscribePattern=cluster.name("none")) == []


def test_missing_topic_or_partition_is_named(cluster: SourceCluster) -> None:
    topic = cluster.create()
    with pytest.raises(OptionError, match=r"'subscribe': no such topic or partition: no-such$"):
        cluster.values(subscribe=f"{topic},no-such")
    with pytest.raises(OptionError, match=rf"'assign': no such topic or partition: {topic}-3"):
        cluster.values(assign=f'{{"{topic}": [0, 3]}}')


def test_offsets_bound_a_batch_read(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(10), 0)
    cluster.produce(topic, range(10, 20), 1)

    def values(starting: str = "earliest", ending: str = "latest") -> list[int]:
        found = cluster.values(subscribe=topic, startingOffsets=starting, endingOffsets=ending)
        return [int(each) for each in found]

    assert values(f'{{"{topic}": {{"0": 7, "1": -2}}}}') == [7, 8, 9, *range(10, 20)]
    assert values(ending=f'{{"{topic}": {{"0": 2, "1": -1}}}}') == [0, 1, *range(10, 20)]
    assert values(f'{{"{topic}": {{"0": 4, "1": 9}}}}', f'{{"{topic}": {{"0": 4, "1": 10}}}}') == [
        19
    ]
    with pytest.raises(OptionError, match=rf"'startingOffsets' must name every.*lacks {topic}-1"):
        values(f'{{"{topic}": {{"0": 7}}}}')
    with pytest.raises(OptionError, match=rf"'endingOffsets' must name .* {topic}-2 is not read"):
        values(ending=f'{{"{topic}": {{"0": 1, "1": 1, "2": 1}}}}')
    with pytest.raises(
        OptionError, match=rf"{topic}-0: the end offset 3 is before the start offset 5"
    ):
        values(f'{{"{topic}": {{"0": 5, "1": 0}}}}', f'{{"{topic}": {{"0": 3, "1": 0}}}}')


def test_timestamps_bound_a_batch_read(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    base = recently()
    for number in range(2):
        for step in range(4):
            cluster.produce(topic, [f"{number}{step}"], number, timestamp=base + step * 1000)

    def values(**options: object) -> list[str]:
        return cluster.values(subscribe=topic, **options)

    assert values(startingTimestamp=base + 2000) == ["02", "03", "12", "13"]
    assert values(endingTimestamp=base + 1500) == ["00", "01", "10", "11"]
    each = f'{{"{topic}": {{"0": {base + 3000}, "1": {base + 500}}}}}'
    assert values(startingOffsetsByTimestamp=each) == ["03", "11", "12", "13"]
    assert values(endingOffsetsByTimestamp=each) == ["00", "01", "02", "10"]
    assert values(endingTimestamp=base + DAY_MS) == values()
    with pytest.raises(OptionError, match=f"no record of {base + DAY_MS} ms or later"):
        values(startingTimestamp=base + DAY_MS)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(startingTimestamp=base + DAY_MS, **latest) == []


def test_start_may_be_relative_to_now(cluster: SourceCluster) -> None:
    topic = cluster.create()
    now = int(time.time() * 1000)
    cluster.produce(topic, ["old"], timestamp=now - 2 * 3_600_000)
    cluster.produce(topic, ["new"], timestamp=now - 60_000)
    assert cluster.values(subscribe=topic, startingOffsets="-10 minutes") == ["new"]
    assert cluster.values(subscribe=topic, startingTimestamp="-3 hours") == ["old", "new"]
    assert cluster.values(subscribe=topic, startingOffsets="-1 second") == []
    assert cluster.values(subscribe=topic, endingOffsets="-1 hour") == ["old"]


def test_aborted_records_and_markers_are_not_rows(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.transact(topic, ["a"])
    cluster.transact(topic, ["b"], commit=False)
    cluster.transact(topic, ["c"])
    assert cluster.values(subscribe=topic) == ["a", "c"]
    assert cluster.values(subscribe=topic, isolation="read_uncommitted") == ["a", "b", "c"]
    kafkas = {"kafka.isolation.level": "read_uncommitted"}
    assert cluster.values(subscribe=topic, **kafkas) == ["a", "b", "c"]
    assert [each["offset"] for each in cluster.rows(subscribe=topic)] == [0, 4]


def test_topic_partition_is_split_into_spark_partitions(cluster: SourceCluster) -> None:
    topic = cluster.create(partitions=2)
    cluster.produce(topic, range(90), 0)
    cluster.produce(topic, range(90, 100), 1)

    def sizes(**options: object) -> list[int]:
        reader = cluster.batch(subscribe=topic, **options)
        parts = reader.partitions()
        rows = [int(each["value"]) for each in read_all(reader, parts)]
        assert rows == list(range(100))
        return [each.value.size for each in parts]

    assert sizes() == [90, 10]
    assert sizes(minPartitions=4) == [30, 30, 30, 10]
    assert sizes(minPartitions=1) == [90, 10]
    assert sizes(maxRecordsPerPartition=40) == [30, 30, 30, 10]
    by_bytes = sizes(maxBytesPerPartition=150)
    assert len(by_bytes) > 3 and sum(by_bytes) == 100


def test_expired_records_are_an_error_or_skipped(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(10))
    cluster.delete_records(topic, 4)
    start = {"startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}
    with pytest.raises(DataLoss, match=rf"{topic}-0: offsets 1 to 3: the log starts at 4"):
        cluster.values(subscribe=topic, **start)
    lax = {"failOnDataLoss": "false"}
    assert cluster.values(subscribe=topic, **start, **lax) == ["4", "5", "6", "7", "8", "9"]
    beyond = {"endingOffsets": f'{{"{topic}": {{"0": 12}}}}'}
    with pytest.raises(DataLoss, match=rf"{topic}-0: offsets 10 to 11: the log ends at 10"):
        cluster.values(subscribe=topic, **beyond)
    assert len(cluster.values(subscribe=topic, **beyond, **lax)) == 6
    assert cluster.values(subscribe=topic) == ["4", "5", "6", "7", "8", "9"]


def test_records_expired_after_planning_are_an_error_or_skipped(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(10))
    strict = cluster.batch(subscribe=topic)
    lax = cluster.batch(subscribe=topic, failOnDataLoss="false")
    planned = strict.partitions()
    cluster.delete_records(topic, 6)
    with pytest.raises(DataLoss, match=rf"{topic}-0: offsets 0 to 5: the log starts at 6 since"):
        read_all(strict, planned)
    assert [int(each["value"]) for each in read_all(lax, planned)] == [6, 7, 8, 9]


def test_topic_recreated_after_planning_is_not_read(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, ["old"] * 3)
    strict = cluster.batch(subscribe=topic)
    lax = cluster.batch(subscribe=topic, failOnDataLoss="false")
    planned = strict.partitions()
    cluster.delete(topic)
    cluster.create()
    cluster.produce(topic, ["new"] * 3)
    with pytest.raises(DataLoss, match=rf"{topic}-0: offsets 0 to 2: .*recreated"):
        read_all(strict, planned)
    assert read_all(lax, planned) == []


# -- schemas -----------------------------------------------------------------------


def test_schema_selects_columns_in_its_order(cluster: SourceCluster) -> None:
    topic = cluster.create()
    cluster.produce(topic, ["a", "b"])
    schema = StructType().add("offset", LongType(), nullable=False).add("value", BinaryType())
    reader = cluster.batch(schema, subscribe=topic)
    batches = list(reader.read(reader.partitions()[0]))
    assert batches[0].schema.names == ["offset", "value"]
    assert not batches[0].schema.field("offset").nullable
    assert batches[0].to_pydict() == {"offset": [0, 1], "value": [b"a", b"b"]}


TEXT_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", StringType()))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("val", BinaryType(), "no column 'val'; did you mean 'value'"),
        ("timestamptype", IntegerType(), "no column 'timestamptype'; did you mean 'timestampType'"),
        ("colour", StringType(), r"no column 'colour'\. Columns are key, value, topic"),
        ("value", StringType(), "column 'value' is binary, not string; cast it"),
        ("offset", IntegerType(), "column 'offset' is bigint, not int"),
        ("timestamp", TimestampNTZType(), "column 'timestamp' is timestamp, not timestamp_ntz"),
        ("headers", TEXT_HEADERS, "column 'headers' is array<struct"),
    ],
)
def test_invalid_schema_error_names_the_column(name: str, kind: DataType, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        chosen_columns(StructType().add("key", BinaryType()).add(name, kind))


def test_full_schema_is_accepted_and_empty_schema_rejected() -> None:
    assert len(chosen_columns(full_schema(True))) == 8
    assert chosen_columns(full_schema(False))[-1] == "timestampType"
    with pytest.raises(BadSchema, match="has no column"):
        chosen_columns(StructType())
    with pytest.raises(BadSchema, match="column 'key' appears twice"):
        chosen_columns(StructType().add("key", BinaryType()).add("key", BinaryType()))


def test_deleted_start_of_an_open_transaction_leaves_nothing_to_read(
    cluster: SourceCluster,
) -> None:
    topic = cluster.create()
    cluster.produce(topic, range(10))
    with cluster.open_transaction(topic, range(10, 25)):
        assert len(cluster.values(subscribe=topic)) == 10
        cluster.delete_records(topic, 20)
        assert cluster.values(subscribe=topic) == []
        rows = cluster.values(subscribe=topic, isolation="read_uncommitted")
        assert rows == [str(each) for each in range(20, 25)]
