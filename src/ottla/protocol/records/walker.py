# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Walks the decompressed records of a batch, without an object per record.

One record; every number but the attributes is a zigzag varint::

    length          varint   bytes that follow
    attributes      int8     unused
    timestampDelta  varlong  to the batch's base timestamp
    offsetDelta     varint   to the batch's base offset
    keyLength       varint   negative: null
    key
    valueLength     varint   negative: null
    value
    headersCount    varint
    headers         keyLength varint, key (never null), valueLength varint, value

Cython compiles this module where possible; otherwise it runs as plain Python: C types are declared,
but the code does not depend on them. Each index is checked explicitly before it is used. A varint
of more than 5 bytes or a varlong of more than 10 is rejected; bits beyond 32 or 64 are dropped, as
in Kafka.
"""

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.types import Buffer, Millis

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

# One byte for each field of a record without key, value and headers.
RECORD_BYTES_MIN: Final = 7
# Positions are int32, as in Arrow, and one of them is beyond the end.
REGION_BYTES_MAX: Final = 2**31 - 16
RECORD_SIZE_MAX: Final = 2**31 - 9
"""Kafka's default of ``max.decompressed.message.bytes``: the largest array of a JVM."""
_INT64_LOWEST: cython.longlong = -(2**63)
_INT64_HIGHEST: cython.longlong = 2**63 - 1


class RecordsSummary(NamedTuple):
    """A summary of a batch's records for brokers; deltas are relative to the header's bases."""

    max_timestamp_delta: int
    max_timestamp_offset_delta: int  # of the first record with that timestamp
    has_null_key: bool
    min_timestamp_delta: int


class Spans:
    """The positions of all fields in a region of records: one typed column per field.

    Positions count bytes from the start of the region; ``key_starts[i]`` is where the key's
    bytes begin, and a length of -1 is null. Record ``i`` is ``starts[i]`` up to
    ``starts[i + 1]``: that column has one entry more than records.
    """

    __slots__ = (
        "count",
        "header_counts",
        "header_starts",
        "key_lengths",
        "key_starts",
        "offset_deltas",
        "starts",
        "timestamp_deltas",
        "value_lengths",
        "value_starts",
    )

    def __init__(self, count: int) -> None:
        column = array("i", bytes(4 * count))
        self.count = count
        self.starts = array("i", bytes(4 * count + 4))
        self.timestamp_deltas = array("q", bytes(8 * count))
        self.offset_deltas = column
        self.key_starts = column[:]
        self.key_lengths = column[:]
        self.value_starts = column[:]
        self.value_lengths = column[:]
        self.header_starts = column[:]
        self.header_counts = column[:]


# The functions below take a position and return first the position after the bytes they read or,
# for malformed bytes, one beyond the data, where every further step remains. Positions only grow,
# so a step may read past its record but never past the data; the end of the record is checked.
# They raise nothing, so that the compiled form is one loop over registers.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.int,
    data_end: cython.int,
) -> tuple[cython.int, cython.int]:
    """Read a zigzag varint of at most 5 bytes."""
    raw: cython.uint
    byte: cython.uint
    if position + 2 < data_end:
        raw = data[position]
        if raw < 0x80:
            return position + 1, (raw >> 1) ^ -(raw & 1)
        byte = data[position + 1]
        raw = (raw & 0x7F) | (byte & 0x7F) << 7
        if byte < 0x80:
            return position + 2, (raw >> 1) ^ -(raw & 1)
        byte = data[position + 2]
        raw |= (byte & 0x7F) << 14
        if byte < 0x80:
            return position + 3, (raw >> 1) ^ -(raw & 1)
    return _long_varint(data, position, data_end)


