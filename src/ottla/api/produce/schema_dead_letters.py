"""Removes invalid records from a batch, and makes dead letters of them. Pure.

The batch keeps its offsets and sequence numbers: the offsets of removed records stay unused, as
after compaction. So the offsets that a producer computes from the base offset are right, and the
batch of an idempotent producer is recognized when it is sent again. A batch all of whose records
are removed is appended empty.

A dead letter has the key, value and headers of its record, and headers that say where it was sent
and why it is here, by the names of Kafka's dead letters (KIP-1191). It has no offset: the record
never had one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.api.produce.schema_rules import UNPACKED_BYTES_MAX, BadRecord
from ottla.protocol.records.batch import CODEC_MASK, read_header
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Header, Record, read_records, unpack_region
from ottla.protocol.records.walker import walk_spans
from ottla.protocol.records.writer import seal_batch
from ottla.protocol.types import NO_TIMESTAMP, Millis, Offset, TopicPartition

LETTERS_BYTES_MAX: Final = 512 << 10
"""Bytes of keys, values and headers in one batch of dead letters, unless one letter has more."""
_PREFIX: Final = "__dlq.errors."
_LETTER_BYTES: Final = 200  # its own headers, roughly


def without_records(batch: memoryview | bytearray, bad: Sequence[BadRecord]) -> bytearray:
    """Return a batch without some records, with the offsets of the others."""
    header = read_header(batch)
    region = bytes(unpack_region(batch, 0, header, bytes_max=UNPACKED_BYTES_MAX))
    spans = walk_spans(region, header.records_count)
    removed = {record.batch_index for record in bad}
    kept = [index for index in range(spans.count) if index not in removed]
    left = b"".join(region[spans.starts[index] : spans.starts[index + 1]] for index in kept)
    newest = max((spans.timestamp_deltas[index] for index in kept), default=None)
    timestamp = NO_TIMESTAMP if newest is None else Millis(header.base_timestamp + newest)
    attributes = header.attributes if kept else header.attributes & ~CODEC_MASK
    header = header._replace(
        attributes=attributes, max_timestamp=timestamp, records_count=len(kept)
    )
    return seal_batch(header, compress(header.compression, left, None) if kept else left)


def dead_letters(
    batch: memoryview | bytearray,
    bad: Sequence[BadRecord],
    origin: TopicPartition,
    now: Millis,
) -> Iterator[list[Record]]:
    """Yield the dead letters of a batch, in pieces that fit into a batch each."""
    records = read_records(batch, bytes_max=UNPACKED_BYTES_MAX)
    piece: list[Record] = []
    size = 0
    for index, reason in bad:
        record = records[index]
        added = _LETTER_BYTES + len(record.key or b"") + len(record.value or b"")
        added += sum(len(key) + len(value or b"") for key, value in record.headers)
        if piece and size + added > LETTERS_BYTES_MAX:
            yield piece
            piece, size = [], 0
        headers = (*record.headers, *_headers(origin, reason))
        piece.append(Record(Offset(len(piece)), now, record.key, record.value, headers))
        size += added
    if piece:
        yield piece


def _headers(origin: TopicPartition, reason: str) -> Iterator[Header]:
    texts = {"topic": origin.topic, "partition": str(origin.partition), "message": reason}
    for name, text in texts.items():
        yield Header(f"{_PREFIX}{name}", text.encode())
