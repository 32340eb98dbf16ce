"""Clean one batch: compute the bytes that replace it, if any.

A batch that loses no record is copied unchanged. One that loses records is rewritten with its
codec; its offsets, producer, sequence and leader epoch stay. A batch with a wrong CRC stops the
cleaning: rewriting it would give it a valid CRC and hide the damage.
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
from ottla.protocol.records.walker import Spans, check_sizes, walk_spans
from ottla.protocol.records.writer import seal_batch
from ottla.protocol.types import NO_TIMESTAMP, Buffer, Millis, Offset
from ottla.storage.cleaner.batch_run import ALONE, COPIED, RECORDS_MAX, BatchRun, Part
from ottla.storage.cleaner.compaction import BatchRetention, MarkerKind, RetentionDecision, Round
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.record_filter import (
    max_timestamp_delta,
    retain_records,
    retain_records_rebased,
)
from ottla.storage.log.scan import StoredBatch


class CleanStats(msgspec.Struct):
    """What a round has done so far; bytes are those of compressed batches."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0
    batches_copied: int = 0  # unchanged
    batches_rewritten: int = 0
    batches_removed: int = 0


def check_batch(whole: StoredBatch, expected: Offset, end: Offset) -> None:
    """Reject a batch that is not what was written, or not where it belongs.

    ``expected`` is the end of the previous batch, ``end`` the end of the segment's offsets.

    Raises:
        CorruptBatch: its CRC is wrong, or its offsets are.
    """
    header = whole.header
    if not is_crc_valid(whole.buffer, whole.start, header):
        raise CorruptBatch(f"offset {header.base_offset}, byte {whole.position}: wrong CRC")
    if not expected <= header.base_offset <= header.last_offset < end:
        raise CorruptBatch(
            f"offsets {header.base_offset}..{header.last_offset} at byte {whole.position}, "
            f"expected a range within {expected}..{end - 1}"
        )


def marker_kind(whole: StoredBatch) -> MarkerKind:
    """Return what a control batch means for its transaction.

    Raises:
        InvalidRecord: the control record cannot be read.
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


def unpack(whole: StoredBatch, record_bytes_max: int) -> tuple[Buffer, Spans]:
    """Return the uncompressed bytes of a batch's records, and where their fields are.

    Raises:
        InvalidRecord: the records do not match the header, or one of a compressed batch has over
            ``record_bytes_max`` bytes.
    """
    header = whole.header
    region = unpack_region(whole.buffer, whole.start, header)
    spans = walk_spans(region, header.records_count)
    if header.attributes & CODEC_MASK:
        check_sizes(region, header.records_count, record_bytes_max)
    return region, spans


class BatchCleaner:
    """Cleans the batches of one round, in order."""

    def __init__(self, offset_map: OffsetMap, round_: Round, stats: CleanStats) -> None:
        self._map = offset_map
        self.round = round_
        self._stats = stats
        # Batches that may have to stay without records end here, see `decide_batch`.
        self._ends = {last.data_offset for last in round_.last_records.values()}
        self._ends.add(Offset(round_.upper_bound - 1))
        self._keep = bytearray(RECORDS_MAX)

    def clean_run(self, run: BatchRun, buffer: bytes) -> list[Part]:
        """Decide about the batches of a run, and count those that are copied or removed."""
        stats, at = self._stats, run.positions
        self._map.mark(buffer, run, run.base_offset, self._keep, is_past_horizon=False)
        parts = run.split(self._keep, self._ends)
        for part in parts:
            if part.outcome == ALONE:
                continue
            size, batches = at[part.stop] - at[part.first], part.stop - part.first
            stats.bytes_read += size
            stats.records_read += part.records
            if part.outcome == COPIED:
                stats.batches_copied += batches
                stats.bytes_written += size
                stats.records_written += part.records
            else:
                stats.batches_removed += batches
                stats.records_without_key += part.without_key
        return parts

    def clean(
        self, whole: StoredBatch, decision: RetentionDecision
    ) -> tuple[BatchHeader, Buffer] | None:
        """Return the batch that replaces this one; None when it is removed.

        Raises:
            InvalidRecord: the records do not match the header.
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
            region, spans = unpack(whole, self.round.record_bytes_max)
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
        """Return a byte per record (1: keep), how many are kept, and how many tombstones are."""
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
        """Keep only the header: offsets, producer and sequence, without codec and horizon."""
        bare = header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        )
        sealed = seal_batch(bare, b"")
        self._stats.batches_rewritten += 1
        self._stats.bytes_written += len(sealed)
        return bare._replace(length=len(sealed) - 12), sealed
