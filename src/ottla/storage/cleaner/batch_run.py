# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Runs of plain batches, read in one call: small batches cost the cleaner by their number.

A batch is plain if only the offset map decides which of its records stay: it is not compressed, not
part of a transaction, no marker, and has no delete horizon; and its records are few and short,
without headers. A run is a number of plain batches that follow each other. It ends before any other
batch, and before one that is damaged or not completely in memory: `batch_cleaner` handles each of
those alone, and raises what there is to raise. So nothing is decided here that is not decided
there, too; a test compares the files that both write.

The records of a run look like those of one large batch (`KeySpans`). Cython compiles this module
where possible (see `protocol/records/walker.py` on the two forms). Every index is checked before it
is used.
"""

from array import array
from collections.abc import Container
from typing import TYPE_CHECKING, Final, NamedTuple

from google_crc32c import value as crc32c

from ottla.protocol.types import Millis, Offset

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

BATCHES_MAX: Final = 2048
RECORDS_MAX: Final = 8192
"""The most that a run has of both, so that its memory is bounded."""
BATCH_RECORDS_MAX: Final = 128
"""The most records of a plain batch. One that loses a part of its records is read a second time,
which for large batches would cost more than a run saves."""

COPIED: Final = 0
REMOVED: Final = 1
ALONE: Final = 2
"""What happens to a batch of a run; the last one has to be cleaned by `BatchCleaner.clean`."""

# C integers: comparing with them creates no Python object.
_BATCHES: cython.Py_ssize_t = BATCHES_MAX
_BATCH_RECORDS: cython.longlong = BATCH_RECORDS_MAX
_HEADER: cython.Py_ssize_t = 61
_POSITION_MAX: cython.Py_ssize_t = 2**31 - 16  # positions are int32
_SPAN_MAX: cython.longlong = 2**30  # offsets are relative to that of the first batch
# Codec, transactional, control and delete horizon; see `protocol/records/batch.py`.
_NOT_PLAIN: cython.int = 0x77


class RunLimits(NamedTuple):
    """Where a run ends: with the batch that reaches ``bytes_max``, and before ``records_max``.

    The offsets of its batches ascend, within ``[expected, end_offset)``.
    """

    bytes_max: int
    records_max: int
    expected: Offset
    end_offset: Offset


class Part(NamedTuple):
    """Neighbouring batches of a run, ``[first, stop)``, with the same outcome, and what they have.

    ``without_key`` counts records that are removed because they have no key.
    """

    outcome: int
    first: int
    stop: int
    records: int
    without_key: int


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    at: cython.Py_ssize_t,
) -> cython.longlong:
    value: cython.longlong = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    value = value << 8 | data[at + 3]
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    at: cython.Py_ssize_t,
) -> cython.longlong:
    value: cython.longlong = _uint32(data, at)
    return value - ((value >> 31) << 32)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    at: cython.Py_ssize_t,
) -> cython.longlong:
    return (_int32(data, at) << 32) + _uint32(data, at + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Read a varint of up to three bytes, without zigzag decoding; a longer one ends after ``end``.

    Positions after ``end`` are passed on, so that one comparison at the end finds all errors.
    """
    raw: cython.longlong
    if at >= end:
        return end + 1, 0
    raw = data[at]
    if raw < 0x80:
        return at + 1, raw
    if end - at < 3:
        return end + 1, 0
    raw = raw & 0x7F | (data[at + 1] & 0x7F) << 7
    if data[at + 1] < 0x80:
        return at + 2, raw
    raw |= data[at + 2] << 14
    if data[at + 2] > 0x7F:
        return end + 1, 0
    return at + 3, raw


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _after(
    at: cython.Py_ssize_t, raw: cython.longlong, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where a key or value ends whose raw length is ``raw``; odd: null, without bytes."""
    if raw & 1:
        return at
    return at + (raw >> 1) if raw >> 1 <= end - at else end + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.locals(
    at=cython.Py_ssize_t, size=cython.longlong, delta=cython.longlong, key=cython.longlong,
    value=cython.longlong, key_at=cython.Py_ssize_t,
)  # fmt: skip
def _record(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    position: cython.Py_ssize_t,
    batch_end: cython.Py_ssize_t,
) -> tuple[
    cython.Py_ssize_t,  # where the record ends; 0: it is malformed, or not short
    cython.longlong,  # offset delta
    cython.Py_ssize_t,  # where the key begins
    cython.longlong,  # raw length of the key
    cython.longlong,  # raw length of the value
]:
    """Read a short record without headers."""
    at, size = _varint(data, position, batch_end)
    end: cython.Py_ssize_t = at + (size >> 1)
    if size & 1 or end > batch_end or at >= end:
        return 0, 0, 0, 0, 0
    at, delta = _varint(data, at + 1, end)  # the timestamp, after the attributes
    at, delta = _varint(data, at, end)
    key_at, key = _varint(data, at, end)
    at, value = _varint(data, _after(key_at, key, end), end)
    at = _after(at, value, end)
    # The count of headers, 0, is all that is left.
    if delta & 1 or at != end - 1 or data[at] != 0:
        return 0, 0, 0, 0, 0
    return end, delta >> 1, key_at, key, value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.locals(records=cython.longlong, length=cython.longlong)
def _plain_end(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Return where the plain batch at ``at`` ends; 0 if it is another one, or incomplete."""
    if size - at < _HEADER or data[at + 16] != 2 or data[at + 22] & _NOT_PLAIN:
        return 0
    length = _int32(data, at + 8) + 12
    records = _int32(data, at + 57)
    if length < _HEADER or length > size - at or at + length > _POSITION_MAX:
        return 0
    if records < 1 or records > _BATCH_RECORDS:
        return 0
    return at + length


@cython.cfunc
@cython.exceptval(check=False)
@cython.locals(
    key_starts="int[::1]", key_lengths="int[::1]", value_lengths="int[::1]",
    offset_deltas="int[::1]", at=cython.Py_ssize_t, stop=cython.Py_ssize_t, delta=cython.longlong,
    key=cython.longlong, value=cython.longlong, key_at=cython.Py_ssize_t,
)  # fmt: skip
def _walk(  # noqa: PLR0913, PLR0917 - one per column
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    index: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
    relative: cython.longlong,
    key_starts: "array[int]",
    key_lengths: "array[int]",
    value_lengths: "array[int]",
    offset_deltas: "array[int]",
) -> cython.Py_ssize_t:
    """Find the fields of a batch's records, from number ``index`` of the run on.

    Return the number after the last one; 0 if it exceeds ``room``, or a record is not plain.
    """
    at = start + _HEADER
    stop = index + _int32(data, start + 57)
    if stop > room:
        return 0
    while index < stop:
        at, delta, key_at, key, value = _record(data, at, end)
        if at == 0:
            return 0
        key_starts[index] = key_at
        key_lengths[index] = -1 if key & 1 else key >> 1
        value_lengths[index] = -1 if value & 1 else value >> 1
        offset_deltas[index] = relative + delta
        index += 1
    return stop if at == end else 0


class BatchRun:
    """A run of plain batches in a buffer. `read` replaces it by another one.

    Batch ``i`` is the bytes ``[positions[i], positions[i + 1])`` of the buffer. ``count`` is the
    number of records. Their offsets are relative to ``base_offset``; see `KeySpans` for the rest.
    """

    __slots__ = (
        "base_offset",
        "batches",
        "count",
        "end_offset",
        "key_lengths",
        "key_starts",
        "last_offsets",
        "max_timestamps",
        "offset_deltas",
        "positions",
        "record_starts",
        "value_lengths",
    )

    def __init__(self) -> None:
        self.batches = 0
        self.count = 0
        self.base_offset = Offset(0)
        self.end_offset = Offset(0)
        self.positions = array("i", bytes(4 * BATCHES_MAX + 4))
        self.record_starts = self.positions[:]
        self.last_offsets = array("q", bytes(8 * BATCHES_MAX))
        self.max_timestamps = self.last_offsets[:]
        self.key_starts = array("i", bytes(4 * RECORDS_MAX))
        self.key_lengths = self.key_starts[:]
        self.value_lengths = self.key_starts[:]
        self.offset_deltas = self.key_starts[:]

    @property
    def size(self) -> int:
        """The bytes of its batches."""
        return self.positions[self.batches] - self.positions[0]

    @cython.locals(
        data="const unsigned char[::1]", positions="int[::1]", record_starts="int[::1]",
        last_offsets="long long[::1]", max_timestamps="long long[::1]", key_starts="int[::1]",
        key_lengths="int[::1]", value_lengths="int[::1]", offset_deltas="int[::1]",
        at=cython.Py_ssize_t, end=cython.Py_ssize_t, size=cython.Py_ssize_t,
        limit=cython.Py_ssize_t, batches=cython.Py_ssize_t, count=cython.Py_ssize_t,
        walked=cython.Py_ssize_t, room=cython.Py_ssize_t, first=cython.longlong,
        base=cython.longlong, last=cython.longlong, least=cython.longlong, most=cython.longlong,
    )  # fmt: skip
    def read(self, buffer: bytes, start: int, limits: RunLimits) -> bool:
        """Read the plain batches from ``start`` on; False if there is none.

        CRC and offsets of each are checked, as by `check_batch`.
        """
        data = memoryview(buffer)
        positions, record_starts = self.positions, self.record_starts
        last_offsets, max_timestamps = self.last_offsets, self.max_timestamps
        key_starts, key_lengths = self.key_starts, self.key_lengths
        value_lengths, offset_deltas = self.value_lengths, self.offset_deltas
        at, size, limit, batches, count = start, len(buffer), start + limits.bytes_max, 0, 0
        least, most, first = int(limits.expected), limits.end_offset, -1
        room = min(limits.records_max, RECORDS_MAX)
        while batches < _BATCHES and at < limit:
            end = _plain_end(data, at, size)
            if end == 0:
                break
            base = _int64(data, at)
            if base < least or base >= most:
                break
            last = base + _int32(data, at + 23)
            if batches == 0:
                first = base
            if last < base or last >= most or last - first > _SPAN_MAX:
                break
            if crc32c(buffer[at + 21 : end]) != _uint32(data, at + 17):
                break
            walked = _walk(
                data, at, end, count, room, base - first,
                key_starts, key_lengths, value_lengths, offset_deltas,
            )  # fmt: skip
            if walked == 0:
                break
            positions[batches], record_starts[batches] = at, count
            last_offsets[batches], max_timestamps[batches] = last, _int64(data, at + 35)
            batches, count, at, least = batches + 1, walked, end, last + 1
        positions[batches], record_starts[batches] = at, count
        self.batches, self.count = batches, count
        self.base_offset, self.end_offset = Offset(first), Offset(least)
        return batches > 0

    @cython.locals(
        marks="const unsigned char[::1]", record_starts="int[::1]", key_lengths="int[::1]",
        value_lengths="int[::1]", last_offsets="long long[::1]", index=cython.Py_ssize_t,
        record=cython.Py_ssize_t, kept=cython.Py_ssize_t, without_key=cython.Py_ssize_t,
        keyless=cython.Py_ssize_t, first=cython.Py_ssize_t, outcome=cython.int, group=cython.int,
    )  # fmt: skip
    def split(self, keep: bytearray, ends: Container[int]) -> list[Part]:
        """Split the run by what happens to its batches; ``keep`` has a byte per record.

        A batch that ends at one of ``ends`` is cleaned alone: it may have to stay without
        records. So is one that keeps a tombstone, which needs a delete horizon.
        """
        marks, record_starts, key_lengths = keep, self.record_starts, self.key_lengths
        value_lengths, last_offsets = self.value_lengths, self.last_offsets
        parts: list[Part] = []
        group, first, without_key = -1, 0, 0
        for index in range(self.batches):
            kept = keyless = 0
            outcome = REMOVED
            for record in range(record_starts[index], record_starts[index + 1]):
                kept += marks[record]
                keyless += key_lengths[record] < 0
                if marks[record] and value_lengths[record] < 0:
                    outcome = ALONE
            if outcome == REMOVED and kept:
                is_whole = kept == record_starts[index + 1] - record_starts[index]
                outcome = COPIED if is_whole else ALONE
            if last_offsets[index] in ends:
                outcome = ALONE
            if outcome != group:
                if index:
                    parts.append(self._part(group, first, index, without_key))
                group, first, without_key = outcome, index, 0
            if outcome == REMOVED:
                without_key += keyless
        parts.append(self._part(group, first, self.batches, without_key))
        return parts

    def _part(self, outcome: int, first: int, stop: int, without_key: int) -> Part:
        records = self.record_starts[stop] - self.record_starts[first]
        return Part(outcome, first, stop, records, without_key)

    def notes(self, first: int, stop: int) -> list[tuple[Offset, Millis, int]]:
        """Return last offset, largest timestamp and size of batches, as an index needs them."""
        at = self.positions
        return [
            (Offset(self.last_offsets[i]), Millis(self.max_timestamps[i]), at[i + 1] - at[i])
            for i in range(first, stop)
        ]
