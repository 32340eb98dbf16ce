"""Cleaning one batch: which bytes take its place, if any.

A batch that loses nothing is copied as it stands. One that loses records is written anew with
its codec; its offsets, producer, sequence and leader epoch stay. A batch whose CRC is wrong
stops the cleaning: rewritten it would get a right one, and the damage would pass for data.
"""

import msgspec

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    BatchHeader,
    is_crc_valid,
)
from ottla.protocol.records.compression import compress
from ottla.protocol.records.control import ControlType, read_control_type
from ottla.protocol.records.reader import unpack_region
from ottla.protocol.records.walker import Spans, walk_spans
from ottla.protocol.records.writer import seal_batch
from ottla.protocol.types import NO_TIMESTAMP, Buffer, Millis, Offset
from ottla.storage.compaction import BatchRetention, MarkerKind, RetentionDecision, Round
from ottla.storage.offset_map import OffsetMap
from ottla.storage.record_filter import (
    max_timestamp_delta,
    retain_records,
    retain_records_rebased,
)
from ottla.storage.scan import StoredBatch


class CleanStats(msgspec.Struct):
    """What a round has done so far; bytes are of batches, packed."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0
    batches_copied: int = 0  # as they stood
    batches_rewritten: int = 0
    batches_removed: int = 0


def check_batch(whole: StoredBatch, expected: Offset, end: Offset) -> None:
    """Refuse a batch that is not what was written, or not where it belongs.

    ``expected`` is where the batch before it ended, ``end`` where its segment's offsets do.

    Raises:
        CorruptBatch: its CRC is wrong, or its offsets are.
    """
    header = whole.header
    if not is_crc_valid(whole.buffer, whole.start, header):
        raise CorruptBatch(f"offset {header.base_offset}, byte {whole.position}: wrong CRC")
    if not expected <= header.base_offset <= header.last_offset < end:
        raise CorruptBatch(
            f"offsets {header.base_offset}..{header.last_offset} at byte {whole.position}, "
            f"where {expected}..{end - 1} may be"
        )


def marker_kind(whole: StoredBatch) -> MarkerKind:
    """Say what a control batch is to a transaction.

    Raises:
        InvalidRecord: its record is none.
    """
    if whole.header.records_count == 0:
        return MarkerKind.EMPTY
    match read_control_type(whole.buffer, whole.start):
        case ControlType.COMMIT:
            return MarkerKind.COMMIT
        case ControlType.ABORT:
            return MarkerKind.ABORT
        case _:
            return MarkerKind.OTHER


def unpack(whole: StoredBatch) -> tuple[Buffer, Spans]:
    """Return the bytes of a batch's records, unpacked, and where their fields lie.

    Raises:
        InvalidRecord: they are not what the header says.
    """
    region = unpack_region(whole.buffer, whole.start, whole.header)
    return region, walk_spans(region, whole.header.records_count)


class BatchCleaner:
    """Cleans the batches of one round, in order."""

    def __init__(self, offset_map: OffsetMap, round_: Round, stats: CleanStats) -> None:
        self._map = offset_map
        self.round = round_
        self._stats = stats

    def clean(
        self, whole: StoredBatch, decision: RetentionDecision
    ) -> tuple[BatchHeader, Buffer] | None:
        """Return the batch that takes this one's place; None when nothing does.

        Raises:
            InvalidRecord: the records are not what the header says.
        """
        header = whole.header
        self._stats.bytes_read += header.size
        self._stats.records_read += header.records_count
        kept = 0
        if (
            decision.batch_retention is not BatchRetention.DELETE
            and header.records_count
            and not decision.drops_records
        ):
            region, spans = unpack(whole)
            keep, kept, tombstones = self._mark(header, region, spans)
            needs_horizon = (
                tombstones > 0 or decision.is_marker_of_empty_txn
            ) and not header.has_delete_horizon
            if kept == header.records_count and not needs_horizon:
                return self._copy(whole)
            if kept:
                return self._rewrite(header, region, spans, keep, needs_horizon=needs_horizon)
        if decision.batch_retention is BatchRetention.RETAIN_EMPTY:
            return self._empty(header)
        self._stats.batches_removed += 1
        return None

    def _mark(
        self, header: BatchHeader, region: Buffer, spans: Spans
    ) -> tuple[bytearray, int, int]:
        """Return a byte for each record (1: it stays), how many stay, how many tombstones do."""
        if header.is_control:
            return bytearray(b"\1" * spans.count), spans.count, 0
        keep = bytearray(spans.count)
        horizon = header.delete_horizon_ms
        marked = self._map.mark(
            region,
            spans,
            header.base_offset,
            keep,
            is_past_horizon=horizon is not None and horizon <= self.round.now,
        )
        self._stats.records_without_key += marked.without_key
        return keep, marked.kept, marked.tombstones_kept

    def _copy(self, whole: StoredBatch) -> tuple[BatchHeader, Buffer]:
        header = whole.header
        self._stats.batches_copied += 1
        self._stats.bytes_written += header.size
        self._stats.records_written += header.records_count
        return header, memoryview(whole.buffer)[whole.start : whole.start + header.size]

    def _rewrite(
        self,
        header: BatchHeader,
        region: Buffer,
        spans: Spans,
        keep: bytearray,
        *,
        needs_horizon: bool,
    ) -> tuple[BatchHeader, Buffer]:
        base, attributes = header.base_timestamp, header.attributes
        newest = header.max_timestamp
        if not header.is_log_append_time:
            newest = Millis(base + max_timestamp_delta(spans, keep))
        records: Buffer
        if needs_horizon:
            base = Millis(self.round.stamp + self.round.delete_retention_ms)
            attributes |= DELETE_HORIZON
            shift = header.base_timestamp - base
            records = retain_records_rebased(region, spans, keep, shift)
        else:
            records = retain_records(region, spans, keep)
        kept = keep.count(1)
        sealed = seal_batch(
            header._replace(
                attributes=attributes,
                base_timestamp=base,
                max_timestamp=newest,
                records_count=kept,
            ),
            compress(header.compression, records),
        )
        self._stats.batches_rewritten += 1
        self._stats.bytes_written += len(sealed)
        self._stats.records_written += kept
        return header._replace(max_timestamp=newest, length=len(sealed) - 12), sealed

    def _empty(self, header: BatchHeader) -> tuple[BatchHeader, Buffer]:
        """Keep the header alone: offsets, producer and sequence, but no codec and no horizon."""
        bare = header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        )
        sealed = seal_batch(bare, b"")
        self._stats.batches_rewritten += 1
        self._stats.bytes_written += len(sealed)
        return bare._replace(length=len(sealed) - 12), sealed
