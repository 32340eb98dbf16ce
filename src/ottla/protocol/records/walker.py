# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Walks the records of a batch, unpacked, without an object per record.

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

This source is compiled by Cython where that is possible and runs as it stands where not: so C
types are declared, and nothing relies on them. Each index is checked by our own comparisons
before it is used. A varint of more than 5 bytes or a varlong of more than 10 is refused; bits
beyond the 32 or 64 that count are dropped, as Kafka drops them.
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
# Positions are kept as int32, as Arrow's are, and one of them is beyond the end.
REGION_BYTES_MAX: Final = 2**31 - 16
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class RecordsSummary(NamedTuple):
    """What a broker wants to know of a batch's records; the deltas are to the header's bases."""

    max_timestamp_delta: int
    max_timestamp_offset_delta: int  # of the first record with that timestamp
    has_null_key: bool


class Spans:
    """Where everything lies in a region of records: one typed column for each field.

    Positions count bytes from the start of the region; ``key_starts[i]`` is where the key's
    bytes begin, and a length of -1 is null. Record ``i`` is ``starts[i]`` up to
    ``starts[i + 1]``: that column has one entry more than there are records.
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


@cython.final
@cython.cclass
class _Cursor:
    """The fields of the record that was read last. ``position`` is where the next byte is."""

    data: cython.const[cython.uchar][::1]  # type: ignore[valid-type]
    data_end: cython.int
    roomy_end: cython.int  # before it, two more bytes are there
    number: cython.int  # what `varint` read
    position: cython.int  # of the next record
    start: cython.int
    timestamp_delta: cython.longlong
    offset_delta: cython.int
    key_end: cython.int
    key_length: cython.int
    value_end: cython.int
    value_length: cython.int
    header_start: cython.int
    header_count: cython.int

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.data_end = len(data)
        self.roomy_end = len(data) - 2
        self.position = 0

    # What follows takes a position and returns the one behind what it read, or, for bytes that
    # are malformed, one beyond the data, where every further step stays. Positions only grow,
    # so a step may read past its record, never past the data, and is found out at the end of
    # the record. Nothing is raised on the way: the compiled form is one loop over registers.

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def varint(self, position: cython.int) -> cython.int:
        """Read a zigzag varint of at most 5 bytes into ``number``."""
        raw: cython.uint
        byte: cython.uint
        if position < self.roomy_end:
            raw = self.data[position]
            if raw < 0x80:
                self.number = (raw >> 1) ^ -(raw & 1)
                return position + 1
            byte = self.data[position + 1]
            raw = (raw & 0x7F) | (byte & 0x7F) << 7
            if byte < 0x80:
                self.number = (raw >> 1) ^ -(raw & 1)
                return position + 2
            byte = self.data[position + 2]
            if byte < 0x80:
                raw |= byte << 14
                self.number = (raw >> 1) ^ -(raw & 1)
                return position + 3
        return self.long_varint(position)

    @cython.cfunc
    @cython.exceptval(check=False)
    def long_varint(self, position: cython.int) -> cython.int:
        """Do what `varint` does, for every length and up to the end of the data."""
        byte: cython.uint
        raw: cython.uint = 0
        shift: cython.int = 0
        while position < self.data_end:
            byte = self.data[position]
            position += 1
            if shift == 28:
                if byte > 0x7F:
                    break
                byte &= 0x0F
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.number = (raw >> 1) ^ -(raw & 1)
                return position
            shift += 7
        self.number = 0
        return self.data_end + 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def timestamp(self, position: cython.int) -> cython.int:
        """Read a zigzag varlong of at most 10 bytes into ``timestamp_delta``."""
        if position < self.roomy_end and (
            self.data[position] < 0x80
            or self.data[position + 1] < 0x80
            or self.data[position + 2] < 0x80
        ):
            position = self.varint(position)
            self.timestamp_delta = self.number
            return position
        return self.long_timestamp(position)

    @cython.cfunc
    @cython.exceptval(check=False)
    def long_timestamp(self, position: cython.int) -> cython.int:
        """Do what `timestamp` does, for every length and up to the end of the data."""
        byte: cython.ulonglong
        raw: cython.ulonglong = 0
        shift: cython.int = 0
        while position < self.data_end:
            byte = self.data[position]
            position += 1
            if shift == 63:
                if byte > 0x7F:
                    break
                byte &= 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.timestamp_delta = (raw >> 1) ^ -(raw & 1)
                return position
            shift += 7
        return self.data_end + 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def field(self, position: cython.int, end: cython.int) -> cython.int:
        """Read a length into ``number``, any negative one as -1, and pass over as many bytes."""
        position = self.varint(position)
        if self.number < 0:
            self.number = -1
            return position
        if self.number > end - position:
            return self.data_end + 1
        return position + self.number

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def next(self) -> cython.bint:
        """Read the record at ``position`` and stand behind it; say whether it was well-formed."""
        end: cython.int
        position: cython.int
        self.start = self.position
        position = self.varint(self.position)
        if self.number < 6 or self.number > self.data_end - position:
            return False
        end = position + self.number
        position = self.timestamp(position + 1)  # 1: attributes
        position = self.varint(position)
        self.offset_delta = self.number
        position = self.field(position, end)
        self.key_length = self.number
        self.key_end = position
        position = self.field(position, end)
        self.value_length = self.number
        self.value_end = position
        position = self.varint(position)
        self.header_count = self.number
        self.header_start = position
        if self.number != 0:
            position = self.headers(position, end)
        self.position = end
        return position == end

    @cython.cfunc
    @cython.exceptval(check=False)
    def headers(self, position: cython.int, end: cython.int) -> cython.int:
        """Pass over ``header_count`` headers. Each takes two bytes at least."""
        remaining: cython.int = self.header_count
        if remaining < 0 or remaining > (end - position) >> 1:
            return self.data_end + 1
        while remaining > 0:
            position = self.field(position, end)
            if self.number < 0:
                return self.data_end + 1
            position = self.field(position, end)
            remaining -= 1
        return position


def _check_region(length: int, count: int) -> None:
    """Refuse a count that the bytes cannot hold, before anything is allocated for it."""
    if length > REGION_BYTES_MAX:
        raise InvalidRecord(f"{length} bytes of records are too many")
    if count < 0 or count > length // RECORD_BYTES_MIN:
        raise InvalidRecord(f"{count} records do not fit into {length} bytes")


def _malformed(index: int, position: int) -> InvalidRecord:
    return InvalidRecord(f"record {index}, at byte {position} of the records, is malformed")


def _check_end(position: int, length: int) -> None:
    if position != length:
        raise InvalidRecord(f"{length - position} bytes behind the last record")


@cython.locals(
    cursor=_Cursor,
    starts="int[::1]",
    timestamp_deltas="long long[::1]",
    offset_deltas="int[::1]",
    key_starts="int[::1]",
    key_lengths="int[::1]",
    value_starts="int[::1]",
    value_lengths="int[::1]",
    header_starts="int[::1]",
    header_counts="int[::1]",
    index=cython.int,
)
def walk_spans(region: Buffer, count: int) -> Spans:
    """Return where the fields of ``count`` records lie that fill ``region`` exactly.

    Offset deltas are not judged: after compaction they have gaps.

    Raises:
        InvalidRecord: any length or count that contradicts the bytes, or bytes left over.
    """
    _check_region(len(region), count)
    spans = Spans(count)
    starts, timestamp_deltas = spans.starts, spans.timestamp_deltas
    offset_deltas = spans.offset_deltas
    key_starts, key_lengths = spans.key_starts, spans.key_lengths
    value_starts, value_lengths = spans.value_starts, spans.value_lengths
    header_starts, header_counts = spans.header_starts, spans.header_counts
    cursor = _Cursor(memoryview(region))
    for index in range(count):
        if not cursor.next():
            raise _malformed(index, cursor.start)
        starts[index] = cursor.start
        timestamp_deltas[index] = cursor.timestamp_delta
        offset_deltas[index] = cursor.offset_delta
        key_starts[index] = cursor.key_end - max(cursor.key_length, 0)
        key_lengths[index] = cursor.key_length
        value_starts[index] = cursor.value_end - max(cursor.value_length, 0)
        value_lengths[index] = cursor.value_length
        header_starts[index] = cursor.header_start
        header_counts[index] = cursor.header_count
    starts[count] = cursor.position
    _check_end(cursor.position, len(region))
    return spans


@cython.locals(
    cursor=_Cursor,
    index=cython.int,
    delta_min=cython.longlong,
    delta_max=cython.longlong,
    timestamp_max=cython.longlong,
    offset_of_max=cython.int,
    has_null_key=cython.bint,
)
def check_records(region: Buffer, count: int, base_timestamp: Millis) -> RecordsSummary:
    """Check all that a producer's ``count`` records must be, and say what they hold.

    They fill ``region`` exactly, their offset deltas are 0, 1, 2 and so on, and every
    timestamp is a number of 64 bits.

    Raises:
        InvalidRecord: something is not so, or there is no record at all.
    """
    _check_region(len(region), count)
    if count == 0:
        raise InvalidRecord("a batch without records")
    delta_min = max(_INT64_MIN, _INT64_MIN - base_timestamp)
    delta_max = min(_INT64_MAX, _INT64_MAX - base_timestamp)
    timestamp_max, offset_of_max, has_null_key = delta_min, 0, False
    cursor = _Cursor(memoryview(region))
    for index in range(count):
        if not cursor.next():
            raise _malformed(index, cursor.start)
        if cursor.offset_delta != index:
            raise InvalidRecord(f"offset delta {cursor.offset_delta} where {index} was due")
        if cursor.timestamp_delta < delta_min or cursor.timestamp_delta > delta_max:
            raise InvalidRecord("a timestamp of more than 64 bits")
        if cursor.timestamp_delta > timestamp_max:
            timestamp_max = cursor.timestamp_delta
            offset_of_max = index
        if cursor.key_length < 0:
            has_null_key = True
    _check_end(cursor.position, len(region))
    return RecordsSummary(timestamp_max, offset_of_max, bool(has_null_key))