@cython.cfunc
@cython.exceptval(check=False)
def _long_varint(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.int,
    data_end: cython.int,
) -> tuple[cython.int, cython.int]:
    """Do as `_varint`, for every length and up to the end of the data."""
    byte: cython.uint
    raw: cython.uint = 0
    shift: cython.int = 0
    while position < data_end:
        byte = data[position]
        position += 1
        if shift == 28:
            if byte > 0x7F:
                break
            byte &= 0x0F
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position, (raw >> 1) ^ -(raw & 1)
        shift += 7
    return data_end + 1, 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varlong(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.int,
    data_end: cython.int,
) -> tuple[cython.int, cython.longlong]:
    """Read a zigzag varlong of at most 10 bytes."""
    raw: cython.ulonglong
    byte: cython.ulonglong
    if position + 2 < data_end:
        raw = data[position]
        if raw < 0x80:
            return position + 1, (raw >> 1) ^ -(raw & 1)
        byte = data[position + 1]
        raw = (raw & 0x7F) | (byte & 0x7F) << 7
        if byte < 0x80:
            return position + 2, (raw >> 1) ^ -(raw & 1)
        byte = data[position + 2]
        raw |= (byte & 0x7F) << 14
        if byte < 0x80:
            return position + 3, (raw >> 1) ^ -(raw & 1)
    return _long_varlong(data, position, data_end)


@cython.cfunc
@cython.exceptval(check=False)
def _long_varlong(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.int,
    data_end: cython.int,
) -> tuple[cython.int, cython.longlong]:
    """Do as `_varlong`, for every length and up to the end of the data."""
    byte: cython.ulonglong
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    while position < data_end:
        byte = data[position]
        position += 1
        if shift == 63:
            if byte > 0x7F:
                break
            byte &= 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position, (raw >> 1) ^ -(raw & 1)
        shift += 7
    return data_end + 1, 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field_end(position: cython.int, length: cython.int, end: cython.int) -> cython.int:
    """Skip ``length`` bytes of a key or value; none if it is null."""
    if length <= 0:
        return position
    return position + length if length <= end - position else end + 1


@cython.cfunc
@cython.exceptval(check=False)
def _headers_end(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.int,
    end: cython.int,
    count: cython.int,
) -> cython.int:
    """Skip ``count`` headers of at least two bytes each, in a record that ends at ``end``."""
    length: cython.int
    if count < 0 or count > (end - position) >> 1:
        return end + 1
    while count > 0:
        position, length = _varint(data, position, end)
        if length < 0:
            return end + 1
        position, length = _varint(data, _field_end(position, length, end), end)
        position = _field_end(position, length, end)
        count -= 1
    return position


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _record(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.int,
    data_end: cython.int,
) -> tuple[
    cython.int,  # position after the record; negative: it is malformed
    cython.longlong,  # timestamp delta
    cython.int,  # offset delta
    cython.int,  # key start
    cython.int,  # key length
    cython.int,  # value start
    cython.int,  # value length
    cython.int,  # headers start
    cython.int,  # headers count
]:
    """Read one record."""
    end: cython.int
    length: cython.int
    timestamp_delta: cython.longlong
    offset_delta: cython.int
    key_start: cython.int
    key_length: cython.int
    value_start: cython.int
    value_length: cython.int
    headers_start: cython.int
    headers_count: cython.int
    position, length = _varint(data, position, data_end)
    if length < 6 or length > data_end - position:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    end = position + length
    position, timestamp_delta = _varlong(data, position + 1, data_end)  # 1: attributes
    position, offset_delta = _varint(data, position, data_end)
    key_start, key_length = _varint(data, position, data_end)
    position = _field_end(key_start, key_length, end)
    value_start, value_length = _varint(data, position, data_end)
    position = _field_end(value_start, value_length, end)
    headers_start, headers_count = _varint(data, position, data_end)
    position = headers_start
    if headers_count != 0:
        position = _headers_end(data, headers_start, end, headers_count)
    if position != end:
        end = -1
    return (
        end,
        timestamp_delta,
        offset_delta,
        key_start,
        max(key_length, -1),
        value_start,
        max(value_length, -1),
        headers_start,
        headers_count,
    )


