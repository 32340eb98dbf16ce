"""Asks the coordinator of a transaction whether a partition may be written to (KIP-890).

Clients of transaction version 2 do not add partitions themselves: the first write does. For older
ones the coordinator only says whether the partition was added, so that a late write cannot open a
transaction that nobody would ever end.

The answer is good for the moment: should a marker be written here while it is on its way, the
write would open a transaction behind its end. Such partitions are refused. What is verified must
be appended before the event loop goes on, as is the case for whoever awaits `verify` directly.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ottla.api.produce_transaction import InTransaction
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
from ottla.storage.producer_state import ProducerState

ADDED_BY_BROKERS: Final = Client(version=2)
"""Clients whose partitions are added by brokers are of this transaction version."""

RETRY_MS_FIRST: Final = 1
"""The first pause: most often the markers are all but written, and a full one would be the cost
of every transaction. Each pause is twice the one before."""


class VerificationSettings(msgspec.Struct, frozen=True):
    """While markers are being written nothing can be added; that is waited for, briefly."""

    node_id: int
    is_enabled: Callable[[], bool] = lambda: True
    retry_ms: int = 20
    retry_ms_max: int = 100


class Verification(msgspec.Struct, frozen=True):
    """The way to coordinators, here or elsewhere."""

    settings: VerificationSettings
    coordinator: TransactionCoordinator
    links: BrokerLinks
    partitions: Partitions
    image: Callable[[], Image]

    async def verify(self, wanted: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        """Return what is wrong, by partition; nothing for those that may be appended to."""
        if not (wanted.may_add or self.settings.is_enabled()):
            return {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.retry_ms_max / 1000
        pause_ms = RETRY_MS_FIRST
        while True:
            wrong = await self._try(wanted)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in wrong.values()
            if not (is_busy and wanted.may_add) or loop.time() >= deadline:
                return wrong
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self.settings.retry_ms)

    async def _try(self, wanted: InTransaction) -> dict[TopicPartition, ErrorCode]:
        """Ask once. Markers count from here: those of the transaction before may just have come."""
        guards = {place: self._guard(place, wanted) for place in wanted.partitions}
        codes = await self._ask(wanted)
        wrong: dict[TopicPartition, ErrorCode] = {
            place: code for place, code in codes.items() if code is not ErrorCode.NONE
        }
        for place, guard in guards.items():
            if place not in wrong and self._guard(place, wanted) != guard:
                wrong[place] = ErrorCode.INVALID_TXN_STATE
        return wrong

    def _guard(
        self, place: TopicPartition, wanted: InTransaction
    ) -> tuple[ProducerState, int] | None:
        """Return what changes when a marker of the producer is written to the partition."""
        found = self.partitions.get(*place)
        if found is None:
            return None
        producers = found.log.producers
        return producers, producers.markers_of(wanted.producer_id)

    async def _ask(self, wanted: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        topic = self.image().topics.named(TRANSACTION_STATE)
        if topic is None:
            return dict.fromkeys(wanted.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[self.coordinator.runtime.index_of(wanted.transactional_id)].leader
        if leader == self.settings.node_id:
            codes = await self._ask_here(wanted)
        elif leader < 0:
            codes = dict.fromkeys(wanted.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            codes = await self._ask_there(leader, wanted)
        return {place: _for_producer(code) for place, code in codes.items()}

    async def _ask_here(self, wanted: InTransaction) -> dict[TopicPartition, ErrorCode]:
        producer = Producer(wanted.producer_id, wanted.producer_epoch)
        places = wanted.partitions
        try:
            if not wanted.may_add:
                return await self.coordinator.verify_partitions(
                    wanted.transactional_id, producer, places
                )
            code = await self.coordinator.add_partitions(
                wanted.transactional_id, producer, places, ADDED_BY_BROKERS
            )
        except Fault as fault:
            code = fault.code
        return dict.fromkeys(places, code)

    async def _ask_there(
        self, broker: int, wanted: InTransaction
    ) -> dict[TopicPartition, ErrorCode]:
        missing = dict.fromkeys(wanted.partitions, ErrorCode.NETWORK_EXCEPTION)
        try:
            response = await self.links.ask(broker, _request(wanted))
        except UNREACHABLE:
            return missing
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code != ErrorCode.NONE:
            return dict.fromkeys(wanted.partitions, ErrorCode(response.error_code))
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    place = TopicPartition(topic.name, each.partition_index)
                    missing[place] = ErrorCode(each.partition_error_code)
        return missing


def _request(wanted: InTransaction) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in wanted.partitions:
        topics.setdefault(topic, []).append(index)
    transaction = AddPartitionsToTxnTransaction(
        wanted.transactional_id,
        wanted.producer_id,
        wanted.producer_epoch,
        not wanted.may_add,
        [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _for_producer(code: ErrorCode) -> ErrorCode:
    """Return what a producer makes sense of: PRODUCER_FENCED is for those who ask coordinators."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
