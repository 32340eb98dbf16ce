"""Sends batches that are built already: idempotent, and in a transaction where one is asked for.

    producer = RawProducer(client, ProduceOptions(transactional_id="sink-orders-0"))
    producer.open()                       # an id of its own; who had the name before is fenced
    producer.send({partition: regions})   # returns when all in-sync replicas have them
    producer.commit()                     # or abort()

Every partition has one batch under way, so what is sent again cannot overtake what came behind
it; a batch keeps its sequence, so a broker sees that it has it already (KIP-98). Partitions of one
leader travel together, and leaders work at the same time.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

import msgspec

from ottla.client.cluster import NoBroker, Refused
from ottla.pipeline.broker import BrokerClient
from ottla.pipeline.encode import Region
from ottla.pipeline.requests import by_topic, error_codes
from ottla.pipeline.wire import Wire
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import (
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
)
from ottla.protocol.records.compression import compress
from ottla.protocol.records.writer import seal_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import NO_EPOCH, LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from ottla.runtime.clock import SystemClock

_Reply = TypeVar("_Reply", bound=Message)

ACKS_ALL: Final = -1
TRANSACTION: Final = 1
"""The kind of coordinator that keeps transactions."""

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# The end of an earlier transaction, or the start of a coordinator, is in the way.
_WORTH_WAITING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_ALREADY_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Fenced(Exception):
    """Another producer has taken this transactional id over: what this one does is void."""


class ProduceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How batches are sent. Sizes are bytes before compression, times ms."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    compression: Compression = Compression.NONE
    level: int | None = None
    delivery_timeout_ms: int = 120_000


class _Batch(msgspec.Struct, eq=False):
    partition: TopicPartition
    data: bytearray


class RawProducer:
    """One producer id. For one thread; a transaction is begun by its first batch."""

    def __init__(self, client: BrokerClient, options: ProduceOptions) -> None:
        self._client = client
        self._options = options
        self._clock = SystemClock()
        self._id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._partitions: set[TopicPartition] = set()  # of the transaction

    def open(self) -> None:
        """Get a producer id; a transaction left open under the same id is ended first.

        Raises:
            Refused: there is none to be had. Fenced: somebody else began at the same time.
        """
        transactional_id = self._options.transactional_id
        timeout_ms = self._options.transaction_timeout_ms
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms if transactional_id is not None else -1,
        )
        reply = self._ask(request, InitProducerIdResponse)
        self._check(reply.error_code, "producer id")
        self._begin_as(reply.producer_id, reply.producer_epoch)

    def _begin_as(self, producer_id: int, epoch: int) -> None:
        self._id, self._epoch = producer_id, epoch
        self._sequences.clear()
        self._partitions.clear()

    # -- batches ---------------------------------------------------------------

    def send(self, regions: Mapping[TopicPartition, Iterable[Region]]) -> None:
        """Send records, partition by partition in their order; return when they are there.

        Raises:
            Refused: a broker will not have them, or not in time. Fenced: see there.
            NoBroker: nobody answers in time. After any of them nothing more may be sent.
        """
        waiting = {partition: deque(theirs) for partition, theirs in regions.items()}
        if self._options.transactional_id is not None:
            self._take_in([each for each in waiting if each not in self._partitions])
        while waiting := {partition: theirs for partition, theirs in waiting.items() if theirs}:
            self._deliver(
                [self._build(partition, theirs.popleft()) for partition, theirs in waiting.items()]
            )

    def _build(self, partition: TopicPartition, region: Region) -> _Batch:
        options = self._options
        sequence = self._sequences.get(partition, 0)
        following = sequence + region.count
        self._sequences[partition] = (
            following if following <= SEQUENCE_MAX else following - SEQUENCE_MAX - 1
        )
        attributes = int(options.compression)
        if options.transactional_id is not None:
            attributes |= TRANSACTIONAL
        now = Millis(self._clock.now())
        header = BatchHeader(
            base_offset=Offset(0),
            length=0,
            leader_epoch=LeaderEpoch(NO_EPOCH),
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=region.count - 1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            records_count=region.count,
        )
        packed = compress(options.compression, region.data, options.level)
        return _Batch(partition, seal_batch(header, packed))

    def _deliver(self, batches: Sequence[_Batch]) -> None:
        """Send one batch of each partition until every one is there."""
        deadline = self._clock.monotonic() + self._options.delivery_timeout_ms
        left = list(batches)
        for _ in self._client.attempts():
            left, failure = self._attempt(left)
            if not left:
                return
            if self._clock.monotonic() > deadline:
                break
        assert failure is not None
        raise failure

    def _attempt(self, batches: Sequence[_Batch]) -> tuple[list[_Batch], Exception | None]:
        """Send every batch once; return those to be sent again, and why."""
        by_leader: dict[NodeId, list[_Batch]] = {}
        for batch in batches:
            by_leader.setdefault(self._client.leader(batch.partition).node_id, []).append(batch)
        left: list[_Batch] = []
        failure: Exception | None = None
        with ExitStack() as lent:
            under_way: list[tuple[Wire, list[_Batch]]] = []
            for node, theirs in by_leader.items():
                try:
                    wire = lent.enter_context(self._client.lend(node))
                    wire.post(self._request(theirs))
                    under_way.append((wire, theirs))
                except (OSError, RequestTimedOut, NoBroker) as error:
                    left, failure = [*left, *theirs], error
            for wire, theirs in under_way:
                try:
                    reply = wire.take()
                except (OSError, RequestTimedOut) as error:
                    left, failure = [*left, *theirs], error
                    continue
                assert isinstance(reply, ProduceResponse)
                again, refused = self._read(theirs, reply)
                left, failure = [*left, *again], refused or failure
        for batch in left:
            self._client.forget(batch.partition.topic)
        return left, failure

    def _request(self, batches: Sequence[_Batch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, number = batch.partition
            if name not in topics:
                topics[name] = TopicProduceData(
                    name=name, topic_id=self._client.topic(name).topic_id
                )
            topics[name].partition_data.append(PartitionProduceData(number, batch.data))
        return ProduceRequest(
            transactional_id=self._options.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self._client.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _read(
        self, batches: Sequence[_Batch], reply: ProduceResponse
    ) -> tuple[list[_Batch], Refused | None]:
        told: dict[tuple[object, int], PartitionProduceResponse] = {}
        for topic in reply.responses:
            for each in topic.partition_responses:
                told[topic.name or topic.topic_id, each.index] = each
        again: list[_Batch] = []
        refused: Refused | None = None
        for batch in batches:
            name, number = batch.partition
            topic_id = self._client.topic(name).topic_id
            answer = told.get((name, number)) or told.get((topic_id, number))
            code = int(ErrorCode.UNKNOWN_TOPIC_ID) if answer is None else answer.error_code
            message = None if answer is None else answer.error_message
            if code in _ALREADY_THERE:
                continue
            if not is_retriable(code) and code not in _WORTH_WAITING:
                self._check(code, str(batch.partition), message)
            refused = Refused(code, str(batch.partition), message)
            again.append(batch)
        return again, refused

    # -- transactions ----------------------------------------------------------

    def commit(self) -> None:
        """Make everything sent since the last end visible at once.

        Raises:
            Fenced, Refused: it was not committed. NoBroker: nobody answers; it may be committed.
        """
        self._end(is_commit=True)

    def abort(self) -> None:
        """Void everything sent since the last end. Raises as `commit`."""
        self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        transactional_id = self._options.transactional_id
        assert transactional_id is not None, "only a transactional producer ends transactions"
        if not self._partitions:
            return
        request = EndTxnRequest(transactional_id, self._id, self._epoch, is_commit)
        reply = self._ask(request, EndTxnResponse)
        self._check(reply.error_code, transactional_id)
        if reply.producer_id >= 0:  # the next transaction has an epoch of its own (KIP-890)
            self._begin_as(reply.producer_id, reply.producer_epoch)
        self._partitions.clear()

    def _take_in(self, partitions: Sequence[TopicPartition]) -> None:
        """Make partitions part of the transaction, where that does not go by itself."""
        self._partitions.update(partitions)
        if not partitions or self._client.adds_partitions():
            return
        transactional_id = self._options.transactional_id
        assert transactional_id is not None
        topics = [
            AddPartitionsToTxnTopic(name, theirs) for name, theirs in by_topic(partitions).items()
        ]
        request = AddPartitionsToTxnRequest(transactional_id, self._id, self._epoch, topics)
        reply = self._ask(request, AddPartitionsToTxnResponse)
        for code in error_codes(reply):
            self._check(code, transactional_id)

    def _ask(self, request: Message, kind: type[_Reply]) -> _Reply:
        """Ask the coordinator, again while an earlier transaction is not through with its end."""
        transactional_id = self._options.transactional_id
        for _ in self._client.attempts():
            if transactional_id is None:
                reply = self._client.call(request)
            else:
                reply = self._client.call_coordinator(transactional_id, TRANSACTION, request)
            if not _WORTH_WAITING.intersection(error_codes(reply)):
                break
        assert isinstance(reply, kind)
        return reply

    def _check(self, code: int, subject: str, message: str | None = None) -> None:
        if code in _FENCED and self._options.transactional_id is not None:
            raise Fenced(f"{self._options.transactional_id}: another producer has taken it over")
        if code != ErrorCode.NONE:
            raise Refused(code, subject, message)
