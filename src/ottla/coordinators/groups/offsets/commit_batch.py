# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The offsets of a plain commit: from request bytes to batch, state and reply. Pure.

    request   for each partition int32 index, int64 offset, int32 leader epoch, compact nullable
              string metadata, no tags (OffsetCommit from version 8 on)
    record    int length, int8 0, varint 0, varint delta, key, value, varint 0, as in
              `ottla.protocol.records.writer`; key and value as in `offset_bytes`
    reply     for each partition int32 index, int16 0, no tags

One pass makes batch and reply, by C if this module is compiled, with no object per partition. The
numbers of the request are kept; the offsets of the state are made of them when they are read. Batch
and state equal those of the general path byte for byte: tests compare both.

Every index is compared with the bounds before it is used, and all integers of the wire are handled
as 64 bits, so that the compiled and the plain form agree.
"""

from typing import TYPE_CHECKING, Final

from ottla.coordinators.groups.offsets.committed import CommittedOffset
from ottla.coordinators.groups.offsets.offset_bytes import key_of_topic, tags_of_value
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.records.writer import put_keyed_header
from ottla.protocol.types import NO_TIMESTAMP, Millis, Uuid

if TYPE_CHECKING:
    from ottla.coordinators.groups.offsets.committed import TopicPartition
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

REFUSED: Final = -1
"""Returned by `CommitBatch.add` for a request that has to take the general path."""

# C integers: comparing with them creates no Python object.
_ENTRY_BYTES_MIN: cython.Py_ssize_t = 18
_REPLY_BYTES: cython.Py_ssize_t = 7
# The longest record without its key, its text and the tags of its value: lengths, deltas,
# attributes and count of headers 24, numbers of the value 22, the length of the text 3.
_RECORD_BYTES_MAX: cython.Py_ssize_t = 49
_VALUE_BYTES: cython.longlong = 22  # version, offset, leader epoch, commit time
_REFUSED: cython.Py_ssize_t = REFUSED
_NUMBERS_BYTES: cython.Py_ssize_t = 16  # of an offset in a request: index, offset, leader epoch


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    value = value << 8 | data[at + 3]
    return value - ((value >> 31) << 32)  # every intermediate value fits into C's integer


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    low: cython.longlong = _int32(data, at + 4)
    if low < 0:
        low += 1 << 32
    return (_int32(data, at) << 32) + low


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(
    out: cython.p_uchar, at: cython.Py_ssize_t, text: bytes, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    i: cython.Py_ssize_t = 0
    while i < size:
        out[at + i] = text[i]
        i += 1
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    i: cython.Py_ssize_t = 0
    while i < size:
        out[at + i] = data[start + i]
        i += 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_number(
    out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.Py_ssize_t:
    """Write an integer of ``size`` bytes; return where it ends."""
    shift: cython.int = 8 * (size - 1)
    while shift >= 0:
        out[at] = (value >> shift) & 0xFF
        at += 1
        shift -= 8
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_uvarint(
    out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    while value > 0x7F:
        out[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uvarint_size(value: cython.longlong) -> cython.longlong:
    size: cython.longlong = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _compact_count(
    data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Return the length of a compact array; -1 if it is malformed or not minimal."""
    value: cython.longlong = 0
    shift: cython.int = 0
    while at < end and shift <= 14:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value - 1 if shift == 0 or value >> shift else -1
        shift += 7
        at += 1
    return -1


