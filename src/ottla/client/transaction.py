"""A transactional producer: records and committed offsets that take effect together (KIP-98).

    writer = TransactionalWriter(cluster, "redrive-1")
    await writer.open()
    await writer.write({partition: records})
    await writer.commit_offsets("group", {partition: (offset, "")})
    await writer.commit()

One transaction at a time. After any exception the transaction's fate is unknown: `open` ends it,
and the committed offsets then say whether it took effect. A caller that gives up calls `abort`, so
that readers do not wait until the transaction times out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.client.cluster import ATTEMPTS_MAX, Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId, Offset, TopicPartition

BATCH_BYTES_MAX: Final = 512 * 1024
"""About how large a batch gets: half of the default of ``message.max.bytes``."""

_RECORD_BYTES: Final = 32
"""About how much a record takes besides its key, value and headers; a header takes less."""

_ALL: Final = -1
_CLIENT_FORM: Final = 3
"""The newest version of AddPartitionsToTxn for clients; later ones are for brokers."""


class TransactionalWriter:
    """Writes transactions under one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._is_begun = False

    async def open(self) -> None:
        """Get a producer id; an earlier transaction of this id is ended first. Raises `Refused`."""
        request = InitProducerIdRequest(self._transactional_id, self._timeout_ms)
        reply = await self._ask(request, InitProducerIdResponse)
        self._begin(reply.producer_id, reply.producer_epoch)

    def _begin(self, producer_id: int, epoch: int) -> None:
        self._id, self._epoch = producer_id, epoch
        self._sequences.clear()
        self._is_begun = False

    async def write(self, records: Mapping[TopicPartition, Sequence[Record]]) -> None:
        """Write records in batches of about `BATCH_BYTES_MAX`. Raises `Refused`."""
        topics: dict[str, list[int]] = {}
        for partition in records:
            topics.setdefault(partition.topic, []).append(partition.partition)
        rows = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()]
        added = AddPartitionsToTxnRequest(self._transactional_id, self._id, self._epoch, rows)
        self._is_begun = True
        await self._ask(added, AddPartitionsToTxnResponse, version=_CLIENT_FORM)
        for partition, theirs in records.items():
            for batch in _batches(theirs):
                await self._produce(partition, batch)

    async def _produce(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        topic_id = (await self._cluster.topic(partition.topic)).topic_id
        sequence = self._sequences.get(partition, 0)
        producer = Producer(self._id, self._epoch, sequence)
        batch = bytes(build_batch(records, producer=producer, is_transactional=True))
        data = PartitionProduceData(partition.partition, batch)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ALL,
            timeout_ms=self._cluster.options.timeout_ms,
            topic_data=[TopicProduceData(partition.topic, topic_id, [data])],
        )
        leader = await self._cluster.leader_of(partition)
        try:
            reply = await self._cluster.send_to(leader.node_id, request, ProduceResponse)
        except (NoBroker, ConnectionLost, RequestTimedOut):
            self._cluster.forget(partition.topic)  # another broker may lead it by now
            raise
        (answer,) = reply.responses[0].partition_responses
        if answer.error_code:
            self._cluster.forget(partition.topic)
            raise Refused(answer.error_code, str(partition), answer.error_message)
        self._sequences[partition] = sequence + len(records)

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, tuple[Offset, str]]
    ) -> None:
        """Make the offsets of a group, with their metadata, a part of the transaction.

        Raises `Refused`.
        """
        added = AddOffsetsToTxnRequest(self._transactional_id, self._id, self._epoch, group_id)
        self._is_begun = True
        await self._ask(added, AddOffsetsToTxnResponse)
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, (offset, metadata) in offsets.items():
            topic_id = (await self._cluster.topic(partition.topic)).topic_id
            topic = topics.setdefault(
                partition.topic, TxnOffsetCommitRequestTopic(partition.topic, topic_id)
            )
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition.partition, offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            self._transactional_id, group_id, self._id, self._epoch, topics=list(topics.values())
        )

        async def ask(node_id: NodeId) -> None:
            reply = await self._cluster.send_to(node_id, request, TxnOffsetCommitResponse)
            for row in reply.topics:
                for each in row.partitions:
                    _check(each.error_code, group_id)

        await ask_coordinator(self._cluster, CoordinatorType.GROUP, group_id, ask)

    async def commit(self) -> None:
        """Commit the transaction. Raises `Refused`: it was not committed."""
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Abort the transaction, if there is one. Raises `Refused`: it could not be aborted."""
        if self._is_begun:
            await self._end(is_commit=False)

    async def _end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(self._transactional_id, self._id, self._epoch, committed=is_commit)
        reply = await self._ask(request, EndTxnResponse)
        self._is_begun = False
        if reply.producer_id >= 0:  # the next transaction has an epoch of its own (KIP-890)
            self._begin(reply.producer_id, reply.producer_epoch)

    async def _ask(
        self, request: Message, reply_class: type, *, version: int | None = None
    ) -> "InitProducerIdResponse | EndTxnResponse":
        """Ask the coordinator; retry while an earlier transaction is still ending."""

        async def ask(node_id: NodeId) -> Message:
            connection = await self._cluster.connection(node_id)
            timeout_ms = self._cluster.options.timeout_ms
            reply = await connection.send(request, timeout_ms=timeout_ms, version=version)
            assert isinstance(reply, reply_class)
            for code in _codes(reply):
                _check(code, self._transactional_id)
            return reply

        kind = CoordinatorType.TRANSACTION
        for attempt in range(ATTEMPTS_MAX):
            try:
                found = await ask_coordinator(self._cluster, kind, self._transactional_id, ask)
            except Refused as refused:
                is_ending = refused.code == ErrorCode.CONCURRENT_TRANSACTIONS
                if not is_ending or attempt + 1 == ATTEMPTS_MAX:
                    raise
                await self._cluster.pause(attempt)
            else:
                return found  # type: ignore[return-value]
        raise AssertionError("the last attempt returns or raises")


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Yield the records in pieces of at most `BATCH_BYTES_MAX`; a larger one has its own."""
    batch: list[Record] = []
    size = 0
    for record in records:
        taken = _size(record)
        if batch and size + taken > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record._replace(offset=Offset(len(batch))))
        size += taken
    if batch:
        yield batch


def _size(record: Record) -> int:
    headers = sum(_RECORD_BYTES + len(h.key) + len(h.value or b"") for h in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _codes(reply: Message) -> list[int]:
    if isinstance(reply, AddPartitionsToTxnResponse):
        rows = reply.results_by_topic_v3_and_below
        return [each.partition_error_code for row in rows for each in row.results_by_partition]
    code: int = getattr(reply, "error_code", 0)
    return [code]


def _check(code: int, subject: str) -> None:
    if code:
        raise Refused(code, subject)
