"""The producer state of one partition: epochs, sequences, open transactions.

Pure. The log calls :meth:`ProducerState.check` before it writes a batch and
:meth:`~ProducerState.apply` (or :meth:`~ProducerState.apply_marker`) after. The same calls,
replayed over the log from a snapshot on, rebuild the state, so a follower and a restarted leader
decide as the leader did.

    unknown --apply--> known(epoch, last 5 batches) --marker--> known, transaction closed
                             |  ^                    \\-- a higher epoch clears the batches
                             +--+ next sequence, or 0 after 2**31 - 1

Invariants: a producer with an open transaction is never removed; ``first_unstable_offset`` is at
or below every record of an open transaction, or of one whose marker may not be replicated.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.protocol.faults import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.protocol.records.batch import SEQUENCE_MAX, BatchHeader
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.types import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
)

# A client keeps at most this many batches in flight (KIP-98), so an older one is not a retry.
BATCHES_REMEMBERED = 5
NO_COORDINATOR_EPOCH = -1
# From this version of the transaction protocol on, markers carry a bumped epoch (KIP-890).
EPOCH_BUMPING_TRANSACTION_VERSION = 2


class Duplicate(NamedTuple):
    """Where a batch that a client sent again is already stored."""

    first_offset: Offset
    last_offset: Offset
    timestamp: Millis


class CompletedTxn(NamedTuple):
    """A transaction that a marker has just ended; ``last_offset`` is the marker's own.

    ``last_stable_offset`` is what a reader may reach once the marker is replicated: the
    transaction index stores it.
    """

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool
    last_stable_offset: Offset


class ProducerEntry(NamedTuple):
    """One producer as stored in a snapshot: only the newest batch, as in Kafka.

    ``last_offset`` and ``last_sequence`` are -1 when no batch of this epoch is known, and
    ``txn_first_offset`` is -1 when no transaction is open.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: Sequence
    last_offset: Offset
    offset_delta: int
    timestamp: Millis
    coordinator_epoch: int
    txn_first_offset: Offset


