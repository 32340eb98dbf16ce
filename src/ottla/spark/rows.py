"""Converts Spark's rows to columns for encoding, and assigns each row to a partition.

The column ``value`` is required; ``key``, ``headers``, ``topic`` and ``partition`` are optional.
Other columns are ignored, as by Spark's own sink: rows read from a topic can be written to another.
"""

from array import array
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ottla.formats.batch_encoder import (
    Cells,
    Columns,
    HeaderCells,
    Numbers,
    partitions_of_keys,
    rows_by_number,
)
from ottla.protocol.types import TopicPartition

PartitionCount = Callable[[str], int]
"""Returns the number of partitions of a topic; raises if it does not exist."""

_NO_PARTITION: Final = -1


class BadRow(ValueError):
    """A row that cannot become a record; the message gives the reason."""


class PartitionRows(msgspec.Struct, frozen=True):
    """The rows of one partition, in order."""

    partition: TopicPartition
    rows: Numbers


class SinkRows(msgspec.Struct, frozen=True):
    """One Arrow batch, ready for encoding.

    ``timestamps`` are ms since 1970, None for "now"; an empty list if they are not kept.
    """

    columns: Columns
    by_partition: tuple[PartitionRows, ...]
    timestamps: list[int | None] = []


def sink_rows(
    batch: pa.RecordBatch, topic: str | None, partition_count: PartitionCount, turn: int
) -> SinkRows:
    """Prepare a batch for encoding and assign its rows to partitions.

    ``topic`` overrides the column. All rows with neither key nor partition go to one partition,
    chosen by ``turn``, for fewer and larger batches (KIP-480).

    Raises:
        BadRow: a null topic, a null header key, a partition that the topic does not have.
    """
    columns = Columns(
        _optional_cells(batch, "key"), cells_of(batch.column("value")), _headers(batch)
    )
    by_partition = []
    for name, is_row in _topics(batch, topic):
        count = partition_count(name)
        chosen = _choose(batch, name, columns.keys, count, turn)
        if is_row is not None:
            chosen = _int32(pc.if_else(is_row, _as_arrow(chosen), _NO_PARTITION))
        for number, rows in enumerate(rows_by_number(chosen, count)):
            if rows:
                by_partition.append(PartitionRows(TopicPartition(name, number), rows))
    return SinkRows(columns, tuple(by_partition))


def timestamps_of(batch: pa.RecordBatch) -> list[int | None]:
    """Return the timestamp of each row in ms; None where the column is null."""
    micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found: list[int | None] = micros.to_pylist()
    return [None if each is None else each // 1000 for each in found]


def runs_of(rows: Numbers, timestamps: list[int | None]) -> Iterator[tuple[Numbers, int | None]]:
    """Cut rows into runs with one timestamp each, in order: all records of a batch have one."""
    if not timestamps:
        yield rows, None
        return
    first = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or timestamps[rows[index]] != timestamps[rows[first]]:
            yield rows[first:index], timestamps[rows[first]]
            first = index


def cells_of(column: pa.Array) -> Cells:
    """Return the buffers of a column of strings or bytes, without copying."""
    if column.type not in (pa.binary(), pa.string()):
        column = column.cast(pa.binary())
    _, starts, data = column.buffers()
    first = column.offset
    if starts is None:  # a column without rows may have no buffers
        return Cells(memoryview(array("i", [0])), b"", b"")
    return Cells(
        memoryview(starts).cast("B").cast("i")[first : first + len(column) + 1],
        b"" if data is None else memoryview(data).cast("B"),
        _nulls(column),
    )


def _nulls(column: pa.Array) -> bytes | memoryview:
    if column.null_count == 0:
        return bytes(len(column))
    flags = column.is_null().cast(pa.uint8())
    return memoryview(flags.buffers()[1]).cast("B")[: len(column)]


def _optional_cells(batch: pa.RecordBatch, name: str) -> Cells:
    if name not in batch.schema.names:
        rows = batch.num_rows
        return Cells(memoryview(array("i", bytes(4 * rows + 4))), b"", b"\x01" * rows)
    return cells_of(batch.column(name))


def _headers(batch: pa.RecordBatch) -> HeaderCells:
    if "headers" not in batch.schema.names or not batch.num_rows:
        return HeaderCells.none(batch.num_rows)
    column = batch.column("headers")
    # A null list may still contain entries; remove them so that its bounds are equal.
    if column.null_count:
        column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    starts = memoryview(column.buffers()[1]).cast("B").cast("i")
    entries = column.values
    keys = entries.field("key")
    if keys.null_count or entries.null_count:
        raise BadRow("a header key is null: every entry of column 'headers' needs a key")
    first = column.offset
    bounds = starts[first : first + len(column) + 1]
    return HeaderCells(bounds, cells_of(keys), cells_of(entries.field("value")))


def _topics(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, pa.BooleanArray | None]]:
    """Yield every topic of a batch and a mask of its rows; None: all rows."""
    if topic is not None:
        yield topic, None
        return
    names = batch.column("topic")
    if names.null_count:
        raise BadRow("a row has no topic: column 'topic' is null, and option 'topic' is not set")
    different = pc.unique(names).to_pylist()
    for name in different:
        yield name, None if len(different) == 1 else pc.equal(names, name)


def _choose(batch: pa.RecordBatch, topic: str, keys: Cells, count: int, turn: int) -> Numbers:
    chosen = partitions_of_keys(keys, count, turn % count)
    if "partition" not in batch.schema.names:
        return chosen
    explicit = batch.column("partition")
    wrong = pc.or_(pc.less(explicit, 0), pc.greater_equal(explicit, count))
    if pc.any(wrong).as_py():
        bad = explicit.filter(wrong)[0].as_py()
        raise BadRow(f"partition {bad} does not exist: topic {topic} has {count}, from 0")
    return _int32(pc.coalesce(explicit.cast(pa.int32()), _as_arrow(chosen)))


def _as_arrow(numbers: Numbers) -> pa.Int32Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


def _int32(column: pa.Array) -> Numbers:
    flat = column.cast(pa.int32())
    first = flat.offset * 4
    view = memoryview(flat.buffers()[1]).cast("B")[first : first + 4 * len(flat)]
    numbers = array("i")
    numbers.frombytes(view)
    return numbers
