"""Batches to append to the target, made from fetched ones. Pure.

A batch is sent on as it is, compression and all; only its producer, sequence and attributes are
rewritten. It is built anew from its records where that is not possible: where compaction left holes
(a broker accepts no holes from a client), where the fetch began in its middle, where the broker of
the source set the timestamps (LogAppendTime), or where the cleaner put a deadline in the place of
the first timestamp. Very small batches of one codec are joined, since each costs a request.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from ottla.client.fetched import Fetched, FetchedBatch
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    PRODUCER_ID_AT,
    SEQUENCE_MAX,
    BatchHeader,
    Compression,
    patch_crc,
)
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import NO_EPOCH, Millis, Offset

SMALL_RECORDS_MAX: Final = 31
"""Batches with fewer records cost more as requests than their records cost to encode again."""
JOINED_RECORDS_MAX: Final = 2000
JOINED_BYTES_MAX: Final = 256 << 10
FILL_RECORDS: Final = 50_000
"""Records in a batch that fills the target up to the first offset of the source."""

_BASE: Final = Struct(">q")
_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_PRODUCER: Final = Struct(">qhi")
_TIMES: Final = Struct(">qq")
_LEADER_EPOCH_AT: Final = 12
_BASE_TIMESTAMP_AT: Final = 27


class Piece(msgspec.Struct, eq=False):
    """One batch to append. ``ranges`` are the source offsets of its records, as (first, count)."""

    data: bytearray
    count: int
    ranges: Sequence[tuple[int, int]]
    following: int


def make_pieces(fetched: Fetched) -> list[Piece]:
    """Return the batches to append for the result of a fetch, in order.

    Raises:
        InvalidRecord: a batch that has to be built anew cannot be read.
    """
    found: list[Piece] = []
    for group in _grouped(fetched.batches):
        if len(group) == 1 and _is_sendable(group[0].header, fetched.offset):
            found.append(_as_is(fetched, group[0]))
        elif (piece := _built(fetched, group)) is not None:
            found.append(piece)
    return found


def stamp(piece: Piece, producer: Producer) -> bytearray:
    """Return the batch of a piece as ``producer`` sends it, at its sequence. Changes the piece."""
    data = piece.data
    (attributes,) = _INT16.unpack_from(data, ATTRIBUTES_AT)
    _BASE.pack_into(data, 0, 0)
    _INT32.pack_into(data, _LEADER_EPOCH_AT, NO_EPOCH)
    _INT16.pack_into(data, ATTRIBUTES_AT, attributes & CODEC_MASK)
    _PRODUCER.pack_into(data, PRODUCER_ID_AT, *producer)
    patch_crc(data, 0, len(data))
    return data


def sequence_at(offset: int, first: int) -> int:
    """Return the sequence number that belongs to a target offset; the copy began at ``first``."""
    return (offset - first) & SEQUENCE_MAX


def filler(first: int, count: int, timestamp: int) -> Piece:
    """Return empty records for ``count`` offsets from ``first`` on, which are deleted later."""
    data = bytearray(_filler_bytes(count))
    _TIMES.pack_into(data, _BASE_TIMESTAMP_AT, timestamp, timestamp)
    return Piece(data, count, [(first, count)], first + count)


@lru_cache(maxsize=4)
def _filler_bytes(count: int) -> bytes:
    records = [Record(Offset(n), Millis(0), None, None) for n in range(count)]
    return bytes(build_batch(records, compression=Compression.GZIP))


def _is_sendable(header: BatchHeader, offset: int) -> bool:
    return (
        header.base_offset >= offset
        and header.records_count == header.last_offset_delta + 1
        and not header.is_log_append_time
        and not header.has_delete_horizon
    )


def _grouped(batches: Sequence[FetchedBatch]) -> Iterator[list[FetchedBatch]]:
    """Yield batches alone, and small ones of one codec in a row together."""
    group: list[FetchedBatch] = []
    records = size = 0
    for batch in batches:
        header = batch.header
        is_small = header.records_count <= SMALL_RECORDS_MAX
        fits = (
            group
            and group[0].header.compression == header.compression
            and records + header.records_count <= JOINED_RECORDS_MAX
            and size + header.size <= JOINED_BYTES_MAX
        )
        if group and not (is_small and fits):
            yield group
            group, records, size = [], 0, 0
        if is_small:
            group.append(batch)
            records, size = records + header.records_count, size + header.size
        else:
            yield [batch]
    if group:
        yield group


def _as_is(fetched: Fetched, batch: FetchedBatch) -> Piece:
    header = batch.header
    data = bytearray(memoryview(fetched.data)[batch.position : batch.position + header.size])
    ranges = [(header.base_offset, header.records_count)]
    return Piece(data, header.records_count, ranges, header.next_offset)


def _built(fetched: Fetched, group: Sequence[FetchedBatch]) -> Piece | None:
    """Build one batch from the records of several; None if there are none."""
    records = [
        record
        for batch in group
        for record in read_records(fetched.data, batch.position)
        if record.offset >= fetched.offset
    ]
    if not records:
        return None
    numbered = [record._replace(offset=Offset(number)) for number, record in enumerate(records)]
    data = build_batch(numbered, compression=group[0].header.compression)
    following = group[-1].header.next_offset
    return Piece(data, len(records), _ranges(records), following)


def _ranges(records: Sequence[Record]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for record in records:
        if found and found[-1][0] + found[-1][1] == record.offset:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((record.offset, 1))
    return found