class _Batch(NamedTuple):
    """An accepted batch; sequences are of its first and last record."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: Millis


class _Producer:
    """A producer's state; slotted and mutable because every append updates it."""

    __slots__ = (
        *("batches", "coordinator_epoch", "epoch", "markers"),
        *("seen_at", "timestamp", "txn_first"),
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.timestamp = NO_TIMESTAMP  # of its newest batch or marker: the client's clock
        self.seen_at = NO_TIMESTAMP  # when it was appended: our clock; lost on restart
        self.txn_first: Offset | None = None
        self.markers = 0  # number of markers seen; lost on restart
        self.batches: deque[_Batch] = deque(maxlen=BATCHES_REMEMBERED)

    def move_to(self, epoch: int) -> None:
        """Move to an epoch; sequences restart, so batches of another epoch are dropped."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """The producers of one partition. ``expiration_ms`` is ``producer.id.expiration.ms``.

    Failure: a check raises a fault and changes nothing. Applying never fails: the batch is
    already in the log.
    """

    def __init__(self, expiration_ms: int = 86_400_000) -> None:
        self.expiration_ms = expiration_ms
        self.map_end_offset = Offset(0)  # everything below it has been applied
        self._producers: dict[int, _Producer] = {}
        # First offset -> producer. Offsets only grow, so insertion order is offset order.
        self._ongoing: dict[Offset, int] = {}
        # First offset -> marker's offset, of ended transactions at or above the high watermark.
        self._unreplicated: dict[Offset, Offset] = {}
        self._first_unstable: Offset | None = None

    # -- before an append ----------------------------------------------------

    def check(self, header: BatchHeader, *, from_client: bool) -> Duplicate | None:
        """Check whether a leader may append a data batch; return where it is if a duplicate.

        ``from_client`` is false for a coordinator's batches: they carry no sequences, so only the
        epoch is checked. Replicated batches are not checked at all.

        Raises:
            InvalidProducerEpoch: a newer incarnation of the producer has written here.
            OutOfOrderSequence: a gap, or a duplicate older than the batches that are kept.
            InvalidTransactionState: not transactional while its transaction is open.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Unknown, perhaps expired: any sequence is accepted as its first.
            return None
        if from_client and (duplicate := _find_duplicate(producer, header)) is not None:
            return duplicate
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} epoch {header.producer_epoch}, "
                f"the log has epoch {producer.epoch}"
            )
        if from_client:
            _check_sequence(producer, header)
        if producer.txn_first is not None and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open since offset "
                f"{producer.txn_first} and sent a batch outside it"
            )
        return None

    def check_marker(
        self, header: BatchHeader, marker: EndTxnMarker, *, transaction_version: int
    ) -> None:
        """Check whether a leader may append an end-of-transaction marker.

        Under transaction version 2 the marker's epoch must be above the epoch of the data,
        otherwise a delayed marker could end the producer's next transaction (KIP-890). A repeated
        marker of a transaction that has already ended is accepted.

        Raises:
            InvalidProducerEpoch: the marker belongs to an older incarnation.
            TransactionCoordinatorFenced: a newer coordinator has written markers here.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        epoch = header.producer_epoch
        is_stale = epoch < producer.epoch
        if transaction_version >= EPOCH_BUMPING_TRANSACTION_VERSION and epoch == producer.epoch:
            is_stale = producer.txn_first is not None
        if is_stale:
            raise InvalidProducerEpoch(
                f"marker of producer {header.producer_id} epoch {epoch}, "
                f"the log has epoch {producer.epoch}"
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of producer {header.producer_id} from coordinator epoch "
                f"{marker.coordinator_epoch}, the log has {producer.coordinator_epoch}"
            )

    # -- after an append -----------------------------------------------------

    def apply(
        self,
        header: BatchHeader,
        *,
        first_offset: Offset,
        last_offset: Offset,
        timestamp: Millis,
        now: Millis = NO_TIMESTAMP,
    ) -> None:
        """Apply a data batch that is in the log at these offsets.

        ``timestamp`` is its largest. ``now`` is our wall clock at the append, and absent during
        replay: it keeps an active producer that writes old timestamps from expiring.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        else:
            producer.move_to(header.producer_epoch)
        producer.batches.append(
            _Batch(header.base_sequence, header.last_sequence, first_offset, last_offset, timestamp)
        )
        producer.timestamp = timestamp
        producer.seen_at = now
        if header.is_transactional and producer.txn_first is None:
            producer.txn_first = first_offset
            self._ongoing[first_offset] = header.producer_id
            if self._first_unstable is None:
                self._first_unstable = first_offset
        self.map_end_offset = Offset(last_offset + 1)

    def apply_marker(
        self, header: BatchHeader, marker: EndTxnMarker, offset: Offset, now: Millis = NO_TIMESTAMP
    ) -> CompletedTxn | None:
        """Apply a marker that is in the log at ``offset``; None when it ended no transaction.

        The transaction stays unstable until :meth:`on_high_watermark` has passed the marker.
        """
        producer = self._enter_epoch(header, now)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.markers += 1
        self.map_end_offset = Offset(offset + 1)
        first = producer.txn_first
        if first is None:
            return None
        producer.txn_first = None
        self._ongoing.pop(first, None)
        self._unreplicated[first] = offset
        next_open = next(iter(self._ongoing), None)
        stable = Offset(offset + 1) if next_open is None else next_open
        return CompletedTxn(
            ProducerId(header.producer_id), first, offset, not marker.is_commit, stable
        )

    def apply_emptied_marker(self, header: BatchHeader, now: Millis = NO_TIMESTAMP) -> None:
        """Apply a marker whose records compaction has removed: its epoch still fences."""
        self._enter_epoch(header, now)

    def _enter_epoch(self, header: BatchHeader, now: Millis) -> _Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        else:
            producer.move_to(header.producer_epoch)
        producer.timestamp = header.max_timestamp
        producer.seen_at = now
        return producer

    def skip_to(self, offset: Offset) -> None:
        """Mark everything below ``offset`` as applied: batches without a producer."""
        self.map_end_offset = max(self.map_end_offset, offset)

    # -- transactions and the high watermark ---------------------------------

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first offset of an open transaction, or of one whose marker may be unreplicated."""
        return self._first_unstable

    @property
    def first_undecided_offset(self) -> Offset | None:
        """The first offset of the oldest open transaction; cleaning stops before it."""
        return next(iter(self._ongoing), None)

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Drop ended transactions whose marker lies below the high watermark."""
        if not self._unreplicated:
            return
        self._unreplicated = {
            first: marker
            for first, marker in self._unreplicated.items()
            if marker >= high_watermark
        }
        self._find_first_unstable()

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return the end for read_committed: below it no record's outcome can change."""
        if self._first_unstable is None:
            return high_watermark
        return min(self._first_unstable, high_watermark)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this incarnation of a producer has an open transaction here."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.txn_first is not None
            and producer.epoch == producer_epoch
        )

    def epoch_of(self, producer_id: int) -> int:
        """Return the epoch of a producer's newest batch or marker here, -1 if there is none."""
        producer = self._producers.get(producer_id)
        return NO_PRODUCER_EPOCH if producer is None else producer.epoch

    def markers_of(self, producer_id: int) -> int:
        """Return a number that changes whenever a marker of the producer is written here.

        Callers compare it before and after verifying a transaction (KIP-890).
        """
        producer = self._producers.get(producer_id)
        return 0 if producer is None else producer.markers

    # -- forgetting ----------------------------------------------------------

    def expire(self, now: Millis) -> int:
        """Remove producers idle for ``expiration_ms``; return how many.

        Idle by their timestamps (as in Kafka) and by our clock: a producer that replays old
        records is active, and its retries must still be distinguished from new batches.
        """
        idle = [pid for pid, producer in self._producers.items() if self._is_idle(producer, now)]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def _is_idle(self, producer: _Producer, now: Millis) -> bool:
        last = max(producer.timestamp, producer.seen_at)
        return producer.txn_first is None and now - last >= self.expiration_ms

    def on_log_start(self, log_start: Offset) -> None:
        """Follow the log's new start. Producers stay: their next sequence is still known."""
        self.on_high_watermark(log_start)
        self.skip_to(log_start)

    def clear(self, end_offset: Offset) -> None:
        """Remove all state; the next batch to apply begins at ``end_offset``."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._first_unstable = None
        self.map_end_offset = end_offset

    # -- snapshots -----------------------------------------------------------

    def entries(self) -> Iterator[ProducerEntry]:
        """Yield every producer in order of first appearance, as it is when it is reached."""
        for producer_id, producer in list(self._producers.items()):
            newest = producer.batches[-1] if producer.batches else None
            yield ProducerEntry(
                ProducerId(producer_id),
                ProducerEpoch(producer.epoch),
                Sequence(producer.last_sequence),
                Offset(-1) if newest is None else newest.last_offset,
                0 if newest is None else newest.last_offset - newest.first_offset,
                producer.timestamp,
                producer.coordinator_epoch,
                Offset(-1) if producer.txn_first is None else producer.txn_first,
            )

    def load(self, entries: Iterable[ProducerEntry], end_offset: Offset, now: Millis) -> None:
        """Restore a snapshot taken at ``end_offset``, without the producers expired by now."""
        self.clear(end_offset)
        for entry in sorted(entries, key=lambda entry: entry.txn_first_offset):
            producer = _restore(entry)
            if self._is_idle(producer, now):
                continue
            self._producers[entry.producer_id] = producer
            if producer.txn_first is not None:
                self._ongoing[producer.txn_first] = entry.producer_id
        self._find_first_unstable()

    # -- views ---------------------------------------------------------------

    def last_sequence(self, producer_id: ProducerId) -> Sequence | None:
        """Return the last sequence of a producer; None when it is unknown."""
        producer = self._producers.get(producer_id)
        return None if producer is None else Sequence(producer.last_sequence)

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._producers

    def _find_first_unstable(self) -> None:
        candidates = [*self._unreplicated]
        if (undecided := self.first_undecided_offset) is not None:
            candidates.append(undecided)
        self._first_unstable = min(candidates, default=None)


def _find_duplicate(producer: _Producer, header: BatchHeader) -> Duplicate | None:
    """Find the recorded batch with exactly these sequences in this epoch."""
    if header.producer_epoch != producer.epoch:
        return None
    wanted = (header.base_sequence, header.last_sequence)
    for batch in producer.batches:
        if wanted == (batch.first_sequence, batch.last_sequence):
            return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp)
    return None


def _check_sequence(producer: _Producer, header: BatchHeader) -> None:
    """Require the sequence after the last one; a new epoch begins at 0."""
    last = producer.last_sequence if header.producer_epoch == producer.epoch else NO_SEQUENCE
    expected = 0 if last == SEQUENCE_MAX else last + 1
    if producer.epoch != NO_PRODUCER_EPOCH and header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
            f"{header.base_sequence}, expected {expected}"
        )


def _restore(entry: ProducerEntry) -> _Producer:
    producer = _Producer(entry.producer_epoch)
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.timestamp = entry.timestamp
    if entry.txn_first_offset >= 0:
        producer.txn_first = entry.txn_first_offset
    if entry.last_offset >= 0:
        first_sequence = entry.last_sequence - entry.offset_delta
        if first_sequence < 0:
            first_sequence += SEQUENCE_MAX + 1
        producer.batches.append(
            _Batch(
                first_sequence,
                entry.last_sequence,
                Offset(entry.last_offset - entry.offset_delta),
                entry.last_offset,
                entry.timestamp,
            )
        )
    return producer