def _check_region(length: int, count: int) -> None:
    """Reject a count that does not fit the bytes, before allocating memory for it."""
    if length > REGION_BYTES_MAX:
        raise InvalidRecord(f"{length} bytes of records are too many")
    if count < 0 or count > length // RECORD_BYTES_MIN:
        raise InvalidRecord(f"{count} records do not fit into {length} bytes")


def _malformed(index: int, position: int) -> InvalidRecord:
    return InvalidRecord(f"record {index}, at byte {position} of the records, is malformed")


def _check_end(position: int, length: int) -> None:
    if position != length:
        raise InvalidRecord(f"{length - position} bytes after the last record")


# -- the common record, in a straight line -----------------------------------
#
# Most records are short: length, key and value below 8 KiB, and no headers. These are read
# without branches for errors, and one comparison at the end checks all assumptions. If it fails,
# the result is discarded and `_record`, which handles every case, reads the record again.
# Reading ahead of the comparison is safe while `_AHEAD_BYTES` of data follow the record:
# at most 22 bytes are read after the first field, and none beyond the end of the record.

# A raw varint of two bytes is below 0x4000, one of three below 0x200000; a longer one has
# that bit. The code uses the two literals, because a name would be looked up in the loop.

_AHEAD_BYTES: Final = 32


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _short(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.Py_ssize_t,
) -> tuple[cython.Py_ssize_t, cython.uint]:
    """Read up to two bytes of a varint, without zigzag decoding; 0x4000 or more for longer."""
    raw: cython.uint = data[position]
    if raw < 0x80:
        return position + 1, raw
    return position + 2, (raw & 0x7F) | data[position + 1] << 7


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _delta(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.Py_ssize_t,
) -> tuple[cython.Py_ssize_t, cython.uint]:
    """Read up to three bytes of a varint, without zigzag decoding; 0x200000 or more for longer."""
    raw: cython.uint
    position, raw = _short(data, position)
    if raw < 0x4000:
        return position, raw
    return position + 1, (raw & 0x3FFF) | data[position] << 14


@cython.locals(
    data="const unsigned char[::1]",
    starts="int[::1]",
    timestamp_deltas="long long[::1]",
    offset_deltas="int[::1]",
    key_starts="int[::1]",
    key_lengths="int[::1]",
    value_starts="int[::1]",
    value_lengths="int[::1]",
    header_starts="int[::1]",
    header_counts="int[::1]",
    index=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    key_start=cython.Py_ssize_t,
    value_start=cython.Py_ssize_t,
    unfolded=cython.int,
    data_end=cython.Py_ssize_t,
    ahead_end=cython.Py_ssize_t,
    size=cython.uint,
    timestamp=cython.uint,
    offset=cython.uint,
    key=cython.uint,
    value=cython.uint,
    headers=cython.uint,
)
def _fill(spans: Spans, region: Buffer) -> int:
    """Walk one record per span; return the end of the last one."""
    starts, timestamp_deltas = spans.starts, spans.timestamp_deltas
    offset_deltas = spans.offset_deltas
    key_starts, key_lengths = spans.key_starts, spans.key_lengths
    value_starts, value_lengths = spans.value_starts, spans.value_lengths
    header_starts, header_counts = spans.header_starts, spans.header_counts
    data = memoryview(region)
    data_end = len(region)
    ahead_end = data_end - _AHEAD_BYTES
    position = 0
    for index in range(spans.count):
        starts[index] = position
        size = 0x4000
        if position < ahead_end:
            position, size = _short(data, position)
        end = position + (size >> 1)
        if end < ahead_end:
            position, timestamp = _delta(data, position + 1)  # 1: attributes
            position, offset = _delta(data, position)
            key_start, key = _short(data, position)
            # An odd raw length is negative: null, without bytes.
            position = min(key_start + ((key >> 1) & ((key & 1) - 1)), end)
            value_start, value = _short(data, position)
            position = min(value_start + ((value >> 1) & ((value & 1) - 1)), end)
            header_starts[index], headers = _short(data, position)
            if (
                position + 1 == end
                and headers | size & 1 == 0
                and size < 0x4000  # excludes longer keys and values
                and timestamp | offset < 0x200000
            ):
                unfolded = (timestamp >> 1) ^ -(timestamp & 1)
                timestamp_deltas[index] = unfolded
                offset_deltas[index] = (offset >> 1) ^ -(offset & 1)
                key_starts[index] = key_start
                key_lengths[index] = (key >> 1) | -(key & 1)
                value_starts[index] = value_start
                value_lengths[index] = (value >> 1) | -(value & 1)
                header_counts[index] = 0
                position = end
                continue
        (
            position,
            timestamp_deltas[index],
            offset_deltas[index],
            key_starts[index],
            key_lengths[index],
            value_starts[index],
            value_lengths[index],
            header_starts[index],
            header_counts[index],
        ) = _record(data, starts[index], data_end)
        if position < 0:
            raise _malformed(index, starts[index])
    return position


