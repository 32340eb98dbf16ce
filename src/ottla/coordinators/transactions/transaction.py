"""One transactional id: its producer, and its current transaction. Pure.

    EMPTY --add--> ONGOING --end--> PREPARE_COMMIT --markers--> COMPLETE_COMMIT
                      |   \\-end, fence, timeout--> PREPARE_ABORT --markers--> COMPLETE_ABORT
                      ^                                                         |
                      +----------------------add (next transaction)------------+

Once a prepare record is committed the outcome is final; only the markers remain to be written, by
this coordinator or the next. Until they are, the id cannot begin another transaction.

Transaction version 2 (KIP-890): the end of a transaction raises the producer's epoch, so that
nothing sent in one transaction can become part of another. Its markers carry the raised epoch.
Before that, transactions of one producer share an epoch.

Invariants: the epoch of a producer id never decreases; the epoch 32767 is never given to a client,
so that every client can be fenced; a prepared transaction keeps its partitions until it is
complete.
"""

import enum
from typing import Final

import msgspec
from msgspec.structs import replace

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.protocol.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

EPOCH_MAX: Final = 2**15 - 1
EPOCH_BUMPING_VERSION: Final = 2
"""From this transaction version on the epoch rises with each transaction."""

FLEXIBLE_VERSION: Final = 1
"""From this transaction version on records have tagged fields for later additions."""


class Status(enum.Enum):
    """The state of a transactional id: Kafka's number in the log, and its name for operators."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")

    @property
    def number(self) -> int:
        """Its number in the log."""
        return self.value[0]

    @property
    def title(self) -> str:
        """Its name for operators."""
        return self.value[1]


_BY_NUMBER: Final = {each.number: each for each in Status}
BY_TITLE: Final = {each.title: each for each in Status}
PREPARED: Final = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
COMPLETE: Final = frozenset({Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})
EXPIRABLE: Final = frozenset({Status.EMPTY, *COMPLETE})


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one transactional id, from its newest record. Times are wall time.

    ``producer_epoch`` is -1 only before the first record. ``next_producer_id`` takes over when the
    markers are written, because the epochs of the current one are exhausted. ``version`` is the
    transaction version of the last change.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_at: Millis = NO_TIMESTAMP
    updated_at: Millis = NO_TIMESTAMP
    version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a client."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def bumps_epoch(self) -> bool:
        """Whether the last change was made by a client of transaction version 2."""
        return self.version >= EPOCH_BUMPING_VERSION

    @property
    def is_commit(self) -> bool:
        """Whether a prepared transaction commits."""
        return self.status is Status.PREPARE_COMMIT

    # -- changes ---------------------------------------------------------------

    def with_next_epoch(self, timeout_ms: int, now: Millis) -> "Transaction":
        """Give the producer its next epoch; no transaction is open."""
        assert not self.is_exhausted
        return replace(
            self._without_transaction(timeout_ms, now),
            producer_epoch=ProducerEpoch(self.producer_epoch + 1),
            previous_producer_id=self.producer_id,
        )

    def with_producer_id(self, fresh: ProducerId, timeout_ms: int, now: Millis) -> "Transaction":
        """Continue with another producer id: the epochs of this one are exhausted."""
        return replace(
            self._without_transaction(timeout_ms, now),
            producer_id=fresh,
            producer_epoch=ProducerEpoch(0),
            previous_producer_id=self.producer_id,
        )

    def initialised_again(self, timeout_ms: int, now: Millis) -> "Transaction":
        """Repeat an initialization whose reply was lost: the epoch stays."""
        return self._without_transaction(timeout_ms, now)

    def _without_transaction(self, timeout_ms: int, now: Millis) -> "Transaction":
        return replace(
            self,
            timeout_ms=timeout_ms,
            status=Status.EMPTY,
            partitions=frozenset(),
            started_at=NO_TIMESTAMP,
            updated_at=now,
            next_producer_id=NO_PRODUCER_ID,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], version: int, now: Millis
    ) -> "Transaction":
        """Add partitions; the first ones begin a transaction."""
        assert self.status is Status.ONGOING or self.status in EXPIRABLE
        is_first = self.status is not Status.ONGOING
        return replace(
            self,
            status=Status.ONGOING,
            partitions=added if is_first else self.partitions | added,
            started_at=now if is_first else self.started_at,
            updated_at=now,
            next_producer_id=NO_PRODUCER_ID,
            version=version,
        )

    def prepared(
        self, *, commit: bool, version: int, next_producer_id: ProducerId, now: Millis
    ) -> "Transaction":
        """End the transaction as the client asks. Version 2 raises the epoch."""
        bump = 1 if version >= EPOCH_BUMPING_VERSION else 0
        is_open = self.status is Status.ONGOING
        return replace(
            self,
            status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
            producer_epoch=ProducerEpoch(self.producer_epoch + bump),
            next_producer_id=next_producer_id,
            # A client of version 2 may abort a transaction that never began, to get its next epoch.
            started_at=self.started_at if is_open else now,
            partitions=self.partitions if is_open else frozenset(),
            updated_at=now,
            version=version,
        )

    def fenced(self, version: int, now: Millis) -> "Transaction":
        """Abort and fence the client by the raised epoch."""
        assert self.status is Status.ONGOING
        assert self.producer_epoch < EPOCH_MAX, "no client has the last epoch"
        return replace(
            self,
            status=Status.PREPARE_ABORT,
            producer_epoch=ProducerEpoch(self.producer_epoch + 1),
            next_producer_id=NO_PRODUCER_ID,
            updated_at=now,
            version=version,
        )

    def completed(self, now: Millis) -> "Transaction":
        """Note that all markers are written and committed."""
        assert self.status in PREPARED
        status = Status.COMPLETE_COMMIT if self.is_commit else Status.COMPLETE_ABORT
        done = replace(
            self,
            status=status,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
            previous_producer_id=self.producer_id,
            updated_at=now,
        )
        if not self.bumps_epoch or self.next_producer_id == NO_PRODUCER_ID:
            return done
        fresh = self.next_producer_id
        return replace(done, producer_id=fresh, producer_epoch=ProducerEpoch(0))

    # -- the log -----------------------------------------------------------------

    def record(self, server_version: int) -> CoordinatorRecord:
        """Return the record of this state, as a cluster of that version writes it."""
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            topics.setdefault(topic, []).append(index)
        listed = [PartitionsSchema(topic, indexes) for topic, indexes in topics.items()]
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.status.number,
            transaction_partitions=None if self.status is Status.EMPTY else listed,
            transaction_last_update_timestamp_ms=self.updated_at,
            transaction_start_timestamp_ms=self.started_at,
            client_transaction_version=self.version,
        )
        version = 1 if server_version >= FLEXIBLE_VERSION else 0
        return CoordinatorRecord(
            TransactionLogKey(self.transactional_id), Versioned(value, version)
        )


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the tombstone of an id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id), None)


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """Return the state in a record.

    Raises:
        ProtocolFault: a status that no version of Kafka writes.
    """
    status = _BY_NUMBER.get(value.transaction_status)
    if status is None or status in (Status.DEAD, Status.PREPARE_EPOCH_FENCE):
        raise ProtocolFault(f"{transactional_id!r}: status {value.transaction_status}")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=ProducerId(value.producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        timeout_ms=value.transaction_timeout_ms,
        status=status,
        partitions=frozenset(
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        ),
        started_at=Millis(value.transaction_start_timestamp_ms),
        updated_at=Millis(value.transaction_last_update_timestamp_ms),
        version=value.client_transaction_version,
    )