@cython.final
@cython.cclass
class CommitTopic:
    """A topic of a commit. ``topic_id`` is zero if the request names the topic."""

    name: str
    topic_id: Uuid
    _tags: bytes
    _partition_count: cython.longlong
    _places: list  # type: ignore[type-arg] # Cython reads no parameters here

    def __init__(self, name: str, topic_id: Uuid, partition_count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self._tags = tags_of_value(topic_id)
        self._partition_count = partition_count
        # Keys of the state, each created once: lookups by the same object are faster.
        self._places = [None] * partition_count


@cython.final
@cython.cclass
class CommitBatch:
    """The offsets of one commit of a group, whose first record will get offset ``first``.

    Nothing is final before `seal`: a declined one is discarded.
    """

    _group: str
    _committed_at: Millis
    _first: cython.longlong
    _metadata_max: cython.Py_ssize_t
    _out: bytearray
    _size: cython.Py_ssize_t
    _count: cython.longlong
    _numbers: bytearray
    _texts: list  # type: ignore[type-arg] # Cython reads no parameters here
    _topics: list  # type: ignore[type-arg]

    def __init__(self, group: str, committed_at: Millis, first: int, metadata_max: int) -> None:
        self._group = group
        self._committed_at = committed_at
        self._first = first
        self._metadata_max = metadata_max
        self._out = bytearray(HEADER_BYTES)
        self._size = HEADER_BYTES
        self._count = 0
        self._numbers = bytearray()
        self._texts = []  # of each offset; none at all while they are empty
        self._topics = []  # each with the number of its offsets

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self._count

    @property
    def offsets(self) -> "list[tuple[TopicPartition, CommittedOffset]]":
        """The offsets as a reader of the log gets them, in its order."""
        return self._read()

    @cython.cfunc
    @cython.locals(
        numbers=cython.p_uchar, at=cython.Py_ssize_t, number=cython.longlong, index=cython.longlong,
        topic=CommitTopic, end=cython.longlong,
    )  # fmt: skip
    def _read(self) -> list:  # type: ignore[type-arg]
        numbers, texts, number, end = self._numbers, self._texts, 0, 0
        found = []
        for topic, entries in self._topics:
            end += entries
            while number < end:
                at = number * _NUMBERS_BYTES
                index = _int32(numbers, at)
                place = topic._places[index]
                if place is None:
                    place = topic._places[index] = (topic.name, index)
                committed = CommittedOffset(
                    _int64(numbers, at + 4),
                    _int32(numbers, at + 12),
                    texts[number] if texts else "",
                    self._committed_at,
                    NO_TIMESTAMP,
                    topic.topic_id,
                    self._first + number,  # type: ignore[arg-type] # an Offset, without a call
                )
                found.append((place, committed))
                number += 1
        return found

    def replaces(self, earlier: "CommitBatch") -> bool:
        """Whether it has offsets of the same partitions as an earlier one, in the same order."""
        return _are_same_partitions(self, earlier)

    def seal(self) -> bytearray:
        """Return the batch with its CRC; the append sets its offset."""
        out, self._out = self._out, bytearray()  # this object may be kept for longer
        del out[self._size :]
        put_keyed_header(out, self._count, self._committed_at)
        return out

    @cython.locals(
        data=bytearray, out=bytearray, at=cython.Py_ssize_t, end=cython.Py_ssize_t,
        entries=cython.longlong, left=cython.longlong, index=cython.longlong, room=cython.longlong,
        answer=cython.Py_ssize_t, key_size=cython.Py_ssize_t,
        wire=cython.p_uchar, response=cython.p_uchar,
    )  # fmt: skip
    def add(
        self, topic: CommitTopic, data: bytearray, start: int, stop: int, reply: bytearray
    ) -> int:
        """Add the array of partitions at ``start``, and the topic's tags after it.

        Returns where they end, not behind ``stop``, having written their part of the reply; or
        `REFUSED` where something is unusual or not as it should be.
        """
        at, end, key = start, stop, key_of_topic(self._group, topic.name)
        wire = data
        entries = _compact_count(wire, at, end)
        at += _uvarint_size(entries + 1)
        if entries < 1 or entries * _ENTRY_BYTES_MIN > end - at:
            return REFUSED
        key_size = len(key)
        # An upper bound for these records; their text is part of the request.
        out = self._out
        room = entries * (_RECORD_BYTES_MAX + key_size + len(topic._tags)) + (end - at)
        room -= len(out) - self._size
        if room > 0:
            out.extend(bytes(room))
        self._numbers.extend(bytes(entries * _NUMBERS_BYTES))
        self._topics.append((topic, entries))
        answer = len(reply)
        reply.extend(bytes(entries * _REPLY_BYTES + 4))
        response = reply  # it does not grow while it is written to
        answer = _put_uvarint(response, answer, entries + 1)
        left = entries
        while left > 0:
            if end - at < _ENTRY_BYTES_MIN:
                return REFUSED
            index = _int32(wire, at)
            if index < 0 or index >= topic._partition_count:
                return REFUSED
            answer = _put_number(response, answer, index, 4) + 3
            at = self._take(topic, key, data, at, end)
            if at == _REFUSED:
                return REFUSED
            left -= 1
        if at >= end or wire[at] != 0:
            return REFUSED
        del reply[answer + 1 :]
        return at + 1

    @cython.cfunc
    @cython.locals(
        length=cython.Py_ssize_t, text=str, encoded=bytes, wire=cython.p_uchar,
        numbers=cython.p_uchar,
    )  # fmt: skip
    def _take(
        self,
        topic: CommitTopic,
        key: bytes,
        data: bytearray,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Add one partition, whose minimum size was checked; return where it ends."""
        wire = data
        index: cython.longlong = _int32(wire, at)
        offset: cython.longlong = _int64(wire, at + 4)
        epoch: cython.longlong = _int32(wire, at + 12)
        text, encoded = "", b""
        numbers = self._numbers
        _copy(numbers, self._count * _NUMBERS_BYTES, wire, at, _NUMBERS_BYTES)
        length = wire[at + 16]
        at += 17
        if length > 1:
            if length > 0x7F:
                if wire[at] > 0x7F:
                    return _REFUSED
                length = length & 0x7F | wire[at] << 7
                at += 1
            length -= 1
            if length < 0 or end - at < length + 1:
                return _REFUSED
            encoded = bytes(data[at : at + length])
            try:
                text = encoded.decode()
            except UnicodeDecodeError:
                return _REFUSED
            if len(text) > self._metadata_max:
                return _REFUSED
            at += length
        if wire[at] != 0:
            return _REFUSED
        if text and not self._texts:
            self._texts = [""] * self._count
        if self._texts or text:
            self._texts.append(text)
        self._write(topic, key, index, offset, epoch, encoded)
        return at + 1

    @cython.cfunc
    @cython.locals(
        out=cython.p_uchar, at=cython.Py_ssize_t, delta=cython.longlong, key_size=cython.longlong,
        value_size=cython.longlong, text_size=cython.longlong, time=cython.longlong,
        size=cython.longlong,
    )  # fmt: skip
    def _write(
        self,
        topic: CommitTopic,
        key: bytes,
        index: cython.longlong,
        offset: cython.longlong,
        epoch: cython.longlong,
        text: bytes,
    ) -> None:
        """Write the record; lengths are zigzag-encoded, so each is doubled."""
        out, at, delta, time = self._out, self._size, self._count, self._committed_at
        text_size, key_size = len(text), len(key) + 4
        value_size = _VALUE_BYTES + _uvarint_size(text_size + 1) + text_size + len(topic._tags)
        size = 3 + _uvarint_size(delta << 1) + _uvarint_size(key_size << 1) + key_size
        size += _uvarint_size(value_size << 1) + value_size
        at = _put_uvarint(out, at, size << 1)
        at += 2  # no attributes, and the time of the batch
        at = _put_uvarint(out, at, delta << 1)
        at = _put_uvarint(out, at, key_size << 1)
        at = _put(out, at, key, len(key))
        at = _put_number(out, at, index, 4)
        at = _put_uvarint(out, at, value_size << 1)
        at = _put_number(out, at, 4, 2)
        at = _put_number(out, at, offset, 8)
        at = _put_number(out, at, epoch, 4)
        at = _put_uvarint(out, at, text_size + 1)
        at = _put(out, at, text, text_size)
        at = _put_number(out, at, time, 8)
        at = _put(out, at, topic._tags, len(topic._tags))
        self._size = at + 1  # no headers
        self._count = delta + 1


@cython.locals(
    mine=CommitTopic, theirs=CommitTopic, numbers=cython.p_uchar, others=cython.p_uchar,
    at=cython.Py_ssize_t, size=cython.Py_ssize_t,
)  # fmt: skip
def _are_same_partitions(commit: CommitBatch, earlier: CommitBatch) -> bool:
    """Return whether two commits have offsets of the same partitions, in the same order."""
    if len(commit._topics) != len(earlier._topics) or commit._count != earlier._count:
        return False
    for number in range(len(commit._topics)):
        mine, entries = commit._topics[number]
        theirs, others_entries = earlier._topics[number]
        if mine.name != theirs.name or entries != others_entries:
            return False
    numbers, others, size, at = commit._numbers, earlier._numbers, len(commit._numbers), 0
    while at < size:
        if _int32(numbers, at) != _int32(others, at):
            return False
        at += _NUMBERS_BYTES
    return True
