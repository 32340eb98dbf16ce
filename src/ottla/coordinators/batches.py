"""Encode the records of a coordinator into batches, and decode them.

batch    transactional with a producer, else plain; control batches are markers
record   key and value as in `protocol.internal.framing`, timestamp of the decision
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from ottla.coordinators.decision import Decision, Origin
from ottla.coordinators.lingering import RECORD_OVERHEAD
from ottla.protocol.faults import CorruptBatch
from ottla.protocol.internal.framing import (
    CoordinatorRecord,
    UnknownRecordType,
    encode_key,
    encode_value,
)
from ottla.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    is_crc_valid,
    read_header,
)
from ottla.protocol.records.control import (
    ControlType,
    EndTxnMarker,
    parse_control_type,
    parse_end_txn_marker,
)
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_keyed_batch
from ottla.protocol.types import Buffer, Millis, Offset

log = logging.getLogger(__name__)

Decode: TypeAlias = Callable[[Buffer | None, Buffer | None], CoordinatorRecord]


class MarkerFound(msgspec.Struct, frozen=True):
    """A control batch: the end of a producer's transaction."""

    producer: Producer
    marker: EndTxnMarker
    offset: Offset


class RecordFound(msgspec.Struct, frozen=True):
    """A record of a coordinator and its origin."""

    record: CoordinatorRecord
    origin: Origin


class ReadBatch(msgspec.Struct, frozen=True):
    """The contents of one batch, and the offset after it."""

    found: list[MarkerFound | RecordFound]
    end: Offset


def build_batches(
    decision: Decision, now: Millis, bytes_max: int, compression: Compression
) -> Iterator[tuple[bytearray, Sequence[CoordinatorRecord]]]:
    """Yield the batches of a decision with the records in each.

    One batch, unless the decision may be split: then no batch exceeds ``bytes_max`` unless a single
    record does.
    """
    encoded = [(encode_key(each.key), encode_value(each.value)) for each in decision.records]
    start = 0
    while start < len(encoded):
        end = _part_end(encoded, start, bytes_max) if decision.may_split else len(encoded)
        batch = build_keyed_batch(encoded[start:end], now, decision.producer, compression)
        yield batch, decision.records[start:end]
        start = end


def _part_end(encoded: list[tuple[bytes, bytes | None]], start: int, bytes_max: int) -> int:
    size = HEADER_BYTES
    for index in range(start, len(encoded)):
        key, value = encoded[index]
        size += RECORD_OVERHEAD + len(key) + len(value or b"")
        if size > bytes_max and index > start:
            return index
    return len(encoded)


def read_batches(data: Buffer, start: Offset, decode: Decode) -> Iterator[ReadBatch]:
    """Yield the contents of whole batches from offset ``start`` on; skip a truncated last one.

    A record type that a newer version wrote is skipped and logged, as in Kafka. Anything else that
    cannot be read is raised, since the state would be wrong without it.

    Raises:
        CorruptBatch, UnsupportedMagic, InvalidRecord, ProtocolFault: the log is damaged.
    """
    position, expected = 0, None
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        if position + header.size > len(data):
            return
        if not is_crc_valid(data, position, header):
            raise CorruptBatch(f"batch at offset {header.base_offset}: wrong CRC")
        # The CRC does not cover the base offset; the first batch may begin before ``start``.
        if header.next_offset <= start or (expected is not None and header.base_offset < expected):
            raise CorruptBatch(f"batch at offset {header.base_offset}: out of order")
        yield _read_batch(data, position, header, start, decode)
        position += header.size
        expected = header.next_offset


def _read_batch(
    data: Buffer, position: int, header: BatchHeader, start: Offset, decode: Decode
) -> ReadBatch:
    producer = None
    if header.is_transactional:
        producer = Producer(header.producer_id, header.producer_epoch)
    found: list[MarkerFound | RecordFound] = []
    for record in read_records(data, position):
        if record.offset < start:
            continue
        if header.is_control:
            found.extend(_marker(record, producer))
        else:
            found.extend(_record(record, producer, decode))
    return ReadBatch(found, header.next_offset)


def _marker(record: Record, producer: Producer | None) -> Iterator[MarkerFound]:
    kind = parse_control_type(record.key)
    if producer is not None and kind in (ControlType.COMMIT, ControlType.ABORT):
        yield MarkerFound(producer, parse_end_txn_marker(record), record.offset)


def _record(record: Record, producer: Producer | None, decode: Decode) -> Iterator[RecordFound]:
    try:
        yield RecordFound(decode(record.key, record.value), Origin(record.offset, producer))
    except UnknownRecordType as error:
        log.warning("record skipped offset=%d reason=%s", record.offset, error)
