"""Batches of records that wait to be sent: when, in which order, with which sequence number.

Pure: the caller passes the time. A partition has a queue of batches; only the oldest may be in
flight, so that a retry cannot be overtaken by a later batch.

    append --> open batch --full, lingered, or flushed--> drain --> in flight --> done
                                                            ^           |
                                                            +-- retry --+

A batch gets its producer id and sequence number when it is drained for the first time and keeps
both, so that a broker can recognize a duplicate (KIP-98).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ottla.protocol.records.batch import HEADER_BYTES, SEQUENCE_MAX
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import NO_PRODUCER, Producer
from ottla.protocol.types import Millis, Offset, TopicPartition

# The largest encoding of the lengths, deltas and attributes of a record.
_RECORD_OVERHEAD_BYTES = 21
_HEADER_OVERHEAD_BYTES = 10


class RecordMetadata(msgspec.Struct, frozen=True):
    """The position of an acknowledged record. ``offset`` is -1 with acks=0 or if it is unknown.

    ``timestamp`` is the broker's if the topic has LogAppendTime, else the record's.
    """

    partition: TopicPartition
    offset: int
    timestamp: Millis


Outcome = RecordMetadata | Exception
Report = Callable[[Outcome], None]


class ProducerRecord(msgspec.Struct, frozen=True):
    """A record to be sent, and the callback for its outcome."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: Millis
    report: Report

    @property
    def size(self) -> int:
        """The largest size of the record in an uncompressed batch, in bytes."""
        headers = sum(
            len(key.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES
            for key, value in self.headers
        )
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


class Batch(msgspec.Struct, eq=False):
    """Records of one partition that are sent together. Times are monotonic."""

    partition: TopicPartition
    born: Millis
    pending: list[ProducerRecord] = msgspec.field(default_factory=list)
    size: int = HEADER_BYTES
    producer: Producer | None = None
    attempts: int = 0
    not_before: int = 0

    def records(self) -> list[Record]:
        """Return the records with offsets counted from 0, as a producer sends them."""
        return [
            Record(Offset(index), each.timestamp, each.key, each.value, tuple(each.headers))
            for index, each in enumerate(self.pending)
        ]

    def complete(self, base_offset: int, append_time: int = -1) -> None:
        """Report to each record that it was acknowledged."""
        for index, each in enumerate(self.pending):
            offset = base_offset + index if base_offset >= 0 else -1
            stamp = each.timestamp if append_time < 0 else Millis(append_time)
            each.report(RecordMetadata(self.partition, offset, stamp))

    def fail(self, error: Exception, own: Mapping[int, Exception] | None = None) -> None:
        """Report to each record that it may not have been written.

        ``own`` are errors of single records, by their position in the batch.
        """
        errors = own or {}
        for index, each in enumerate(self.pending):
            each.report(errors.get(index, error))


class AccumulatorLimits(msgspec.Struct):
    """Sizes are bytes before compression."""

    batch_bytes_max: int = 1_000_000
    linger_ms: int = 5
    buffer_bytes_max: int = 32 << 20
    delivery_timeout_ms: int = 120_000


class Accumulator:
    """All batches that are open, waiting or in flight."""

    def __init__(self, limits: AccumulatorLimits | None = None) -> None:
        self.limits = limits or AccumulatorLimits()
        self.buffered_bytes = 0
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._in_flight: dict[TopicPartition, Batch] = {}
        self._producer = NO_PRODUCER
        self._next_sequence: dict[TopicPartition, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._queues and not self._in_flight

    def has_room(self, size: int) -> bool:
        """Say whether a record of ``size`` fits; into an empty buffer it always does."""
        return self.buffered_bytes == 0 or (
            self.buffered_bytes + size <= self.limits.buffer_bytes_max
        )

    def append(self, partition: TopicPartition, record: ProducerRecord, now: Millis) -> bool:
        """Add a record; return whether it started a batch because the last one was full."""
        queue = self._queues.setdefault(partition, deque())
        size = record.size
        newest = queue[-1] if queue else None
        is_full = newest is not None and (
            newest.producer is not None or newest.size + size > self.limits.batch_bytes_max
        )
        if newest is None or is_full:
            newest = Batch(partition, now)
            queue.append(newest)
        newest.pending.append(record)
        newest.size += size
        self.buffered_bytes += size
        return is_full

    def drain(self, now: Millis, *, is_flushing: bool = False) -> list[Batch]:
        """Return the batches to send now, at most one per partition; they are in flight then."""
        ready = [
            queue[0]
            for partition, queue in self._queues.items()
            if partition not in self._in_flight and self._is_due(queue, now, is_flushing)
        ]
        for batch in ready:
            queue = self._queues[batch.partition]
            queue.popleft()
            if not queue:
                del self._queues[batch.partition]
            self._in_flight[batch.partition] = batch
            if batch.producer is None:
                batch.producer = self._claim_sequence(batch)
        return ready

    def _claim_sequence(self, batch: Batch) -> Producer:
        if self._producer is NO_PRODUCER:
            return NO_PRODUCER
        first = self._next_sequence.get(batch.partition, 0)
        self._next_sequence[batch.partition] = (first + len(batch.pending)) & SEQUENCE_MAX
        return self._producer._replace(base_sequence=first)

    def _is_due(self, queue: deque[Batch], now: Millis, is_flushing: bool) -> bool:
        oldest = queue[0]
        if now < oldest.not_before:
            return False
        is_full = len(queue) > 1 or oldest.size >= self.limits.batch_bytes_max
        return (
            is_flushing
            or is_full
            or oldest.attempts > 0
            or now >= oldest.born + self.limits.linger_ms
        )

    def next_due(self, *, is_flushing: bool = False) -> int | None:
        """Return when `drain` next returns a batch if no record is added; None if never."""
        times = [
            max(queue[0].not_before, 0 if is_flushing else self._lingered(queue))
            for partition, queue in self._queues.items()
            if partition not in self._in_flight
        ]
        return min(times, default=None)

    def _lingered(self, queue: deque[Batch]) -> int:
        oldest = queue[0]
        if len(queue) > 1 or oldest.attempts or oldest.size >= self.limits.batch_bytes_max:
            return 0
        return oldest.born + self.limits.linger_ms

    def done(self, batch: Batch) -> None:
        """Free the memory of a batch that was acknowledged or has finally failed."""
        del self._in_flight[batch.partition]
        self.buffered_bytes -= batch.size - HEADER_BYTES

    def retry(self, batch: Batch, not_before: Millis) -> None:
        """Put a batch back in front of all later ones."""
        del self._in_flight[batch.partition]
        batch.attempts += 1
        batch.not_before = not_before
        self._queues.setdefault(batch.partition, deque()).appendleft(batch)

    def is_expired(self, batch: Batch, now: Millis) -> bool:
        """Say whether a batch has exceeded ``delivery.timeout.ms``."""
        return now >= batch.born + self.limits.delivery_timeout_ms

    def rewind(self, batch: Batch) -> None:
        """Reuse the sequence number of a batch that was rejected and is not in the log."""
        writer = batch.producer
        assert writer is not None
        if writer.id == self._producer.id and writer.epoch == self._producer.epoch:
            self._next_sequence[batch.partition] = writer.base_sequence

    def begin_as(self, producer: Producer) -> None:
        """Use a new producer id from now on, with sequence 0 in every partition.

        Batches that were sent before keep their producer id: they may be in the log already.
        """
        self._producer = producer
        self._next_sequence.clear()
