"""The state machine of one shard: all transactional ids of one partition of its topic. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from immutables import Map

from ottla.coordinators.decision import (
    Answer,
    Decision,
    Origin,
    ReplyFuture,
    SetTimer,
    TimerKey,
)
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.stale_end_txn import StaleEndTxnDetector
from ottla.coordinators.transactions.timeouts import TransactionTimeouts
from ottla.coordinators.transactions.transaction import (
    EXPIRABLE,
    PREPARED,
    Transaction,
    tombstone,
    transaction_of,
)
from ottla.protocol.faults import Fault
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Millis, Offset, ProducerEpoch, ProducerId
from ottla.runtime.trusted_time import Times

TIMEOUTS: Final[TimerKey] = ("timeouts",)
EXPIRATION: Final[TimerKey] = ("expiration",)


class TransactionsView(NamedTuple):
    """The committed state, for readers and the sender of markers: by transactional id."""

    transactions: Map[str, Transaction]
    prepared: Map[str, Transaction]


class Initialised(NamedTuple):
    """The last time a producer that sent its epoch got the next one (KIP-360)."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    before: tuple[int, int]


class Nobody:
    """A future that no request waits for."""

    def answer(self, reply: object) -> None:
        """Do nothing."""

    def fail(self, fault: Fault) -> None:
        """Do nothing."""


class TransactionMachine:
    """The ids of one shard. ``on_prepared`` is answered whenever markers are due.

    It is answered when the decision is committed, never before: a marker cannot be undone.
    ``initialised`` is not in the log: a producer whose reply was lost together with its coordinator
    initializes again, as in Kafka. Neither is ``stale_end_txn``, which all shards of a broker
    share.
    """

    def __init__(
        self,
        settings: TransactionSettings | None = None,
        on_prepared: ReplyFuture | None = None,
        stale_end_txn: StaleEndTxnDetector | None = None,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.transactions: Map[str, Transaction] = Map()
        self.prepared: Map[str, Transaction] = Map()
        self.initialised: dict[str, Initialised] = {}
        self._timeouts = TransactionTimeouts()
        self.stale_end_txn = stale_end_txn or StaleEndTxnDetector()
        self._on_prepared: ReplyFuture = on_prepared or Nobody()

    # -- the log -----------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Replay a record of the log: the newest record of an id is its state."""
        key = record.key
        if not isinstance(key, TransactionLogKey):
            return
        transactional_id = key.transactional_id
        value = None if record.value is None else record.value.message
        if not isinstance(value, TransactionLogValue):
            self._forget(transactional_id)
            return
        found = transaction_of(transactional_id, value)
        self.transactions = self.transactions.set(transactional_id, found)
        if found.status in PREPARED:
            self.prepared = self.prepared.set(transactional_id, found)
        elif transactional_id in self.prepared:
            self.prepared = self.prepared.delete(transactional_id)

    def _forget(self, transactional_id: str) -> None:
        self.initialised.pop(transactional_id, None)
        self.stale_end_txn.forget(transactional_id)
        if transactional_id in self.transactions:
            self.transactions = self.transactions.delete(transactional_id)
        if transactional_id in self.prepared:
            self.prepared = self.prepared.delete(transactional_id)

    def on_marker(self, producer: Producer, marker: EndTxnMarker, offset: Offset) -> None:
        """Do nothing: this topic is not part of any transaction."""

    def view(self) -> TransactionsView:
        """Return the current state for readers."""
        return TransactionsView(self.transactions, self.prepared)

    # -- decisions ---------------------------------------------------------------

    def write(self, changed: Transaction, reply: object) -> Decision:
        """Return the decision to write a new state and to reply when it is committed."""
        is_due = changed.status in PREPARED
        return Decision(
            [changed.record(self.settings.server_version())],
            reply,
            answers=[self.markers_due()] if is_due else (),
        )

    def markers_due(self) -> Answer:
        """Return an answer that wakes the sender of markers once everything so far is committed."""
        return Answer(self._on_prepared, None)

    # -- time ----------------------------------------------------------------------

    def on_loaded(self, now: Millis) -> Decision:
        """Continue what an earlier coordinator has decided, and start the timers."""
        settings = self.settings
        return Decision(
            answers=[self.markers_due()] if self.prepared else (),
            timers=[
                SetTimer(TIMEOUTS, settings.abort_interval_ms),
                SetTimer(EXPIRATION, settings.expire_interval_ms),
            ],
        )

    def on_timer(self, key: TimerKey, times: Times) -> Decision:
        """Abort transactions past their timeout, or remove unused ids."""
        if key == TIMEOUTS:
            return self._abort_late(times)
        return self._expire(times.expiry)

    def _abort_late(self, times: Times) -> Decision:
        """Fence producers whose transaction has timed out. Each record is independent."""
        version = self.settings.server_version()
        records = [
            self.transactions[transactional_id].fenced(version, times.stamp).record(version)
            for transactional_id in self._timeouts.late(self.transactions.values(), times)
        ]
        again = SetTimer(TIMEOUTS, self.settings.abort_interval_ms)
        return Decision(
            records,
            # Also for those whose sender may have missed that they were committed.
            answers=[self.markers_due()] if records or self.prepared else (),
            timers=[again],
            may_split=True,
            refused=lambda fault: Decision(timers=[again]),
        )

    def _expire(self, now: Millis) -> Decision:
        oldest = now - self.settings.expiration_ms
        records = [
            tombstone(transactional_id)
            for transactional_id, each in self.transactions.items()
            if each.status in EXPIRABLE and each.updated_at <= oldest
        ]
        again = SetTimer(EXPIRATION, self.settings.expire_interval_ms)
        return Decision(
            records,
            timers=[again],
            may_split=True,
            refused=lambda fault: Decision(timers=[again]),
        )

    def on_unloaded(self) -> Sequence[ReplyFuture]:
        """Stop; no request waits here."""
        return ()
