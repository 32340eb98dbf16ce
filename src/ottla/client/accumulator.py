"""Records on their way to becoming batches: when one is sent, in which order, with which sequence.

Pure: who asks says what time it is. A partition has a queue of batches; only the oldest may be
under way, so that what is sent again can never overtake what came behind it.

    append --> open batch --full, lingered, or flushed--> drain --> under way --> done
                                                            ^           |
                                                            +-- retry --+

A batch gets producer id and sequence when it is drained for the first time and keeps both: that
is what lets a broker see that it has it already (KIP-98).
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from ottla.protocol.records.batch import HEADER_BYTES, SEQUENCE_MAX
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import NO_PRODUCER, Producer
from ottla.protocol.types import Millis, Offset, TopicPartition

# Lengths, deltas and attributes of a record: never more than this.
_RECORD_OVERHEAD_BYTES = 21
_HEADER_OVERHEAD_BYTES = 10


class Delivered(msgspec.Struct, frozen=True):
    """Where a record ended up. ``offset`` is -1 where nobody was asked (acks=0) or it is unknown.

    ``timestamp`` is the broker's where the topic has LogAppendTime, else the record's.
    """

    partition: TopicPartition
    offset: int
    timestamp: Millis


Outcome = Delivered | Exception
Report = Callable[[Outcome], None]


class ProducerRecord(msgspec.Struct, frozen=True):
    """A record that is not sent yet, and who is told how it went."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: Millis
    report: Report

    @property
    def size(self) -> int:
        """At most so many bytes in a batch that is not packed."""
        headers = sum(
            len(key.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES
            for key, value in self.headers
        )
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


class Batch(msgspec.Struct, eq=False):
    """Records of one partition that travel together. Times are monotonic."""

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

    def tell(self, base_offset: int, append_time: int = -1) -> None:
        """Tell everybody that their records are there."""
        for index, each in enumerate(self.pending):
            offset = base_offset + index if base_offset >= 0 else -1
            stamp = each.timestamp if append_time < 0 else Millis(append_time)
            each.report(Delivered(self.partition, offset, stamp))

    def fail(self, error: Exception) -> None:
        """Tell everybody that their records are not known to be there."""
        for each in self.pending:
            each.report(error)


class Limits(msgspec.Struct):
    """Sizes are bytes before compression."""

    batch_bytes_max: int = 1_000_000
    linger_ms: int = 5
    buffer_bytes_max: int = 32 << 20
    delivery_timeout_ms: int = 120_000


class Accumulator:
    """Every batch that is open, waiting or under way."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.buffered_bytes = 0
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._under_way: dict[TopicPartition, Batch] = {}
        self._producer = NO_PRODUCER
        self._next_sequence: dict[TopicPartition, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._queues and not self._under_way

    def has_room(self, size: int) -> bool:
        """Say whether a record of ``size`` fits; one that is alone always does."""
        return self.buffered_bytes == 0 or (
            self.buffered_bytes + size <= self.limits.buffer_bytes_max
        )

    def append(self, partition: TopicPartition, record: ProducerRecord, now: Millis) -> bool:
        """Take a record; return whether it began a batch behind one that is full."""
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
        """Take the batches that are to be sent now, at most one of a partition."""
        ready = [
            queue[0]
            for partition, queue in self._queues.items()
            if partition not in self._under_way and self._is_due(queue, now, is_flushing)
        ]
        for batch in ready:
            queue = self._queues[batch.partition]
            queue.popleft()
            if not queue:
                del self._queues[batch.partition]
            self._under_way[batch.partition] = batch
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
        """Return when `drain` will have something if nobody appends; None: not before that."""
        times = [
            max(queue[0].not_before, 0 if is_flushing else self._lingered(queue))
            for partition, queue in self._queues.items()
            if partition not in self._under_way
        ]
        return min(times, default=None)

    def _lingered(self, queue: deque[Batch]) -> int:
        oldest = queue[0]
        if len(queue) > 1 or oldest.attempts or oldest.size >= self.limits.batch_bytes_max:
            return 0
        return oldest.born + self.limits.linger_ms

    def done(self, batch: Batch) -> None:
        """Give up the room of a batch that was acknowledged, or has failed for good."""
        del self._under_way[batch.partition]
        self.buffered_bytes -= batch.size - HEADER_BYTES

    def retry(self, batch: Batch, not_before: Millis) -> None:
        """Put a batch back before everything that came behind it."""
        del self._under_way[batch.partition]
        batch.attempts += 1
        batch.not_before = not_before
        self._queues.setdefault(batch.partition, deque()).appendleft(batch)

    def is_expired(self, batch: Batch, now: Millis) -> bool:
        """Say whether a batch has had all the time there is (``delivery.timeout.ms``)."""
        return now >= batch.born + self.limits.delivery_timeout_ms

    def rewind(self, batch: Batch) -> None:
        """Let the next batch take the sequence of one that was refused and is not in the log."""
        writer = batch.producer
        assert writer is not None
        if writer.id == self._producer.id and writer.epoch == self._producer.epoch:
            self._next_sequence[batch.partition] = writer.base_sequence

    def begin_as(self, producer: Producer) -> None:
        """Write as ``producer`` from now on, from sequence 0 in every partition.

        Batches that were sent before keep who they are: they may be in the log already.
        """
        self._producer = producer
        self._next_sequence.clear()
