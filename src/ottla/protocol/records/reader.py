"""Reads whole batches into records, for tools, tests and internal topics; not for the hot path.

Everything is validated: the size of the decompressed data against a limit, the count against the
bytes, every length against the remaining bytes, and no bytes may remain at the end. The CRC is not
checked: see `batch.is_crc_valid`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, Compression, read_header
from ottla.protocol.records.compression import decompress
from ottla.protocol.records.walker import RECORD_SIZE_MAX, Spans, oversized, walk_spans
from ottla.protocol.types import Buffer, Millis, Offset

# A batch of `max.message.bytes` (default 1 MiB) compressed to a hundredth, which text in practice
# does not reach. Data that expands further is a decompression bomb.
UNPACKED_BYTES_MAX: Final = 128 << 20


class Header(NamedTuple):
    """One header of a record. Keys may repeat, and their order is significant."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record with absolute offset and timestamp and its own copy of the bytes."""

    offset: Offset
    timestamp: Millis
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def unpack_region(
    buffer: Buffer, position: int, header: BatchHeader, *, bytes_max: int = UNPACKED_BYTES_MAX
) -> Buffer:
    """Return the bytes of all records of a batch: a view, or the decompressed bytes.

    Raises:
        CorruptBatch: the batch is incomplete.
        InvalidRecord: they exceed ``bytes_max`` bytes, or cannot be decompressed.
    """
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"batch of {header.size} bytes at {position} is cut off")
    packed = memoryview(buffer)[position + HEADER_BYTES : end]
    if header.compression is Compression.NONE:
        return packed
    return decompress(header.compression, packed, bytes_max)


def read_records(
    buffer: Buffer, position: int = 0, *, bytes_max: int = UNPACKED_BYTES_MAX
) -> list[Record]:
    """Return the records of the batch at ``position``; compaction may leave gaps in offsets.

    Invalid UTF-8 in header keys is replaced, as in Java.

    Raises:
        UnsupportedMagic, CorruptBatch: the header is invalid, or the batch is incomplete.
        InvalidRecord: the records cannot be decompressed, or are inconsistent.
    """
    return list(iter_records(buffer, position, bytes_max=bytes_max))


def iter_records(
    buffer: Buffer,
    position: int = 0,
    *,
    bytes_max: int = UNPACKED_BYTES_MAX,
    size_max: int = RECORD_SIZE_MAX,
) -> Iterator[Record]:
    """Yield the records of a batch; all are checked before the first. See `read_records`.

    ``size_max`` is ``max.decompressed.message.bytes``: a larger record of a compressed batch raises
    InvalidRecord, but only once it is reached, as in Kafka.
    """
    header = read_header(buffer, position)
    region = bytes(unpack_region(buffer, position, header, bytes_max=bytes_max))
    spans = walk_spans(region, header.records_count)
    is_limited = header.compression is not Compression.NONE and len(region) > size_max
    for index in range(spans.count):
        if is_limited:
            _check_size(region, spans, index, size_max)
        yield _record(header, region, spans, index)


def _check_size(region: bytes, spans: Spans, index: int, size_max: int) -> None:
    size, _ = _varint(region, spans.starts[index])
    if size > size_max:
        raise oversized(index, size, size_max)


def _record(header: BatchHeader, region: bytes, spans: Spans, index: int) -> Record:
    timestamp = header.max_timestamp
    if not header.is_log_append_time:
        timestamp = Millis(header.base_timestamp + spans.timestamp_deltas[index])
    return Record(
        Offset(header.base_offset + spans.offset_deltas[index]),
        timestamp,
        _slice(region, spans.key_starts[index], spans.key_lengths[index]),
        _slice(region, spans.value_starts[index], spans.value_lengths[index]),
        read_headers(region, spans.header_starts[index], spans.header_counts[index]),
    )


def _slice(region: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else region[start : start + length]


def read_headers(region: bytes, position: int, count: int) -> tuple[Header, ...]:
    """Read headers that the walker has already validated."""
    headers: list[Header] = []
    for _ in range(count):
        length, position = _varint(region, position)
        key = region[position : position + length].decode("utf-8", "replace")
        position += length
        length, position = _varint(region, position)
        headers.append(Header(key, _slice(region, position, length)))
        position += max(length, 0)
    return tuple(headers)


def _varint(region: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = region[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
