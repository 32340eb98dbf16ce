"""Rows of an Arrow batch: their columns and their partitions."""

import pyarrow as pa
import pytest

from ottla.client.partitioner import partition_of_key
from ottla.formats.batch_encoder import Cells, encode_rows
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import encode_records
from ottla.protocol.types import TopicPartition
from ottla.spark.rows import BadRow, SinkRows, cells_of, sink_rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COUNTS = {"orders": 3, "clicks": 2}


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def laid_out(batch: pa.RecordBatch, topic: str | None = "orders", turn: int = 0) -> SinkRows:
    return sink_rows(batch, topic, COUNTS.__getitem__, turn)


def where(batch: pa.RecordBatch, topic: str | None = "orders", turn: int = 0) -> dict:
    return {
        str(part.partition): list(part.rows) for part in laid_out(batch, topic, turn).by_partition
    }


def values(cells: Cells) -> list:
    return [
        None if null else bytes(cells.data[cells.starts[row] : cells.starts[row + 1]])
        for row, null in enumerate(cells.is_null)
    ]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()], ids=str
)
def test_cells_of_reads_every_string_and_binary_type(kind: pa.DataType) -> None:
    column = pa.array(["a", None, "", "longer"], kind)
    assert values(cells_of(column)) == [b"a", None, b"", b"longer"]
    assert values(cells_of(column[1:3])) == [None, b""]
    assert values(cells_of(column[:0])) == []


def test_keyless_rows_share_a_partition_per_turn() -> None:
    batch = batch_of(value=pa.array([b"x", b"y"]))
    assert where(batch, turn=0) == {"orders-0": [0, 1]}
    assert where(batch, turn=4) == {"orders-1": [0, 1]}


def test_partition_column_overrides_the_key() -> None:
    keys = [b"lars", None, b"ottla", b"lars"]
    batch = batch_of(key=pa.array(keys, pa.binary()), value=pa.array([b""] * 4))
    expected: dict = {}
    for row, key in enumerate(keys):
        number = 2 if key is None else partition_of_key(key, 3)
        expected.setdefault(f"orders-{number}", []).append(row)
    assert where(batch, turn=2) == expected

    chosen = pa.array([None, 0, 2, 1], pa.int32())
    placed = batch_of(key=batch.column("key"), value=batch.column("value"), partition=chosen)
    by_key = f"orders-{partition_of_key(b'lars', 3)}"
    expected = {"orders-0": [1], "orders-2": [2], "orders-1": [3]}
    expected[by_key] = sorted([0, *expected.get(by_key, [])])
    assert where(placed) == expected


def test_topic_column_selects_the_topic_of_each_row() -> None:
    batch = batch_of(
        topic=pa.array(["clicks", "orders", "clicks"]), value=pa.array([b"1", b"2", b"3"])
    )
    assert where(batch, topic=None, turn=1) == {"clicks-1": [0, 2], "orders-1": [1]}
    assert where(batch, topic="orders") == {"orders-0": [0, 1, 2]}


def test_null_and_sliced_headers_are_read() -> None:
    headers = pa.array(
        [
            [{"key": "skipped", "value": b"0"}],
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            None,
            [],
        ],
        HEADERS,
    )
    batch = batch_of(value=pa.array([b"w", b"x", b"y", b"z"]), headers=headers)
    rows = laid_out(batch[1:])
    region = encode_rows(rows.columns, rows.by_partition[0].rows, 0, 1 << 20)
    first = (Header("a", b"1"), Header("b", None))
    expected = [Record(0, 0, None, b"x", first), Record(1, 0, None, b"y", ())]
    assert region.data == encode_records([*expected, Record(2, 0, None, b"z", ())], 0, 0)
    assert rows.by_partition[0].partition == TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"topic": pa.array(["orders", None])}, None, "no topic"),
        (
            {"partition": pa.array([0, 3], pa.int32())},
            "orders",
            "partition 3 does not exist: topic orders has 3",
        ),
        ({"partition": pa.array([-1, 0], pa.int32())}, "orders", "partition -1"),
        (
            {"headers": pa.array([[{"key": None, "value": b""}], []], HEADERS)},
            "orders",
            "header key is null",
        ),
    ],
)
def test_invalid_rows_are_rejected_with_a_reason(
    columns: dict, topic: str | None, message: str
) -> None:
    with pytest.raises(BadRow, match=message):
        laid_out(batch_of(value=pa.array([b"x", b"y"]), **columns), topic)


def test_empty_batch_has_no_partitions() -> None:
    batch = batch_of(value=pa.array([], pa.binary()), headers=pa.array([], HEADERS))
    assert where(batch) == {}