def walk_into(spans: Spans, region: Buffer) -> None:
    """Fill ``spans`` with the positions of the fields of its number of records.

    The records fill ``region`` exactly. Offset deltas are not checked: after compaction they
    have gaps. ``spans`` is overwritten and may be reused for many regions.

    Raises:
        InvalidRecord: a length or count contradicts the bytes, or bytes remain; ``spans`` is
            invalid then.
    """
    _check_region(len(region), spans.count)
    end = _fill(spans, region)
    _check_end(end, len(region))
    spans.starts[spans.count] = end


def walk_spans(region: Buffer, count: int) -> Spans:
    """Return the positions of the fields of ``count`` records; see `walk_into`."""
    _check_region(len(region), count)  # before allocating memory for them
    spans = Spans(count)
    walk_into(spans, region)
    return spans


def check_records(region: Buffer, count: int, base_timestamp: Millis) -> RecordsSummary:
    """Validate the ``count`` records of a producer, and return a summary.

    They must fill ``region`` exactly, with offset deltas 0, 1, 2 and so on and timestamps of 64
    bits. Nothing is stored, because this runs for every produced batch.

    Raises:
        InvalidRecord: a check fails, or there are no records.
    """
    _check_region(len(region), count)
    return RecordsSummary._make(check_records_at(region, 0, len(region), count, base_timestamp))


@cython.locals(
    data="const unsigned char[::1]",
    data_end=cython.int,
    position=cython.int,
    body=cython.int,
    length=cython.int,
    length_max=cython.int,
    index=cython.int,
)
def check_sizes(region: Buffer, count: int, size_max: int) -> None:
    """Check that no record of a region that was checked already has over ``size_max`` bytes.

    That is what ``max.decompressed.message.bytes`` limits: a record without its length.

    Raises:
        InvalidRecord: one has.
    """
    if len(region) <= size_max:
        return  # nearly always
    data = memoryview(region)
    data_end, position, length_max = len(region), 0, size_max
    for index in range(count):
        body, length = _varint(data, position, data_end)
        if length > length_max:
            raise oversized(index, length, size_max)
        position = body + length


def oversized(index: int, size: int, size_max: int) -> InvalidRecord:
    """Return the fault of a record above ``max.decompressed.message.bytes``."""
    return InvalidRecord(
        f"record {index} has {size} bytes, max.decompressed.message.bytes is {size_max}"
    )


