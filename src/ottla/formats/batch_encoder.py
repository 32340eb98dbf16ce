# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Encodes columns of rows into the records of batches, without an object per row.

The input is Arrow's layout of a column of bytes: ``starts`` with one entry more than rows, one
buffer of all bytes, and which rows are null. The output is a region of records as
`ottla.protocol.records.walker` describes it, with offset deltas from 0 and equal timestamps.

Cython compiles this module where possible; otherwise it runs as plain Python. The size of a region
is computed before it is written, so no byte is copied twice.
"""

import itertools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.client.blocking.raw_producer import Region
from ottla.protocol.types import Buffer

if TYPE_CHECKING:
    Numbers: TypeAlias = array[int]
    from ottla.protocol import cython_stub as cython
else:
    Numbers = array  # of int32, typecode 'i'
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


class Cells(NamedTuple):
    """A column of bytes. ``starts`` are int32; ``is_null`` has one byte per row, 1 for null."""

    starts: memoryview
    data: Buffer
    is_null: Buffer

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> "Cells":
        """Build a column from Python objects; for few rows, and for tests."""
        lengths = (len(value or b"") for value in values)
        starts = array("i", itertools.accumulate(lengths, initial=0))
        null = bytes(value is None for value in values)
        return cls(memoryview(starts), b"".join(value or b"" for value in values), null)


class HeaderCells(NamedTuple):
    """The headers of every row: those of row i are ``starts[i]`` up to ``starts[i + 1]``."""

    starts: memoryview
    keys: Cells
    values: Cells

    @classmethod
    def none(cls, rows: int) -> "HeaderCells":
        """Return the headers of rows that have none."""
        return cls(memoryview(array("i", bytes(4 * rows + 4))), Cells.of([]), Cells.of([]))


class Columns(NamedTuple):
    """The columns of the records of a batch."""

    keys: Cells
    values: Cells
    headers: HeaderCells


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.int:
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
    size: cython.int = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(
    out: cython.p_uchar,
    position: cython.Py_ssize_t,
    value: cython.longlong,
) -> cython.Py_ssize_t:
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out[position] = raw & 0x7F | 0x80
        raw >>= 7
        position += 1
    out[position] = raw
    return position + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field_size(
    starts: cython.const[cython.int][::1],  # type: ignore[valid-type]
    is_null: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    row: cython.int,
) -> cython.longlong:
    """Return the size of a field with its length prefix."""
    length: cython.longlong
    if is_null[row]:
        return 1
    length = starts[row + 1] - starts[row]
    return _varint_size(length) + length


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_field(
    out: cython.p_uchar,
    position: cython.Py_ssize_t,
    starts: cython.const[cython.int][::1],  # type: ignore[valid-type]
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    is_null: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    row: cython.int,
) -> cython.Py_ssize_t:
    start: cython.Py_ssize_t
    index: cython.Py_ssize_t
    length: cython.Py_ssize_t
    if is_null[row]:
        return _put_varint(out, position, -1)
    start = starts[row]
    length = starts[row + 1] - start
    position = _put_varint(out, position, length)
    for index in range(length):
        out[position + index] = data[start + index]
    return position + length


@cython.locals(
    row=cython.int,
    header=cython.int,
    size=cython.longlong,
    key_starts="const int[::1]",
    key_nulls="const unsigned char[::1]",
    value_starts="const int[::1]",
    value_nulls="const unsigned char[::1]",
    list_starts="const int[::1]",
    name_starts="const int[::1]",
    name_nulls="const unsigned char[::1]",
    content_starts="const int[::1]",
    content_nulls="const unsigned char[::1]",
    asked="const int[::1]",
    sizes="int[::1]",
    index=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    total=cython.longlong,
    needed=cython.longlong,
    limit=cython.longlong,
)
def _measure(columns: Columns, rows: Numbers, begin: int, bytes_max: int) -> tuple[Numbers, int]:
    """Return the body sizes of the records that fit (at least one), and the total size."""
    key_starts, key_nulls = columns.keys.starts, columns.keys.is_null
    value_starts, value_nulls = columns.values.starts, columns.values.is_null
    list_starts = columns.headers.starts
    name_starts, name_nulls = columns.headers.keys.starts, columns.headers.keys.is_null
    content_starts, content_nulls = columns.headers.values.starts, columns.headers.values.is_null
    asked = rows
    first = begin
    end = len(rows)
    limit = bytes_max
    found = array("i", bytes(4 * (end - first)))
    sizes = found
    total = 0
    for index in range(first, end):
        row = asked[index]
        # One byte each for the attributes and the timestamp delta, which is 0.
        size = 2 + _varint_size(index - first)
        size += _field_size(key_starts, key_nulls, row)
        size += _field_size(value_starts, value_nulls, row)
        size += _varint_size(list_starts[row + 1] - list_starts[row])
        for header in range(list_starts[row], list_starts[row + 1]):
            size += _field_size(name_starts, name_nulls, header)
            size += _field_size(content_starts, content_nulls, header)
        needed = size + _varint_size(size)
        if total + needed > limit and index > first:
            return found[: index - first], total
        total += needed
        sizes[index - first] = size
    return found, total


@cython.locals(
    row=cython.int,
    header=cython.int,
    key_starts="const int[::1]",
    key_data="const unsigned char[::1]",
    key_nulls="const unsigned char[::1]",
    value_starts="const int[::1]",
    value_data="const unsigned char[::1]",
    value_nulls="const unsigned char[::1]",
    list_starts="const int[::1]",
    name_starts="const int[::1]",
    name_data="const unsigned char[::1]",
    name_nulls="const unsigned char[::1]",
    content_starts="const int[::1]",
    content_data="const unsigned char[::1]",
    content_nulls="const unsigned char[::1]",
    asked="const int[::1]",
    measured="const int[::1]",
    out=cython.p_uchar,
    position=cython.Py_ssize_t,
    index=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
)
def _write(columns: Columns, rows: Numbers, begin: int, sizes: Numbers, region: bytearray) -> int:
    """Write one record per size; return the end of the last one."""
    key_starts, key_data, key_nulls = columns.keys
    value_starts, value_data, value_nulls = columns.values
    list_starts = columns.headers.starts
    name_starts, name_data, name_nulls = columns.headers.keys
    content_starts, content_data, content_nulls = columns.headers.values
    asked = rows
    measured = sizes
    out = region
    first = begin
    position = 0
    for index in range(len(sizes)):
        row = asked[first + index]
        position = _put_varint(out, position, measured[index])
        out[position] = 0
        out[position + 1] = 0
        position = _put_varint(out, position + 2, index)
        position = _put_field(out, position, key_starts, key_data, key_nulls, row)
        position = _put_field(out, position, value_starts, value_data, value_nulls, row)
        position = _put_varint(out, position, list_starts[row + 1] - list_starts[row])
        for header in range(list_starts[row], list_starts[row + 1]):
            position = _put_field(out, position, name_starts, name_data, name_nulls, header)
            position = _put_field(
                out, position, content_starts, content_data, content_nulls, header
            )
    return position


def encode_rows(columns: Columns, rows: Numbers, first: int, bytes_max: int) -> Region:
    """Write the records of ``rows[first:]``, as many as fit into ``bytes_max``.

    The first record is written even if it alone is larger: the broker decides whether to accept
    it. The caller guarantees that ``rows`` are int32 and within the columns.
    """
    assert 0 <= first < len(rows)
    sizes, total = _measure(columns, rows, first, bytes_max)
    data = bytearray(total)
    end = _write(columns, rows, first, sizes, data)
    assert end == len(data), "a region has its computed size"
    return Region(data, len(sizes), first + len(sizes))


@cython.locals(
    key_starts="const int[::1]",
    key_data="const unsigned char[::1]",
    key_nulls="const unsigned char[::1]",
    chosen="int[::1]",
    row=cython.int,
    position=cython.int,
    whole=cython.int,
    end=cython.int,
    mixed=cython.uint,
    word=cython.uint,
    multiplier=cython.uint,
    seed=cython.uint,
    mask=cython.uint,
    rows=cython.int,
    count=cython.uint,
    otherwise=cython.int,
)
def partitions_of_keys(keys: Cells, partitions: int, keyless: int) -> Numbers:
    """Return the partition of every key, as Kafka's clients choose it; ``keyless`` for null.

    The hash is murmur2, as in `ottla.client.partitioner`, its sign bit dropped.
    """
    key_starts, key_data, key_nulls = keys
    multiplier = _MULTIPLIER
    seed = _SEED
    mask = 0xFFFFFFFF
    rows = len(keys.is_null)
    count = partitions
    otherwise = keyless
    found = array("i", bytes(4 * rows))
    chosen = found
    for row in range(rows):
        if key_nulls[row]:
            chosen[row] = otherwise
            continue
        position = key_starts[row]
        end = key_starts[row + 1]
        whole = position + ((end - position) & ~3)
        mixed = seed ^ (end - position)
        while position < whole:
            word = (
                key_data[position]
                | key_data[position + 1] << 8
                | key_data[position + 2] << 16
                | key_data[position + 3] << 24
            )
            word = word * multiplier & mask
            word ^= word >> 24
            word = word * multiplier & mask
            mixed = (mixed * multiplier & mask) ^ word
            position += 4
        if end > whole:
            word = 0
            while end > whole:
                end -= 1
                word = word << 8 | key_data[end]
            mixed ^= word
            mixed = mixed * multiplier & mask
        mixed ^= mixed >> 13
        mixed = mixed * multiplier & mask
        mixed ^= mixed >> 15
        chosen[row] = (mixed & 0x7FFFFFFF) % count
    return found


@cython.locals(
    given="const int[::1]",
    places="int[::1]",
    order="int[::1]",
    row=cython.int,
    rows=cython.int,
    number=cython.int,
)
def rows_by_number(numbers: Numbers, count: int) -> list[Numbers]:
    """Return, for each number below ``count``, the rows that have it, in their order.

    Rows with a negative number are left out; all numbers are below ``count``.
    """
    given = numbers
    rows = len(numbers)
    starts = array("i", bytes(4 * count + 4))
    places = starts
    for row in range(rows):
        if given[row] >= 0:
            places[given[row] + 1] += 1
    for number in range(count):
        places[number + 1] += places[number]
    bounds = starts[:]
    sorted_rows = array("i", bytes(4 * rows))
    order = sorted_rows
    for row in range(rows):
        number = given[row]
        if number >= 0:
            order[places[number]] = row
            places[number] += 1
    return [sorted_rows[bounds[each] : bounds[each + 1]] for each in range(count)]
