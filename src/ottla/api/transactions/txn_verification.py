"""Verifies with a transaction's coordinator that a partition may be written to (KIP-890).

Clients of transaction version 2 do not add partitions themselves: their first write does. For older
clients the coordinator only checks that the partition was added, so that a late write cannot open a
transaction that would never end.

The result is valid for this moment only: if a marker is written here while the reply is on its way,
the write could open a transaction after its end. Such partitions are rejected. Verified records
must be appended without another await, as a caller that awaits `verify` directly does.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ottla.api.produce.transaction import InTransaction
from ottla.coordinators.broker_links import UNREACHABLE, BrokerLinks
from ottla.coordinators.topics import TRANSACTION_STATE
from ottla.coordinators.transactions.service import TransactionCoordinator
from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition
from ottla.replication.hosted_partitions import Partitions
from ottla.storage.log.producer_state import ProducerState

ADDED_BY_BROKERS: Final = Client(version=2)
"""The transaction version of clients whose partitions are added by brokers."""

RETRY_MS_FIRST: Final = 1
"""The first backoff: most often the markers are nearly written, and a full backoff would delay
every transaction. Each backoff is twice the previous one."""


class VerificationSettings(msgspec.Struct, frozen=True):
    """How long to wait while markers are being written, during which no partition can be added."""

    node_id: int
    is_enabled: Callable[[], bool] = lambda: True
    retry_ms: int = 20
    retry_ms_max: int = 100


class Verification(msgspec.Struct, frozen=True):
    """Verifies with coordinators on this broker and on others."""

    settings: VerificationSettings
    coordinator: TransactionCoordinator
    links: BrokerLinks
    partitions: Partitions
    image: Callable[[], Image]

    async def verify(self, transaction: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        """Return the errors by partition; partitions that may be appended to are left out."""
        if not (transaction.may_add or self.settings.is_enabled()):
            return {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.retry_ms_max / 1000
        pause_ms = RETRY_MS_FIRST
        while True:
            wrong = await self._try(transaction)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in wrong.values()
            if not (is_busy and transaction.may_add) or loop.time() >= deadline:
                return wrong
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self.settings.retry_ms)

    async def _try(self, transaction: InTransaction) -> dict[TopicPartition, ErrorCode]:
        """Ask once. Markers written before now ended earlier transactions and do not count."""
        guards = {place: self._guard(place, transaction) for place in transaction.partitions}
        codes = await self._ask(transaction)
        wrong: dict[TopicPartition, ErrorCode] = {
            place: code for place, code in codes.items() if code is not ErrorCode.NONE
        }
        for place, guard in guards.items():
            is_changed = place not in wrong and self._guard(place, transaction) != guard
            if is_changed and self._is_ended(place, transaction):
                wrong[place] = ErrorCode.INVALID_TXN_STATE
        return wrong

    def _is_ended(self, place: TopicPartition, transaction: InTransaction) -> bool:
        """Return whether a marker written meanwhile may have ended this transaction.

        From transaction version 2 on, the marker that ends it has a higher epoch. Another one ended
        the transaction before; the coordinator was asked before, and answered after, it was
        written everywhere.
        """
        found = self.partitions.get(*place)
        if not transaction.may_add or found is None:
            return True
        return found.log.producers.epoch_of(transaction.producer_id) > transaction.producer_epoch

    def _guard(
        self, place: TopicPartition, transaction: InTransaction
    ) -> tuple[ProducerState, int] | None:
        """Return a value that changes when a marker of the producer is written to the partition."""
        found = self.partitions.get(*place)
        if found is None:
            return None
        producers = found.log.producers
        return producers, producers.markers_of(transaction.producer_id)

    async def _ask(self, transaction: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        topic = self.image().topics.named(TRANSACTION_STATE)
        if topic is None:
            return dict.fromkeys(transaction.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[
            self.coordinator.runtime.index_of(transaction.transactional_id)
        ].leader
        if leader == self.settings.node_id:
            codes = await self._ask_here(transaction)
        elif leader < 0:
            codes = dict.fromkeys(transaction.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            codes = await self._ask_there(leader, transaction)
        return {place: _for_producer(code) for place, code in codes.items()}

    async def _ask_here(self, transaction: InTransaction) -> dict[TopicPartition, ErrorCode]:
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        places = transaction.partitions
        try:
            if not transaction.may_add:
                return await self.coordinator.verify_partitions(
                    transaction.transactional_id, producer, places
                )
            code = await self.coordinator.add_partitions(
                transaction.transactional_id, producer, places, ADDED_BY_BROKERS
            )
        except Fault as fault:
            code = fault.code
        return dict.fromkeys(places, code)

    async def _ask_there(
        self, broker: int, transaction: InTransaction
    ) -> dict[TopicPartition, ErrorCode]:
        missing = dict.fromkeys(transaction.partitions, ErrorCode.NETWORK_EXCEPTION)
        try:
            response = await self.links.ask(broker, _request(transaction))
        except UNREACHABLE:
            return missing
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code != ErrorCode.NONE:
            return dict.fromkeys(transaction.partitions, ErrorCode(response.error_code))
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    place = TopicPartition(topic.name, each.partition_index)
                    missing[place] = ErrorCode(each.partition_error_code)
        return missing


def _request(transaction: InTransaction) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        topics.setdefault(topic, []).append(index)
    added = AddPartitionsToTxnTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        not transaction.may_add,
        [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
    )
    return AddPartitionsToTxnRequest(transactions=[added])


def _for_producer(code: ErrorCode) -> ErrorCode:
    """Return the error for a producer: PRODUCER_FENCED is for requests to coordinators."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
