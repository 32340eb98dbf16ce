# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Decodes batches into columns, without an object per record.

The input is whole record batches, as in a fetch response or a log segment. The output has the
layout of Arrow columns, so that nothing is copied again::

    bytes      starts int32, one more than rows; all bytes contiguous; valid, one bit per row,
               least significant bit first, 0 for null
    numbers    int64 or int32, one per row; a timestamp is microseconds since 1970
    headers    starts and valid as for bytes, counting headers; their keys and values as bytes

Only the selected columns are decoded. A batch with a wrong CRC is rejected; in the others every
length is checked before it is used (`walker.walk_into`), and offsets must rise within the batch.

Cython compiles this module where possible; otherwise it runs as plain Python.
"""

from array import array
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.client.fetched import Aborted, AbortedFilter, Chunk
from ottla.protocol.faults import CorruptBatch, InvalidRecord
from ottla.protocol.records.batch import BatchHeader, batches, is_crc_valid
from ottla.protocol.records.reader import unpack_region
from ottla.protocol.records.walker import RECORD_BYTES_MIN, Spans, walk_into
from ottla.protocol.types import Buffer

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython

    Allocate: TypeAlias = Callable[[int], memoryview]
    Numbers: TypeAlias = array[int]
else:
    Allocate, Numbers = Callable, array
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

# Microseconds have 64 bits, so not every 64-bit millisecond can be represented.
_MILLIS_MAX: Final = (2**63 - 1) // 1000


class Piece(NamedTuple):
    """The header of a visible batch, and its decompressed records."""

    header: BatchHeader
    region: Buffer


def shown(chunk: Chunk, start: int, end: int) -> Iterator[Piece]:
    """Yield the batches of a chunk with records in ``[start, end)`` that the reader may see.

    Raises:
        CorruptBatch, UnsupportedMagic: bytes that are not a batch, or a wrong CRC.
        InvalidRecord: records that cannot be decompressed, or a record count that cannot fit.
    """
    data = chunk.data
    filtering = AbortedFilter([Aborted(*each) for each in chunk.aborted])
    for position, header in batches(data):
        if header.base_offset >= end:
            return
        if not is_crc_valid(data, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} has a wrong CRC")
        is_shown = filtering.shows(data, position, header)
        if not is_shown or header.next_offset <= start or header.records_count == 0:
            continue
        region = unpack_region(data, position, header)
        if not 0 <= header.records_count <= len(region) // RECORD_BYTES_MIN:
            raise InvalidRecord(
                f"{header.records_count} records do not fit into {len(region)} bytes"
            )
        yield Piece(header, region)


# -- columns -----------------------------------------------------------------


class BytesColumn:
    """A column with space for ``rows`` values of ``size`` bytes in all; ``used`` are filled."""

    __slots__ = ("data", "nulls", "starts", "used", "valid")

    def __init__(self, rows: int, size: int, allocate: Allocate) -> None:
        self.starts = allocate(4 * rows + 4).cast("i")
        self.data = allocate(size)
        self.valid = memoryview(bytearray((rows >> 3) + 1))
        self.starts[0] = 0
        self.used = 0
        self.nulls = 0


class HeadersColumn:
    """A column of headers; those of all rows are contiguous, and buffers grow as needed."""

    __slots__ = ("key_data", "key_starts", "nulls", "starts", "valid", "value_data",
                 "value_is_null", "value_starts")  # fmt: skip

    def __init__(self, rows: int, allocate: Allocate) -> None:
        self.starts = allocate(4 * rows + 4).cast("i")
        self.starts[0] = 0
        self.valid = memoryview(bytearray((rows >> 3) + 1))
        self.nulls = 0
        self.key_starts = array("i", [0])
        self.key_data = bytearray()
        self.value_starts = array("i", [0])
        self.value_data = bytearray()
        self.value_is_null = bytearray()


class Columns:
    """Buffers for the selected columns of up to ``rows`` records out of ``size`` bytes.

    ``allocate`` may return uninitialized bytes; each is written before it is exposed.
    """

    __slots__ = (
        "headers",
        "key",
        "offset",
        "rows",
        "spans",
        "timestamp",
        "timestamp_type",
        "value",
    )

    def __init__(
        self, names: Collection[str], rows: int, size: int, allocate: Allocate, spans: Spans
    ) -> None:
        self.rows = 0
        self.spans = spans
        self.key = BytesColumn(rows, size, allocate) if "key" in names else None
        self.value = BytesColumn(rows, size, allocate) if "value" in names else None
        self.offset = allocate(8 * rows).cast("q") if "offset" in names else None
        self.timestamp = allocate(8 * rows).cast("q") if "timestamp" in names else None
        self.timestamp_type = allocate(4 * rows).cast("i") if "timestampType" in names else None
        self.headers = HeadersColumn(rows, allocate) if "headers" in names else None

    def add(self, piece: Piece, start: int, end: int) -> None:
        """Add the records of a batch whose offsets are in ``[start, end)``.

        Raises:
            InvalidRecord: the records are inconsistent; the columns must be discarded.
        """
        header, region = piece
        spans = self.spans
        spans.count = header.records_count
        walk_into(spans, region)
        first, stop = rows_between(
            spans, header.last_offset_delta, start - header.base_offset, end - header.base_offset
        )
        row = self.rows
        if self.key is not None:
            _gather_bytes(self.key, row, region, (spans.key_starts, spans.key_lengths), first, stop)
        if self.value is not None:
            at = (spans.value_starts, spans.value_lengths)
            _gather_bytes(self.value, row, region, at, first, stop)
        if self.offset is not None:
            _gather_offsets(self.offset, row, header.base_offset, spans.offset_deltas, first, stop)
        if self.timestamp is not None:
            _add_timestamps(self.timestamp, row, header, spans, first, stop)
        if self.timestamp_type is not None:
            _repeat(self.timestamp_type, row, stop - first, int(header.is_log_append_time))
        if self.headers is not None:
            _add_headers(self.headers, row, region, spans, first, stop)
        self.rows = row + stop - first


@cython.locals(
    deltas="int[::1]",
    index=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
    low=cython.longlong,
    high=cython.longlong,
    previous=cython.longlong,
    delta=cython.longlong,
)
def rows_between(spans: Spans, last_delta: int, start: int, end: int) -> tuple[int, int]:
    """Return the range of rows with an offset delta in ``[start, end)``.

    Raises:
        InvalidRecord: deltas do not increase, or exceed ``[0, last_delta]``.
    """
    deltas = spans.offset_deltas
    count = spans.count
    low, high = max(start, 0), min(end, 2**31)
    first, stop = count, count
    previous = -1
    for index in range(count):
        delta = deltas[index]
        if delta <= previous:
            raise InvalidRecord(f"offset delta {delta} after {previous}")
        if delta >= low and first == count:
            first = index
        if delta >= high and stop == count:
            stop = index
        previous = delta
    if previous > last_delta:
        raise InvalidRecord(f"offset delta {previous} in a batch that ends with {last_delta}")
    return min(first, stop), stop


@cython.locals(
    source="const unsigned char[::1]",
    target="unsigned char[::1]",
    out_starts="int[::1]",
    valid="unsigned char[::1]",
    starts="int[::1]",
    lengths="int[::1]",
    index=cython.Py_ssize_t,
    byte=cython.Py_ssize_t,
    used=cython.Py_ssize_t,
    begin=cython.Py_ssize_t,
    length=cython.Py_ssize_t,
    row=cython.Py_ssize_t,
    begin_row=cython.Py_ssize_t,
    end_row=cython.Py_ssize_t,
    nulls=cython.Py_ssize_t,
)
def _gather_bytes(
    column: BytesColumn,
    at_row: int,
    region: Buffer,
    spans: tuple[Numbers, Numbers],
    first: int,
    stop: int,
) -> None:
    """Copy the bytes of rows ``[first, stop)``, whose positions the walker has checked."""
    source, target = memoryview(region), column.data
    starts = spans[0]
    lengths = spans[1]
    out_starts, valid = column.starts, column.valid
    row, used, nulls = at_row, column.used, 0
    begin_row, end_row = first, stop
    for index in range(begin_row, end_row):
        length = lengths[index]
        begin = starts[index]
        if length >= 0:
            valid[row >> 3] |= 1 << (row & 7)
            for byte in range(length):
                target[used + byte] = source[begin + byte]
            used += length
        else:
            nulls += 1
        row += 1
        out_starts[row] = used
    column.used = used
    column.nulls += nulls


@cython.locals(
    target="long long[::1]",
    source="int[::1]",
    index=cython.Py_ssize_t,
    base=cython.longlong,
    row=cython.Py_ssize_t,
    begin_row=cython.Py_ssize_t,
    end_row=cython.Py_ssize_t,
)
def _gather_offsets(
    column: memoryview, at_row: int, base_offset: int, deltas: Numbers, first: int, stop: int
) -> None:
    target, source = column, deltas
    base, begin_row, end_row, row = base_offset, first, stop, at_row - first
    for index in range(begin_row, end_row):
        target[row + index] = base + source[index]


def _add_timestamps(
    column: memoryview, row: int, header: BatchHeader, spans: Spans, first: int, stop: int
) -> None:
    if header.is_log_append_time:
        _check_millis(header.max_timestamp)
        _repeat_long(column, row, stop - first, header.max_timestamp * 1000)
        return
    base = header.base_timestamp
    _check_millis(base)
    if not _gather_timestamps(column, row, base, spans.timestamp_deltas, first, stop):
        raise InvalidRecord("a timestamp does not fit 64 bits of microseconds")


def _check_millis(timestamp: int) -> None:
    if not -_MILLIS_MAX <= timestamp <= _MILLIS_MAX:
        raise InvalidRecord(f"timestamp {timestamp} does not fit 64 bits of microseconds")


@cython.locals(
    target="long long[::1]",
    source="long long[::1]",
    index=cython.Py_ssize_t,
    base=cython.longlong,
    low=cython.longlong,
    high=cython.longlong,
    delta=cython.longlong,
    row=cython.Py_ssize_t,
    begin_row=cython.Py_ssize_t,
    end_row=cython.Py_ssize_t,
)
def _gather_timestamps(
    column: memoryview,
    at_row: int,
    base_timestamp: int,
    deltas: Numbers,
    first: int,
    stop: int,
) -> bool:
    """Write timestamps in microseconds; return whether all fit."""
    target, source = column, deltas
    base, begin_row, end_row, row = base_timestamp, first, stop, at_row - first
    low, high = -_MILLIS_MAX - base_timestamp, _MILLIS_MAX - base_timestamp
    for index in range(begin_row, end_row):
        delta = source[index]
        if delta < low or delta > high:
            return False
        target[row + index] = (base + delta) * 1000
    return True


@cython.locals(target="int[::1]", index=cython.Py_ssize_t, row=cython.Py_ssize_t, one=cython.int)
def _repeat(column: memoryview, at_row: int, count: int, value: int) -> None:
    target, row, one = column, at_row, value
    for index in range(row, row + count):
        target[index] = one


@cython.locals(
    target="long long[::1]", index=cython.Py_ssize_t, row=cython.Py_ssize_t, one=cython.longlong
)
def _repeat_long(column: memoryview, at_row: int, count: int, value: int) -> None:
    target, row, one = column, at_row, value
    for index in range(row, row + count):
        target[index] = one


# -- headers -----------------------------------------------------------------


@cython.locals(
    starts="int[::1]",
    header_starts="int[::1]",
    counts="int[::1]",
    index=cython.Py_ssize_t,
    begin_row=cython.Py_ssize_t,
    end_row=cython.Py_ssize_t,
    total=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
)
def _measure_headers(spans: Spans, first: int, stop: int) -> tuple[int, int]:
    """Return the number of headers of rows ``[first, stop)``, and their size in bytes."""
    starts, header_starts, counts = spans.starts, spans.header_starts, spans.header_counts
    begin_row, end_row, total, size = first, stop, 0, 0
    for index in range(begin_row, end_row):
        if counts[index]:
            total += counts[index]
            size += starts[index + 1] - header_starts[index]
    return total, size


def _add_headers(
    column: HeadersColumn, row: int, region: Buffer, spans: Spans, first: int, stop: int
) -> None:
    total, size = _measure_headers(spans, first, stop)
    if not total:
        _repeat(column.starts, row + 1, stop - first, column.starts[row])
        column.nulls += stop - first
        return
    key_used, value_used = len(column.key_data), len(column.value_data)
    column.key_starts.frombytes(bytes(4 * total))
    column.value_starts.frombytes(bytes(4 * total))
    column.value_is_null.extend(bytes(total))
    column.key_data.extend(bytes(size))
    column.value_data.extend(bytes(size))
    key_used, value_used = _gather_headers(column, row, region, spans, first, stop)
    del column.key_data[key_used:]
    del column.value_data[value_used:]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.Py_ssize_t,
) -> tuple[cython.Py_ssize_t, cython.int]:
    """Read a varint that the walker has already validated."""
    raw: cython.uint = 0
    shift: cython.int = 0
    byte: cython.uint = data[position]
    while byte > 0x7F:
        raw |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        byte = data[position]
    raw |= byte << shift
    raw &= 0xFFFFFFFF
    return position + 1, (raw >> 1) ^ -(raw & 1)


@cython.locals(
    source="const unsigned char[::1]",
    header_starts="int[::1]",
    counts="int[::1]",
    out_starts="int[::1]",
    valid="unsigned char[::1]",
    key_starts="int[::1]",
    key_data="unsigned char[::1]",
    value_starts="int[::1]",
    value_data="unsigned char[::1]",
    value_is_null="unsigned char[::1]",
    index=cython.Py_ssize_t,
    byte=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    length=cython.int,
    row=cython.Py_ssize_t,
    header=cython.Py_ssize_t,
    key_used=cython.Py_ssize_t,
    value_used=cython.Py_ssize_t,
    nulls=cython.Py_ssize_t,
    begin_row=cython.Py_ssize_t,
    end_row=cython.Py_ssize_t,
)
def _gather_headers(
    column: HeadersColumn, at_row: int, region: Buffer, spans: Spans, first: int, stop: int
) -> tuple[int, int]:
    """Copy keys and values into their buffers; return the bytes used by each."""
    source = memoryview(region)
    header_starts, counts = spans.header_starts, spans.header_counts
    out_starts, valid = column.starts, column.valid
    key_starts, key_data = column.key_starts, column.key_data
    value_starts, value_data = column.value_starts, column.value_data
    value_is_null = column.value_is_null
    row, header, nulls, begin_row, end_row = at_row, column.starts[at_row], 0, first, stop
    key_used, value_used = key_starts[header], value_starts[header]
    for index in range(begin_row, end_row):
        position = header_starts[index]
        for _ in range(counts[index]):
            position, length = _varint(source, position)
            for byte in range(length):
                key_data[key_used + byte] = source[position + byte]
            key_used += length
            position, length = _varint(source, position + length)
            value_is_null[header] = length < 0
            if length > 0:
                for byte in range(length):
                    value_data[value_used + byte] = source[position + byte]
                value_used += length
                position += length
            header += 1
            key_starts[header] = key_used
            value_starts[header] = value_used
        if counts[index]:
            valid[row >> 3] |= 1 << (row & 7)
        else:
            nulls += 1
        row += 1
        out_starts[row] = header
    column.nulls += nulls
    return key_used, value_used
