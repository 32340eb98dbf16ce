"""Checks that a batch must pass before a log appends it; none of them decodes records.

Pure. A leader's batches come from clients or coordinators and are given their offsets here. A
follower's batches already have offsets from a leader that has checked them. Both have their CRC
checked: a broker writes nothing that it could not read again.
"""

from typing import NamedTuple

from ottla.protocol.faults import (
    BatchTooLargeForSegment,
    CorruptBatch,
    InvalidRecord,
    RecordTooLarge,
    UnexpectedAppendOffset,
)
from ottla.protocol.records.batch import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    batches,
    is_crc_valid,
)
from ottla.protocol.records.control import EndTxnMarker, read_end_txn_marker
from ottla.protocol.types import NO_TIMESTAMP, Buffer, LeaderEpoch, Millis, Offset
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.producer_state import Duplicate, ProducerState


class Appended(NamedTuple):
    """The result of an append.

    ``log_append_time`` is -1 unless ``message.timestamp.type`` is LogAppendTime. A duplicate was
    in the log before: the offsets say where, and nothing was written.
    """

    first_offset: Offset
    last_offset: Offset
    max_timestamp: Millis
    log_append_time: Millis = NO_TIMESTAMP
    is_duplicate: bool = False


def answer_duplicate(duplicate: Duplicate) -> Appended:
    """Return the result for a batch that is already in the log, as if it had just been written."""
    first, last, timestamp = duplicate
    return Appended(first, last, timestamp, timestamp, is_duplicate=True)


# Last offset, largest timestamp and size of a batch: what its segment records about it.
Note = tuple[Offset, Millis, int]


class BufferedBatch(NamedTuple):
    """A batch in a buffer."""

    start: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """Where the next batch begins."""
        return self.start + self.header.size

    @property
    def note(self) -> Note:
        """What the segment records about this batch."""
        return self.header.last_offset, self.header.max_timestamp, self.header.size


def marker_of(buffer: Buffer, start: int, header: BatchHeader) -> EndTxnMarker | None:
    """Return the transaction marker of a producer's control batch; None for any other batch.

    None also for a control batch that the cleaner has emptied.

    Raises:
        InvalidRecord: a control batch that holds no marker.
    """
    if header.producer_id < 0 or not header.is_control or not header.records_count:
        return None
    return read_end_txn_marker(buffer, start)


def check_leader_batch(
    buffer: Buffer,
    start: int,
    header: BatchHeader,
    config: LogConfig,
    from_client: bool,
    *,
    may_have_gaps: bool = False,
) -> None:
    """Reject a batch that a leader must not append. The batch must be complete.

    ``may_have_gaps``: the broker has removed records from it, and their offsets stay unused.

    Raises:
        RecordTooLarge, BatchTooLargeForSegment, CorruptBatch, InvalidRecord
    """
    size = header.length + LOG_OVERHEAD_BYTES
    if size > config.max_message_bytes:
        raise RecordTooLarge(f"{size} bytes, max.message.bytes is {config.max_message_bytes}")
    if size > config.segment_bytes:
        raise BatchTooLargeForSegment(f"{size} bytes, segment.bytes is {config.segment_bytes}")
    if not is_crc_valid(buffer, start, header):
        raise CorruptBatch("CRC does not match")
    if not (may_have_gaps and 0 <= header.records_count <= header.last_offset_delta + 1):
        _check_count(header)
    if from_client:
        _check_from_client(header)


def check_produced_header(header: BatchHeader) -> None:
    """Reject a header that no producer writes, whatever its records are.

    Raises:
        InvalidRecord
    """
    _check_count(header)
    _check_from_client(header)


def _check_count(header: BatchHeader) -> None:
    if header.records_count <= 0 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"{header.records_count} records with last offset delta {header.last_offset_delta}"
        )


def _check_from_client(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch must be 0, not {header.base_offset}")
    if header.is_control:
        raise InvalidRecord("a client may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent no sequence number")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord("a transactional batch without a producer id")


class Origin(NamedTuple):
    """Where a leader's batch comes from.

    ``transaction_version`` is the version that the coordinator that sent a marker uses (KIP-890).
    """

    leader_epoch: LeaderEpoch
    now: Millis
    from_client: bool
    transaction_version: int


def check_producer(
    producers: ProducerState, header: BatchHeader, marker: EndTxnMarker | None, origin: Origin
) -> Duplicate | None:
    """Check a batch against its producer's state; return where it already is if a duplicate.

    Raises:
        OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState,
        TransactionCoordinatorFenced
    """
    if header.producer_id < 0:
        return None
    if marker is None:
        return producers.check(header, from_client=origin.from_client)
    producers.check_marker(header, marker, transaction_version=origin.transaction_version)
    return None


def split_leader_batches(buffer: Buffer, *, from_client: bool) -> list[BufferedBatch]:
    """Return the batches of a buffer that must hold complete batches and nothing else.

    Raises:
        CorruptBatch: bytes are missing or left over. InvalidRecord: a client sent several.
    """
    found = [BufferedBatch(*each) for each in batches(buffer)]
    end = found[-1].end if found else 0
    if end != len(buffer) or not found:
        raise CorruptBatch(f"{len(buffer) - end} of {len(buffer)} bytes are not a complete batch")
    if from_client and len(found) > 1:
        raise InvalidRecord(f"{len(found)} batches for one partition, only one is allowed")
    return found


def check_replicated(buffer: Buffer, log_end: Offset) -> list[BufferedBatch]:
    """Return the complete batches that a leader sent; an incomplete one at the end is left out.

    Offsets may have gaps, as compaction leaves them, but never go back.

    Raises:
        CorruptBatch: a CRC or an offset delta is wrong.
        UnexpectedAppendOffset: a batch begins before the end of the previous one, or of the log.
    """
    found = [BufferedBatch(*each) for each in batches(buffer)]
    expected = log_end
    for start, header in found:
        if header.last_offset_delta < 0 or not is_crc_valid(buffer, start, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} is damaged")
        if header.base_offset < expected:
            raise UnexpectedAppendOffset(f"offset {header.base_offset}, expected {expected}")
        expected = header.next_offset
    return found
