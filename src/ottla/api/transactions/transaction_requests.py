"""The APIs of the transaction coordinator: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Up to version 3 AddPartitionsToTxn comes from clients, for one transaction; from version 4 on from
brokers, for several, to add partitions for clients of transaction version 2 or to verify that they
were added (KIP-890). An error of a transaction is reported on each of its partitions.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from ottla.api.cluster.metadata import INTERNAL_TOPICS
from ottla.api.surface.replies import ITEMS_PER_STEP, Steps, batched, collect, paced
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import ITEMS_MAX
from ottla.api.transactions.transaction_access import ALLOW_ALL, TransactionAccess
from ottla.coordinators.topics import CONSUMER_OFFSETS
from ottla.coordinators.transactions.service import TransactionCoordinator
from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    ClusterNotAuthorized,
    Fault,
    NotAuthorized,
    TransactionalIdNotAuthorized,
)
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition

BROKERS_SINCE: Final = 4
"""The first version of AddPartitionsToTxn that brokers send."""

_FENCED_SINCE: Final = 2
"""Below this version of any of these APIs, a fenced producer gets INVALID_PRODUCER_EPOCH."""

_EPOCH_BUMP_SINCE: Final = 5
"""The first version of EndTxn in which the client takes the next epoch from the reply."""


class TransactionHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker; ``offsets_partition`` maps a group to its partition."""

    coordinator: TransactionCoordinator
    image: Callable[[], Image]
    offsets_partition: Callable[[str], int]
    access: TransactionAccess = ALLOW_ALL

    # -- AddPartitionsToTxn ------------------------------------------------------------

    async def on_add_partitions(
        self, caller: Caller, request: AddPartitionsToTxnRequest, version: int
    ) -> AddPartitionsToTxnResponse:
        """Add partitions to one transaction, or from version 4 on to several."""
        if version < BROKERS_SINCE:
            one = AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
            results = await self._add(caller, one, version)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        if not self.access.cluster_action(caller):
            raise ClusterNotAuthorized(f"{caller.principal} is not a broker")
        found = await asyncio.gather(
            *(self._add(caller, each, version) for each in request.transactions)
        )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(each.transactional_id, results)
                for each, results in zip(request.transactions, found, strict=True)
            ]
        )

    async def _add(
        self, caller: Caller, wanted: AddPartitionsToTxnTransaction, version: int
    ) -> list[AddPartitionsToTxnTopicResult]:
        """Add all partitions or none to one transaction; return an error code for each."""
        named = (TopicPartition(t.name, index) for t in wanted.topics for index in t.partitions)
        places = await paced(collect(named))
        transactional_id = wanted.transactional_id
        is_client = version < BROKERS_SINCE
        if is_client and not self.access.write_transactional_id(caller, transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return await paced(_all_alike(wanted, code))
        if not transactional_id:
            return await paced(_all_alike(wanted, ErrorCode.INVALID_REQUEST))
        refused = await paced(self._refused(caller, places, is_client=is_client))
        if refused:
            codes = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
            return await paced(_by_topic(codes))
        if len(places) > ITEMS_MAX:  # the coordinator decides them in one turn
            return await paced(_all_alike(wanted, ErrorCode.INVALID_REQUEST))
        producer = Producer(wanted.producer_id, wanted.producer_epoch)
        try:
            if wanted.verify_only:
                verified = await self.coordinator.verify_partitions(
                    transactional_id, producer, places
                )
                return await paced(_by_topic(verified))
            code = await self.coordinator.add_partitions(
                transactional_id, producer, places, _client(caller, 0 if is_client else 2)
            )
        except Fault as fault:
            code = fault.code
        return await paced(_all_alike(wanted, _client_code(code, version)))

    def _refused(
        self, caller: Caller, places: Iterable[TopicPartition], *, is_client: bool
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        topics = self.image().topics
        refused: dict[TopicPartition, ErrorCode] = {}
        for count, place in enumerate(places, 1):
            if not count % ITEMS_PER_STEP:
                yield
            is_allowed = not is_client or (
                place.topic not in INTERNAL_TOPICS and self.access.write_topic(caller, place.topic)
            )
            found = topics.named(place.topic)
            if not is_allowed:
                refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif found is None or place.partition not in found.partitions:
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    # -- AddOffsetsToTxn, EndTxn ---------------------------------------------------------

    async def on_add_offsets(
        self, caller: Caller, request: AddOffsetsToTxnRequest, version: int
    ) -> AddOffsetsToTxnResponse:
        """Add the offsets of a group to the transaction."""
        self._check_write(caller, request.transactional_id)
        if not self.access.read_group(caller, request.group_id):
            raise NotAuthorized(f"{caller.principal} may not read group {request.group_id!r}")
        if not request.transactional_id:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        place = TopicPartition(CONSUMER_OFFSETS, self.offsets_partition(request.group_id))
        producer = Producer(request.producer_id, request.producer_epoch)
        code = await self.coordinator.add_partitions(
            request.transactional_id, producer, [place], _client(caller, 0)
        )
        return AddOffsetsToTxnResponse(error_code=_client_code(code, version))

    async def on_end(self, caller: Caller, request: EndTxnRequest, version: int) -> EndTxnResponse:
        """Commit or abort; answered once the decision is committed."""
        self._check_write(caller, request.transactional_id)
        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        client = _client(caller, 2 if version >= _EPOCH_BUMP_SINCE else 0)
        reply = await self.coordinator.end(request, client)
        reply.error_code = _client_code(ErrorCode(reply.error_code), version)
        return reply

    def _check_write(self, caller: Caller, transactional_id: str) -> None:
        if not self.access.write_transactional_id(caller, transactional_id):
            raise TransactionalIdNotAuthorized(
                f"{caller.principal} may not write as {transactional_id!r}"
            )


def _client(caller: Caller, version: int) -> Client:
    return Client(version, f"{caller.listener} {caller.peer.host} {caller.peer.port}")


def _client_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _all_alike(
    wanted: AddPartitionsToTxnTransaction, code: ErrorCode
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """Return the same error code for all, in the rows of the request, as in Kafka."""
    topics = (
        AddPartitionsToTxnTopicResult(
            topic.name,
            [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions],
        )
        for topic in wanted.topics
    )
    return (yield from collect(topics, lambda topic: 1 + len(topic.results_by_partition)))


def _by_topic(
    codes: Mapping[TopicPartition, ErrorCode],
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for group in batched(codes.items()):
        for place, code in group:
            result = AddPartitionsToTxnPartitionResult(place.partition, code)
            topics.setdefault(place.topic, []).append(result)
        yield
    rows = (AddPartitionsToTxnTopicResult(*topic) for topic in topics.items())
    return (yield from collect(rows))
