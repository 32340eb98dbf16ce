"""TxnOffsetCommit: offsets committed together with the records of a transaction.

The group's coordinator writes them to ``__consumer_offsets`` as a part of the transaction, which
must be open and have that partition in it: it is verified as a write to any partition is. Commits
of one producer for one group are written in arrival order, also where the first has to wait for
its verification: the newest offset must be the one that stays.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from ottla.api.produce.append_order import AppendOrder, Ticket, wait_first
from ottla.api.produce.transaction import InTransaction
from ottla.api.surface.replies import Reply, Work
from ottla.api.surface.routes import Caller
from ottla.api.transactions.transaction_access import ALLOW_ALL, TransactionAccess
from ottla.coordinators.groups.requests import decide_txn_offset_commit, txn_commit_refused
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.topics import CONSUMER_OFFSETS
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.types import TopicPartition
from ottla.replication.hosted_partitions import Partitions
from ottla.runtime.pending import Pending, completed

_ADDING_SINCE: Final = 5
"""From this version on the commit itself adds the partition to the transaction (KIP-890)."""

_IDS_SINCE: Final = 6
"""From this version on a topic is named by its id (KIP-1319)."""

_ABORTABLE_SINCE: Final = 4
"""From this version on a client knows TRANSACTION_ABORTABLE."""

_LOADING_SINCE: Final = 2
"""Older clients may not handle COORDINATOR_LOAD_IN_PROGRESS."""

# Errors of the transaction's coordinator that are transient.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Verifier(Protocol):
    """Verifies partitions with the coordinator of a transaction."""

    async def verify(self, transaction: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        """Return the errors by partition."""
        ...


class TxnOffsetHandler(msgspec.Struct, frozen=True):
    """Serves TxnOffsetCommit."""

    groups: GroupCoordinator
    verifier: Verifier
    partitions: Partitions
    image: Callable[[], Image]
    access: TransactionAccess = ALLOW_ALL
    order: AppendOrder = msgspec.field(default_factory=AppendOrder)

    def on_commit(self, caller: Caller, request: TxnOffsetCommitRequest, version: int) -> Reply:
        """Commit the offsets of existing topics; each partition has its own error code."""
        denied = self._denied(caller, request)
        if denied is not ErrorCode.NONE:
            return txn_commit_refused(request, denied)
        refused = self._sort(caller, request, version)
        if not request.topics:
            return TxnOffsetCommitResponse(topics=refused)
        ticket = self.order.enter([(request.group_id, request.producer_id)])
        return Work(self._commit_in_turn(ticket, request, version, refused))

    async def _commit_in_turn(
        self,
        ticket: Ticket,
        request: TxnOffsetCommitRequest,
        version: int,
        refused: list[TxnOffsetCommitResponseTopic],
    ) -> TxnOffsetCommitResponse:
        try:
            try:
                if not ticket.is_first:
                    await wait_first(ticket)
                written = await self._write(request, version)
            finally:
                self.order.leave(ticket)
            # Written in order; several may wait for their commit at the same time.
            reply = await written
        except Fault as fault:
            reply = txn_commit_refused(request, _client_code(fault.code, version))
        return TxnOffsetCommitResponse(topics=_merged(refused, reply.topics))

    def _denied(self, caller: Caller, request: TxnOffsetCommitRequest) -> ErrorCode:
        if not self.access.write_transactional_id(caller, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not self.access.read_group(caller, request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if request.producer_id < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE

    def _sort(
        self, caller: Caller, request: TxnOffsetCommitRequest, version: int
    ) -> list[TxnOffsetCommitResponseTopic]:
        """Reduce the request to what can be committed; return the results of the rest."""
        topics = self.image().topics
        taken: list[TxnOffsetCommitRequestTopic] = []
        refused: list[TxnOffsetCommitResponseTopic] = []
        for topic in request.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if version >= _IDS_SINCE:
                found = topics.by_id.get(topic.topic_id)
                topic.name = "" if found is None else found.name
                code = ErrorCode.UNKNOWN_TOPIC_ID if found is None else code
            else:
                found = topics.named(topic.name)
            known = () if found is None else found.partitions
            if topic.name and not self.access.read_topic(caller, topic.name):
                known, code = (), ErrorCode.TOPIC_AUTHORIZATION_FAILED
            there = [each for each in topic.partitions if each.partition_index in known]
            answers = [
                TxnOffsetCommitResponsePartition(each.partition_index, code)
                for each in topic.partitions
                if each.partition_index not in known
            ]
            if there:
                taken.append(TxnOffsetCommitRequestTopic(topic.name, topic.topic_id, there))
            if answers:
                refused.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
        request.topics = taken
        return refused

    async def _write(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> Pending[TxnOffsetCommitResponse]:
        """Verify and write without an await in between; return the reply, which may come later."""
        place = TopicPartition(CONSUMER_OFFSETS, self.groups.runtime.index_of(request.group_id))
        self.groups.runtime.shard(place.partition).check_active()
        found = self.partitions.get(*place)
        producer = (request.producer_id, request.producer_epoch)
        if found is None or not found.log.producers.has_open_transaction(*producer):
            if not request.transactional_id:
                return completed(txn_commit_refused(request, ErrorCode.INVALID_REQUEST))
            transaction = InTransaction(
                request.transactional_id, *producer, (place,), version >= _ADDING_SINCE
            )
            code = (await self.verifier.verify(transaction)).get(place, ErrorCode.NONE)
            if code is not ErrorCode.NONE:
                return completed(txn_commit_refused(request, _unverified(code, version)))
            if request.producer_epoch < 0:  # not verified: no batch can have such an epoch
                refused = txn_commit_refused(request, ErrorCode.INVALID_PRODUCER_EPOCH)
                return completed(refused)
        return self.groups.runtime.write(
            request.group_id,
            lambda machine, now: decide_txn_offset_commit(machine, request, version, now),
        )


def _unverified(code: ErrorCode, version: int) -> ErrorCode:
    """Return the group coordinator's error for a transaction that could not be verified."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code in _TRY_AGAIN:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.NETWORK_EXCEPTION:
        return _client_code(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
    return _client_code(code, version)


def _client_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _merged(
    refused: list[TxnOffsetCommitResponseTopic], answered: list[TxnOffsetCommitResponseTopic]
) -> list[TxnOffsetCommitResponseTopic]:
    if not refused:
        return answered  # as in Kafka: a topic named twice is answered twice
    topics = {(each.name, each.topic_id): each for each in refused}
    for topic in answered:
        merged = topics.setdefault((topic.name, topic.topic_id), topic)
        if merged is not topic:
            merged.partitions.extend(topic.partitions)
    return list(topics.values())
