"""Admin requests for transactions: list, describe and abort them.

    list, describe      the state of the transaction coordinators
    open_in             the state of partition leaders: open transactions in a partition
    fence               abort the open transaction of a transactional id and fence its producer
    abort_in_partition  write an abort marker that no coordinator will write: see `hanging`

A transaction is hanging if it is open in a partition and no coordinator knows it: it would never
end, and read_committed consumers of the partition would make no progress.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ottla.client.cluster import Cluster, Refused
from ottla.client.coordinators import COORDINATOR_MOVED_OR_LOADING, CoordinatorType, ask_coordinator
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.types import NodeId, TopicPartition

_LOADS_MAX: Final = 8
_FENCE_TIMEOUT_MS: Final = 60_000
NOT_OPEN: Final = -1


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: NodeId


class OpenTransaction(msgspec.Struct, frozen=True):
    """An open transaction in a partition. ``last_timestamp`` is its last write, milliseconds."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


# -- coordinators ------------------------------------------------------------------------


async def list_transactions(
    cluster: Cluster, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
) -> list[TransactionListing]:
    """Return the transactional ids of all coordinators, by name. Raises `Refused`, NoBroker."""
    await cluster.metadata([])
    request = ListTransactionsRequest(list(states), list(producer_ids))
    found = await asyncio.gather(*(_listed_at(cluster, each, request) for each in cluster.nodes))
    rows = (each for listed in found for each in listed)
    return sorted(rows, key=lambda each: each.transactional_id)


async def _listed_at(
    cluster: Cluster, node_id: NodeId, request: ListTransactionsRequest
) -> list[TransactionListing]:
    for attempt in range(_LOADS_MAX):
        response = await cluster.send_to(node_id, request, ListTransactionsResponse)
        if response.error_code not in COORDINATOR_MOVED_OR_LOADING or attempt + 1 == _LOADS_MAX:
            break
        await cluster.pause(attempt)
    _check(response.error_code, f"broker {node_id}")
    return [
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
        for each in response.transaction_states
    ]


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionState:
    """Return the state of a transactional id at its coordinator. Raises `Refused`."""
    request = DescribeTransactionsRequest([transactional_id])

    async def ask(node_id: NodeId) -> TransactionState:
        response = await cluster.send_to(node_id, request, DescribeTransactionsResponse)
        (found,) = response.transaction_states
        _check(found.error_code, transactional_id)
        return found

    return await ask_coordinator(cluster, CoordinatorType.TRANSACTION, transactional_id, ask)


async def fence(cluster: Cluster, transactional_id: str) -> tuple[int, int]:
    """Fence the producer of a transactional id, which aborts its open transaction.

    Returns the new producer id and epoch. Raises `Refused`.
    """
    request = InitProducerIdRequest(transactional_id, _FENCE_TIMEOUT_MS)
    for attempt in range(_LOADS_MAX):
        try:
            return await _fence_once(cluster, transactional_id, request)
        except Refused as refused:
            is_ending = refused.code == ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_ending or attempt + 1 == _LOADS_MAX:
                raise
        await cluster.pause(attempt)
    raise AssertionError("the last attempt returns or raises")


async def _fence_once(
    cluster: Cluster, transactional_id: str, request: InitProducerIdRequest
) -> tuple[int, int]:
    async def ask(node_id: NodeId) -> tuple[int, int]:
        response = await cluster.send_to(node_id, request, InitProducerIdResponse)
        _check(response.error_code, transactional_id)
        return response.producer_id, response.producer_epoch

    return await ask_coordinator(cluster, CoordinatorType.TRANSACTION, transactional_id, ask)


# -- partitions --------------------------------------------------------------------------


async def open_in(
    cluster: Cluster, places: Iterable[TopicPartition]
) -> tuple[list[OpenTransaction], list[Refused]]:
    """Return the open transactions in partitions, and the errors of partitions that failed."""
    by_leader: dict[NodeId, dict[str, list[int]]] = {}
    for place in sorted(places):
        leader = await cluster.leader_of(place)
        by_leader.setdefault(leader.node_id, {}).setdefault(place.topic, []).append(place.partition)
    found: list[OpenTransaction] = []
    refused: list[Refused] = []
    for node_id, topics in by_leader.items():
        request = DescribeProducersRequest([TopicRequest(*each) for each in topics.items()])
        response = await cluster.send_to(node_id, request, DescribeProducersResponse)
        for topic in response.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if each.error_code != ErrorCode.NONE:
                    refused.append(Refused(each.error_code, str(place), each.error_message))
                found += [
                    _open(place, producer)
                    for producer in each.active_producers
                    if producer.current_txn_start_offset != NOT_OPEN
                ]
    return found, refused


def _open(place: TopicPartition, producer: ProducerState) -> OpenTransaction:
    return OpenTransaction(
        place,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


async def abort_in_partition(cluster: Cluster, open_: OpenTransaction) -> None:
    """Write an abort marker for an open transaction of a partition. Raises `Refused`."""
    topic = WritableTxnMarkerTopic(open_.place.topic, [open_.place.partition])
    marker = WritableTxnMarker(
        producer_id=open_.producer_id,
        producer_epoch=open_.producer_epoch,
        transaction_result=False,
        topics=[topic],
        # Without an earlier marker in this partition there is no coordinator epoch yet.
        coordinator_epoch=max(0, open_.coordinator_epoch),
    )
    leader = await cluster.leader_of(open_.place)
    request = WriteTxnMarkersRequest([marker])
    response = await cluster.send_to(leader.node_id, request, WriteTxnMarkersResponse)
    for result in response.markers:
        for each in result.topics:
            for row in each.partitions:
                _check(row.error_code, str(open_.place))


# -- hanging -----------------------------------------------------------------------------


def hanging(
    found: Iterable[OpenTransaction],
    known: Mapping[int, Collection[TopicPartition]],
    before: int,
) -> list[OpenTransaction]:
    """Return the hanging transactions. Pure.

    ``known`` maps each producer id that a coordinator knows to the partitions of its ongoing
    transaction. Transactions whose last write is before ``before`` have exceeded their timeout.
    """
    return [
        each
        for each in found
        if each.last_timestamp < before and each.place not in known.get(each.producer_id, ())
    ]


async def known_partitions(
    cluster: Cluster, producer_ids: Iterable[int]
) -> dict[int, frozenset[TopicPartition]]:
    """Return the partitions of the producers' transactions according to the coordinators."""
    ids = sorted(set(producer_ids))
    if not ids:
        return {}
    found: dict[int, frozenset[TopicPartition]] = {}
    for listed in await list_transactions(cluster, producer_ids=ids):
        try:
            state = await describe_transaction(cluster, listed.transactional_id)
        except Refused as refused:
            if refused.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        found[listed.producer_id] = frozenset(
            TopicPartition(topic.topic, number)
            for topic in state.topics
            for number in topic.partitions
        )
    return found


def _check(code: int, subject: str) -> None:
    if code != ErrorCode.NONE:
        raise Refused(code, subject)
