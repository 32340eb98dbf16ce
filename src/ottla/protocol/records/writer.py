"""Builds batches of records, for internal topics, markers, compaction, the client and tests."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypedDict, Unpack

from ottla.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
    patch_crc,
)
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Record
from ottla.protocol.types import (
    NO_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    Millis,
    Offset,
)

_HEADER: Final = Struct(">qiibIhiqqqhii")


class Producer(NamedTuple):
    """The producer of a batch. ``base_sequence`` is the sequence of its first record."""

    id: int
    epoch: int
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class BatchFields(TypedDict, total=False):
    """The header fields of a batch. Defaults are those of a non-idempotent producer."""

    base_offset: Offset | int
    leader_epoch: LeaderEpoch | int
    compression: Compression
    level: int | None  # of the compression; None: the codec's default
    producer: Producer
    is_transactional: bool
    is_control: bool
    append_time: Millis | int | None  # set: LogAppendTime, and this is it
    delete_horizon_ms: Millis | int | None  # set by the cleaner alone
    last_offset_delta: int | None  # None: that of the last record


def build_batch(records: Sequence[Record], **fields: Unpack[BatchFields]) -> bytearray:
    """Build one batch; see `BatchFields` for the keywords.

    Offsets and timestamps of the records are absolute, offsets at or above ``base_offset``
    (default 0). A batch without records, which the cleaner keeps for a producer's last sequence,
    needs ``last_offset_delta``.
    """
    base_offset = fields.get("base_offset", 0)
    append_time = fields.get("append_time")
    horizon = fields.get("delete_horizon_ms")
    producer = fields.get("producer", NO_PRODUCER)
    compression = fields.get("compression", Compression.NONE)
    last_delta = fields.get("last_offset_delta")
    base_timestamp = _base_timestamp(records, append_time, horizon)
    region = encode_records(records, base_offset, base_timestamp)
    max_timestamp = append_time
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    header = BatchHeader(
        base_offset=Offset(base_offset),
        length=0,
        leader_epoch=LeaderEpoch(fields.get("leader_epoch", NO_EPOCH)),
        magic=MAGIC,
        crc=0,
        attributes=_attributes(compression, fields),
        last_offset_delta=records[-1].offset - base_offset if last_delta is None else last_delta,
        base_timestamp=Millis(base_timestamp),
        max_timestamp=Millis(max_timestamp),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        records_count=len(records),
    )
    return seal_batch(header, compress(compression, region, fields.get("level")))


def build_keyed_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: Millis,
    producer: Producer | None = None,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Build one batch of keys and values with one timestamp, as coordinators write them.

    The bytes equal those of `build_batch`, at a quarter of its cost. With ``producer`` the batch
    is part of its transaction. There must be at least one pair.
    """
    region = compress(compression, encode_pairs(pairs), None)
    batch = bytearray(HEADER_BYTES + len(region))
    batch[HEADER_BYTES:] = region
    put_keyed_header(batch, len(pairs), timestamp, producer, compression)
    return batch


def put_keyed_header(
    batch: bytearray,
    count: int,
    timestamp: Millis,
    producer: Producer | None = None,
    compression: Compression = Compression.NONE,
) -> None:
    """Write the header of a batch of ``count`` records with one timestamp over its first bytes.

    The encoded records must follow it; the CRC is computed here.
    """
    attributes = int(compression) if producer is None else compression | TRANSACTIONAL
    _HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD_BYTES,
        NO_EPOCH,
        MAGIC,
        0,
        attributes,
        count - 1,
        timestamp,
        timestamp,
        *(NO_PRODUCER if producer is None else producer),
        count,
    )
    patch_crc(batch, 0, len(batch))


def encode_pairs(pairs: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """Encode keys and values as uncompressed records with one timestamp."""
    parts: list[bytes] = []
    sizes, head, key_head, value_head = (-1, -1, -1), b"", b"", b""
    for delta, (key, value) in enumerate(pairs):
        # Most records of a batch have equal sizes: common bytes are encoded once.
        delta_bytes = _VARINTS[delta] if delta < _VARINTS_KEPT else varint(delta)
        key_size, value_size = len(key), -1 if value is None else len(value)
        if sizes != (key_size, value_size, len(delta_bytes)):
            sizes = (key_size, value_size, len(delta_bytes))
            key_head, value_head = varint(key_size), varint(value_size)
            lengths = len(delta_bytes) + len(key_head) + len(value_head)
            # The attributes, the timestamp delta, and the header count 0 at the end.
            body_size = 3 + lengths + key_size + max(value_size, 0)
            head = varint(body_size) + b"\0\0"
        parts += (head, delta_bytes, key_head, key, value_head, value or b"", b"\0")
    return b"".join(parts)


def seal_batch(header: BatchHeader, packed: Buffer) -> bytearray:
    """Put ``header`` before compressed records; length and CRC are computed here.

    The attributes must name the codec of ``packed``.
    """
    batch = bytearray(HEADER_BYTES + len(packed))
    batch[HEADER_BYTES:] = packed
    _HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LOG_OVERHEAD_BYTES, crc=0))
    patch_crc(batch, 0, len(batch))
    return batch


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytearray:
    """Return the encoded records, uncompressed."""
    region = bytearray()
    for record in records:
        assert record.offset >= base_offset
        body = bytearray(1)  # attributes
        body += varint(record.timestamp - base_timestamp)
        body += varint(record.offset - base_offset)
        _put_field(body, record.key)
        _put_field(body, record.value)
        body += varint(len(record.headers))
        for key, value in record.headers:
            _put_field(body, key.encode())
            _put_field(body, value)
        region += varint(len(body))
        region += body
    return region


def varint(value: int) -> bytes:
    """Zigzag varint, or varlong, of a number of at most 64 bits."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 0x80:
        return bytes((raw,))
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


# Lengths and deltas of most records, encoded once.
_VARINTS_KEPT: Final = 1024
_VARINTS: Final = tuple(varint(value) for value in range(_VARINTS_KEPT))


def _put_field(body: bytearray, field: bytes | None) -> None:
    if field is None:
        body += varint(-1)
    else:
        body += varint(len(field))
        body += field


def _base_timestamp(
    records: Sequence[Record], append_time: int | None, delete_horizon_ms: int | None
) -> int:
    """Return the delete horizon if set (KIP-534), else the first timestamp."""
    if delete_horizon_ms is not None:
        return delete_horizon_ms
    if records:
        return records[0].timestamp
    return NO_TIMESTAMP if append_time is None else append_time


def _attributes(compression: Compression, fields: BatchFields) -> int:
    attributes = int(compression)
    if fields.get("append_time") is not None:
        attributes |= LOG_APPEND_TIME
    if fields.get("is_transactional", False):
        attributes |= TRANSACTIONAL
    if fields.get("is_control", False):
        attributes |= CONTROL
    if fields.get("delete_horizon_ms") is not None:
        attributes |= DELETE_HORIZON
    return attributes
