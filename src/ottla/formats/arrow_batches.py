"""Columns of records as Arrow record batches, in the schema of Spark's Kafka source.

    key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
    timestampType int, headers array<struct<key: string, value: binary>>

The caller chooses the columns and their order. A record batch has about 10,000 rows: smaller
batches cost Spark more per row, larger ones gain nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from ottla.client.fetched import Chunk
from ottla.formats.batch_decoder import (
    BytesColumn,
    Columns,
    HeadersColumn,
    Piece,
    shown,
)
from ottla.protocol.faults import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.walker import Spans
from ottla.protocol.types import TopicPartition

ROWS: Final = 10_000
# Most bytes held at once (or one batch); offsets into a column's bytes are int32.
BYTES_MAX: Final = 32 << 20

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER),
}


class BadBatch(ValueError):
    """A batch that cannot be read; the message names its partition."""


def record_batches(
    chunks: Iterable[Chunk],
    partition: TopicPartition,
    columns: tuple[str, ...],
    start: int,
    end: int,
    rows: int = ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the records with offsets in ``[start, end)`` as record batches of about ``rows``.

    Raises:
        BadBatch: a batch is damaged, or its records contradict its header. Exceptions of
            ``chunks`` are passed on.
    """
    assert columns
    builder = _BatchBuilder(partition, columns, start, end)
    try:
        for chunk in chunks:
            for piece in shown(chunk, start, end):
                if builder.size + len(piece.region) > BYTES_MAX:
                    yield from builder.take(rows)
                builder.hold(piece)
                if builder.count >= rows:
                    yield from builder.take(rows)
        yield from builder.take(rows)
    except (CorruptBatch, InvalidRecord, UnsupportedMagic) as error:
        raise BadBatch(f"{partition}: {error}") from error


class _BatchBuilder:
    """Collects batches, then decodes them into one record batch of exactly their size."""

    def __init__(
        self, partition: TopicPartition, columns: tuple[str, ...], start: int, end: int
    ) -> None:
        self._partition = partition
        self._columns = columns
        self._schema = pa.schema([(name, TYPES[name]) for name in columns])
        self._range = start, end
        self._spans = Spans(0)
        self._same: dict[str, pa.Array] = {}  # constant columns, the longest made so far
        self._held: list[Piece] = []
        self.count = 0  # records held
        self.size = 0  # their bytes

    def hold(self, piece: Piece) -> None:
        self._held.append(piece)
        self.count += piece.header.records_count
        self.size += len(piece.region)

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the held records in record batches of at most about ``rows``."""
        if not self._held:
            return
        made = self._make()
        self._held, self.count, self.size = [], 0, 0
        parts = max(1, round(made.num_rows / rows))
        length = -(-made.num_rows // parts)
        for first in range(0, made.num_rows, max(length, 1)):
            yield made.slice(first, length)

    def _make(self) -> pa.RecordBatch:
        most = max(piece.header.records_count for piece in self._held)
        if len(self._spans.offset_deltas) < most:
            self._spans = Spans(most)
        found = Columns(self._columns, self.count, self.size, _allocate, self._spans)
        for piece in self._held:
            found.add(piece, *self._range)
        arrays = [self._array(name, found) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, found: Columns) -> pa.Array:
        rows = found.rows
        if name in ("topic", "partition"):
            return self._repeated(name, rows)
        if name == "key":
            assert found.key is not None
            return _bytes_array(found.key, rows)
        if name == "value":
            assert found.value is not None
            return _bytes_array(found.value, rows)
        if name == "headers":
            assert found.headers is not None
            return _headers_array(found.headers, rows)
        numbers = {
            "offset": found.offset,
            "timestamp": found.timestamp,
            "timestampType": found.timestamp_type,
        }[name]
        return pa.Array.from_buffers(TYPES[name], rows, [None, pa.py_buffer(numbers)])

    def _repeated(self, name: str, rows: int) -> pa.Array:
        made = self._same.get(name)
        if made is None or len(made) < rows:
            value = self._partition.topic if name == "topic" else self._partition.partition
            made = self._same[name] = pa.repeat(pa.scalar(value, TYPES[name]), rows)
        return made.slice(0, rows)


def _allocate(size: int) -> memoryview:
    return memoryview(pa.allocate_buffer(size)).cast("B")


def _bytes_array(column: BytesColumn, rows: int) -> pa.Array:
    valid = pa.py_buffer(column.valid) if column.nulls else None
    buffers = [valid, pa.py_buffer(column.starts), pa.py_buffer(column.data[: column.used])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, column.nulls)


def _headers_array(column: HeadersColumn, rows: int) -> pa.Array:
    headers = len(column.value_is_null)
    key_starts, key_data = _text(column)
    keys = pa.Array.from_buffers(
        pa.string(), headers, [None, pa.py_buffer(key_starts), pa.py_buffer(key_data)]
    )
    values = pa.Array.from_buffers(
        pa.binary(),
        headers,
        [
            _bits(column.value_is_null),
            pa.py_buffer(column.value_starts),
            pa.py_buffer(column.value_data),
        ],
    )
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    valid = pa.py_buffer(column.valid) if column.nulls else None
    return pa.Array.from_buffers(
        TYPES["headers"],
        rows,
        [valid, pa.py_buffer(column.starts)],
        column.nulls,
        children=[structs],
    )


def _text(column: HeadersColumn) -> tuple[object, object]:
    """Return the keys' starts and bytes; invalid UTF-8 is replaced, as in Java."""
    if column.key_data.isascii():
        return column.key_starts, column.key_data
    starts = column.key_starts
    data = bytes(column.key_data)
    keys = [
        data[starts[index] : starts[index + 1]].decode("utf-8", "replace")
        for index in range(len(starts) - 1)
    ]
    made = pa.array(keys, pa.string())
    return made.buffers()[1], made.buffers()[2]


def _bits(is_null: bytearray) -> pa.Buffer | None:
    if not any(is_null):
        return None
    return pa.array([not each for each in is_null], pa.bool_()).buffers()[1]
