"""Reads, checks and patches the header of a record batch in place.

Big-endian, format ("magic") 2, the only one that Kafka 4 writes or accepts::

     0  baseOffset            int64   patched by the leader
     8  batchLength           int32   bytes that follow this field
    12  partitionLeaderEpoch  int32   patched by the leader
    16  magic                 int8    2; at the same place in formats 0 and 1
    17  crc                   uint32  CRC32C of everything from byte 21 to the end
    21  attributes            int16   bits 0-2 codec, 3 LogAppendTime, 4 transactional,
                                      5 control, 6 baseTimestamp is the delete horizon
    23  lastOffsetDelta       int32   last offset = baseOffset + this, also after compaction
    27  baseTimestamp         int64   record timestamps are this + their delta
    35  maxTimestamp          int64
    43  producerId            int64   -1: none
    51  producerEpoch         int16
    53  baseSequence          int32   -1: none
    57  recordsCount          int32
    61  records, packed by the codec of the attributes

The CRC does not cover the fields that a leader assigns, so patching them keeps it valid.
"""

import enum
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # baseOffset and batchLength: what batchLength does not count
MAGIC: Final = 2
SEQUENCE_MAX: Final = 2**31 - 1

MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_HEADER: Final = Struct(">qiibIhiqqqhii")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")


class Compression(enum.IntEnum):
    """The compression codec of the records: bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_COMPRESSIONS: Final = tuple(Compression)


class BatchHeader(NamedTuple):
    """The 61 bytes of a header. Only the checks of `read_header` are made."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: Millis
    max_timestamp: Millis
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, including this header."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, even if compaction has removed it."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset that follows this batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2**31 - 1 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def compression(self) -> Compression:
        """The codec.

        Raises:
            InvalidRecord: one of the three unassigned codec numbers.
        """
        codec = self.attributes & CODEC_MASK
        if codec >= len(_COMPRESSIONS):
            raise InvalidRecord(f"unknown compression codec {codec}")
        return _COMPRESSIONS[codec]

    @property
    def is_log_append_time(self) -> bool:
        """Every record's timestamp is ``max_timestamp``, set by the broker."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction; also true for markers."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Contains control records for brokers and client libraries, never data."""
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """The cleaner has set the time to remove tombstones and markers (KIP-534)."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> Millis | None:
        """When the cleaner may remove this batch's tombstones; ``None`` if not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        """Written by an idempotent or transactional producer."""
        return self.producer_id > -1


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at ``position``. The rest of the batch need not be in the buffer.

    Raises:
        UnsupportedMagic: any format but 2, even where a message of format 0 or 1 is
            shorter than a header of format 2.
        CorruptBatch: fewer than 61 bytes, or a length below that of a header.
    """
    remaining = len(buffer) - position
    if remaining > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
        raise UnsupportedMagic(
            f"message format {_signed(buffer[position + MAGIC_AT])} at {position}"
        )
    if remaining < HEADER_BYTES:
        raise CorruptBatch(f"{remaining} bytes at {position} are no batch header")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.length < _LENGTH_MIN:
        raise CorruptBatch(f"batch length {header.length} at {position} is below {_LENGTH_MIN}")
    return header


def is_crc_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch is complete and its bytes from 21 on match the CRC32C."""
    end = position + header.size
    if end > len(buffer):
        return False
    return crc32c(buffer, position + ATTRIBUTES_AT, end) == header.crc


def patch_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, now: Millis
) -> None:
    """Set the timestamp of every record to ``now`` (``LogAppendTime``), and update the CRC.

    Records and base timestamp are unchanged: readers use the maximum timestamp for each record
    if the attribute is set. The caller has checked the old CRC.
    """
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_AT, now)
    patch_crc(buffer, position, header.size)


def patch_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Compute and write the CRC of a batch of ``size`` bytes."""
    crc = crc32c(buffer, position + ATTRIBUTES_AT, position + size)
    _UINT32.pack_into(buffer, position + CRC_AT, crc)


def batches(
    buffer: Buffer, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every whole batch in ``[start, end)``.

    An incomplete batch at the end, as in a fetch, ends the iteration silently; compare the last
    batch's end with ``end`` if that matters. CRCs are not checked.

    Raises:
        UnsupportedMagic, CorruptBatch: as `read_header`, for bytes that cannot become a
            batch even with a longer buffer.
    """
    view = memoryview(buffer)[: len(buffer) if end is None else end]
    position = start
    while len(view) - position > MAGIC_AT:
        if len(view) - position < HEADER_BYTES:
            _check_partial(view, position)
            return
        header = read_header(view, position)
        if header.size > len(view) - position:
            return
        yield position, header
        position += header.size


def _check_partial(view: memoryview, position: int) -> None:
    """Reject an incomplete header whose magic or length is already invalid."""
    if view[position + MAGIC_AT] != MAGIC:
        raise UnsupportedMagic(f"message format {_signed(view[position + MAGIC_AT])} at {position}")
    (length,) = _INT32.unpack_from(view, position + 8)
    if length < _LENGTH_MIN:
        raise CorruptBatch(f"batch length {length} at {position} is below {_LENGTH_MIN}")


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