@cython.locals(
    data="const unsigned char[::1]",
    data_end=cython.int,
    position=cython.int,
    body=cython.int,
    length=cython.int,
    length_max=cython.int,
    index=cython.int,
    records=cython.int,
    base=cython.longlong,
    stamp=cython.longlong,
    delta_min=cython.longlong,
    delta_max=cython.longlong,
    newest=cython.longlong,
    oldest=cython.longlong,
    newest_index=cython.int,
    number=cython.int,
    key_length=cython.int,
    has_null_key=cython.bint,
)
def check_some(
    buffer: Buffer, first: int, count: int, base_timestamp: int, size_max: int = RECORD_SIZE_MAX
) -> tuple[int, int, tuple[int, int, bool, int]]:
    """Check the complete records in ``buffer`` among ``first`` to ``count`` of a batch.

    For records that are decompressed in pieces. Return the bytes they occupy, the number of the
    next record, and the fields of their summary, which is valid if there was any record.

    Raises:
        InvalidRecord: as `check_records`; or a record, complete or not, of over ``size_max`` bytes.
    """
    data = memoryview(buffer)
    data_end, records, position, index, length_max = len(buffer), count, 0, first, size_max
    delta_min, delta_max, base = _INT64_LOWEST, _INT64_HIGHEST, base_timestamp
    if base < 0:
        delta_min = _INT64_LOWEST - base
    else:
        delta_max = _INT64_HIGHEST - base
    newest, oldest, newest_index, has_null_key = delta_min, delta_max, index, False
    while index < records:
        body, length = _varint(data, position, data_end)
        if body > data_end and data_end - position < 5:
            break
        if body > data_end or length < 6:
            raise _malformed(index, position)
        if length > length_max:
            raise oversized(index, length, size_max)
        if length > data_end - body:
            break
        body, stamp, number, _, key_length, _, _, _, _ = _record(data, position, data_end)
        if body < 0:
            raise _malformed(index, position)
        if number != index:
            raise InvalidRecord(f"offset delta {number} where {index} was due")
        if stamp < delta_min or stamp > delta_max:
            raise InvalidRecord("a timestamp of more than 64 bits")
        if stamp > newest:
            newest = stamp
            newest_index = index
        oldest = min(oldest, stamp)
        if key_length < 0:
            has_null_key = True
        position = body
        index += 1
    return position, index, (newest, newest_index, bool(has_null_key), oldest)


@cython.locals(
    data="const unsigned char[::1]",
    data_end=cython.int,
    position=cython.int,
    start=cython.int,
    index=cython.int,
    records=cython.int,
    base=cython.longlong,
    delta=cython.longlong,
    delta_min=cython.longlong,
    delta_max=cython.longlong,
    newest=cython.longlong,
    oldest=cython.longlong,
    newest_index=cython.int,
    offset_delta=cython.int,
    key_length=cython.int,
    has_null_key=cython.bint,
)
def check_records_at(
    buffer: Buffer, begin: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, bool, int]:
    """Do as `check_records` for ``buffer[begin:end]``; return the fields of a summary."""
    if end > REGION_BYTES_MAX or count > (end - begin) // RECORD_BYTES_MIN:
        raise InvalidRecord(f"{count} records do not fit into {end - begin} bytes")
    if count <= 0:
        raise InvalidRecord("a batch without records")
    data = memoryview(buffer)
    data_end, records, position = end, count, begin
    delta_min, delta_max, base = _INT64_LOWEST, _INT64_HIGHEST, base_timestamp
    if base < 0:
        delta_min -= base
    else:
        delta_max -= base
    newest, oldest, newest_index, has_null_key = delta_min, delta_max, 0, False
    for index in range(records):
        start = position
        position, delta, offset_delta, _, key_length, _, _, _, _ = _record(data, start, data_end)
        if position < 0:
            raise _malformed(index, start - begin)
        if offset_delta != index:
            raise InvalidRecord(f"offset delta {offset_delta} where {index} was due")
        if delta < delta_min or delta > delta_max:
            raise InvalidRecord("a timestamp of more than 64 bits")
        if delta > newest:
            newest = delta
            newest_index = index
        oldest = min(oldest, delta)
        if key_length < 0:
            has_null_key = True
    _check_end(position, data_end)
    return newest, newest_index, bool(has_null_key), oldest
