"""Parse a Fetch response while it is still arriving: find the batches that are complete. Pure.

From version 13 on, as a leader sends it to a follower:

    throttle_time_ms int32, error_code int16, session_id int32
    topics      varint of count + 1, each
        topic_id 16 bytes
        partitions  varint of count + 1, each
            partition_index int32, error_code int16
            high_watermark, last_stable_offset, log_start_offset int64
            aborted_transactions  varint, 0 or 1: none
            preferred_read_replica int32
            records  varint of length + 1, then batches, the last possibly incomplete
            tagged fields, none: one byte 0
        tagged fields, none
    ...

Anything else ends the early parsing: the complete response is decoded in any case, by the code that
decodes all messages, and only that rejects anything.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.codec.primitives import read_uvarint
from ottla.protocol.faults import CorruptBatch, ProtocolFault, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, read_header
from ottla.protocol.types import Uuid
from ottla.replication.fetching.fetch_session import Key

VERSION_MIN: Final = 13
"""The first version that identifies topics by id."""

PART_BYTES_MIN: Final = 1 << 18
"""Fewer bytes are not worth an append of their own; this much fits the processor's cache."""

_HEAD: Final = Struct(">ihi")
_ROW: Final = Struct(">ihqqq")
_UUID_BYTES: Final = 16
_REPLICA_BYTES: Final = 4
# More bytes than lie between the records of two partitions: with fewer, parsing has to wait.
_BETWEEN_BYTES_MAX: Final = 128


class Part(NamedTuple):
    """Complete batches of a partition that follow those of its previous part."""

    key: Key
    batches: memoryview


class PartialFetchResponse:
    """The batches of one response, in its order, each once.

    While more records follow, a part has at least ``part_bytes_min`` bytes.
    """

    def __init__(self, version: int, part_bytes_min: int = PART_BYTES_MIN) -> None:
        self._is_over = version < VERSION_MIN
        self._part_bytes_min = part_bytes_min
        self._position = 0
        self._topics: int | None = None  # remaining; None before the first byte is read
        self._rows = 0  # remaining partitions of the current topic
        self._topic = Uuid(bytes(_UUID_BYTES))
        self._index = 0
        self._records_end: int | None = None  # while inside the records of a partition

    def next(self, body: memoryview) -> Part | None:
        """Return the next part that is large enough; None when more bytes are needed.

        ``body`` is the response received so far, from its first byte.
        """
        while not self._is_over:
            try:
                if self._records_end is None:
                    if len(body) - self._position < _BETWEEN_BYTES_MAX:
                        return None
                    self._read_to_records(body)
                else:
                    part = self._part(body, self._records_end)
                    if part is not None or self._records_end is not None:
                        return part
            except (ProtocolFault, CorruptBatch, UnsupportedMagic):
                self._is_over = True
        return None

    # -- inside the records of a partition ---------------------------------------

    def _part(self, body: memoryview, records_end: int) -> Part | None:
        start, end = self._position, min(len(body), records_end)
        if end < records_end and end - start < self._part_bytes_min:
            return None
        whole = _whole_end(body, start, end)
        if end == records_end:
            self._position, self._records_end = records_end, None
        elif whole - start < self._part_bytes_min:
            return None
        else:
            self._position = whole
        return Part((self._topic, self._index), body[start:whole]) if whole > start else None

    # -- between the records of two partitions -----------------------------------

    def _read_to_records(self, body: memoryview) -> None:
        position = self._position
        if self._topics is None:
            _, error, _ = _HEAD.unpack_from(body, position)
            self._topics, position = _count(body, position + _HEAD.size)
            self._is_over |= error != 0
        else:
            position = _no_tags(body, position)  # of a partition
            if not self._rows:
                position = _no_tags(body, position)  # of its topic
        if not self._rows:
            if not self._topics:
                self._is_over = True
                return
            self._topics -= 1
            self._topic = Uuid(bytes(body[position : position + _UUID_BYTES]))
            self._rows, position = _count(body, position + _UUID_BYTES)
            self._is_over |= not self._rows
        self._rows -= 1
        self._read_row(body, position)

    def _read_row(self, body: memoryview, position: int) -> None:
        self._index, error, *_ = _ROW.unpack_from(body, position)
        aborted, position = _count(body, position + _ROW.size)
        length, position = _count(body, position + _REPLICA_BYTES)
        self._is_over |= error != 0 or aborted != 0
        self._position, self._records_end = position, position + length


def _whole_end(body: memoryview, start: int, end: int) -> int:
    """Return the end of the last complete batch in ``[start, end)``."""
    while end - start >= HEADER_BYTES:
        size = read_header(body, start).size
        if size > end - start:
            break
        start += size
    return start


def _count(body: memoryview, position: int) -> tuple[int, int]:
    """Read a compact count or length; null counts as 0."""
    value, position = read_uvarint(body, position)
    return max(0, value - 1), position


def _no_tags(body: memoryview, position: int) -> int:
    if body[position]:
        raise ProtocolFault("tagged fields are not parsed early")
    return position + 1
