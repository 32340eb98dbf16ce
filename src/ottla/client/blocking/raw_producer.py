"""Sends encoded batches with an idempotent or transactional producer.

    producer = RawProducer(client, ProduceOptions(transactional_id="sink-orders-0"))
    producer.open()                       # gets a producer id; fences the previous producer
    producer.send({partition: regions})   # returns when all in-sync replicas have the records
    producer.commit()                     # or abort()

Each partition has one batch in flight, so a retried batch cannot be reordered; a batch keeps its
sequence, so brokers detect duplicates (KIP-98). Partitions of one leader share a request, and
requests to different leaders run in parallel.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

import msgspec

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.wire import Wire
from ottla.client.coordinators import CoordinatorType
from ottla.client.failures import COORDINATOR_MOVED_OR_LOADING, NoBroker, Refused
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
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
from ottla.protocol.types import NO_EPOCH, LeaderEpoch, Millis, NodeId, Offset, TopicPartition, Uuid
from ottla.runtime.clock import SystemClock

_Reply = TypeVar("_Reply", bound=Message)

ACKS_ALL: Final = -1
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# An earlier transaction is still ending, or the coordinator is loading.
_RETRY_LATER: Final = COORDINATOR_MOVED_OR_LOADING | {ErrorCode.CONCURRENT_TRANSACTIONS}
_ALREADY_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Fenced(Exception):
    """Another producer uses this transactional id now; this one can no longer write."""


class Region(msgspec.Struct, frozen=True):
    """Contiguous records of the requested rows before ``next_row``.

    ``timestamp`` is that of all of them, in ms; None: the time at which they are sent.
    """

    data: bytearray
    count: int
    next_row: int
    timestamp: int | None = None


class ProduceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How batches are sent. Times are ms."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    compression: Compression = Compression.NONE
    level: int | None = None
    delivery_timeout_ms: int = 120_000


class _Batch(msgspec.Struct, eq=False):
    partition: TopicPartition
    data: bytearray


class RawProducer:
    """One producer id. Not thread-safe; the first batch begins a transaction."""

    def __init__(self, client: BrokerClient, options: ProduceOptions) -> None:
        self._client = client
        self._options = options
        self._clock = SystemClock()
        self._id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._partitions: set[TopicPartition] = set()  # in the transaction

    def open(self) -> None:
        """Get a producer id; an open transaction of the same transactional id is aborted first.

        Raises:
            Refused: the request was rejected. Fenced: another producer opened at the same time.
        """
        transactional_id = self._options.transactional_id
        timeout_ms = self._options.transaction_timeout_ms
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms if transactional_id is not None else -1,
        )
        reply = self._call_coordinator(request, InitProducerIdResponse)
        self._check(reply.error_code, "producer id")
        self._begin_as(reply.producer_id, reply.producer_epoch)

    def _begin_as(self, producer_id: int, epoch: int) -> None:
        self._id, self._epoch = producer_id, epoch
        self._sequences.clear()
        self._partitions.clear()

    # -- batches ---------------------------------------------------------------

    def send(self, regions: Mapping[TopicPartition, Iterable[Region]]) -> None:
        """Send records in order per partition; return when all are replicated.

        Raises:
            Refused: a broker rejects them, or they time out. Fenced: another producer took over.
            NoBroker: no broker answers in time. After any of them, send must not be called again.
        """
        waiting = {partition: deque(theirs) for partition, theirs in regions.items()}
        if self._options.transactional_id is not None:
            self._add_partitions([each for each in waiting if each not in self._partitions])
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
        now = Millis(self._clock.now() if region.timestamp is None else region.timestamp)
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
        """Send one batch per partition, with retries, until all are replicated."""
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
        """Send every batch once; return those to retry, and the last failure."""
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
        return requests.produce(
            {batch.partition: batch.data for batch in batches},
            self._ids(batches),
            acks=ACKS_ALL,
            timeout_ms=self._client.request_timeout_ms,
            transactional_id=self._options.transactional_id,
        )

    def _ids(self, batches: Sequence[_Batch]) -> dict[str, Uuid]:
        names = {batch.partition.topic for batch in batches}
        return {name: self._client.topic(name).topic_id for name in names}

    def _read(
        self, batches: Sequence[_Batch], reply: ProduceResponse
    ) -> tuple[list[_Batch], Refused | None]:
        answers = requests.read_produced(reply, self._ids(batches))
        again: list[_Batch] = []
        refused: Refused | None = None
        for batch in batches:
            answer = answers.get(batch.partition)
            code = int(ErrorCode.UNKNOWN_TOPIC_ID) if answer is None else answer.error_code
            message = None if answer is None else answer.error_message
            if code in _ALREADY_THERE:
                continue
            if not is_retriable(code) and code not in _RETRY_LATER:
                self._check(code, str(batch.partition), message)
            refused = Refused(code, str(batch.partition), message)
            again.append(batch)
        return again, refused

    # -- transactions ----------------------------------------------------------

    def commit(self) -> None:
        """Commit everything sent in the current transaction.

        Raises:
            Fenced, Refused: it was not committed. NoBroker: no broker answers; it may be committed.
        """
        self._end(is_commit=True)

    def abort(self) -> None:
        """Abort the current transaction. Raises as `commit`."""
        self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        transactional_id = self._options.transactional_id
        assert transactional_id is not None, "only a transactional producer ends transactions"
        if not self._partitions:
            return
        request = EndTxnRequest(transactional_id, self._id, self._epoch, is_commit)
        reply = self._call_coordinator(request, EndTxnResponse)
        self._check(reply.error_code, transactional_id)
        if reply.producer_id >= 0:  # the next transaction has an epoch of its own (KIP-890)
            self._begin_as(reply.producer_id, reply.producer_epoch)
        self._partitions.clear()

    def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction, unless the cluster does so implicitly."""
        self._partitions.update(partitions)
        if not partitions or self._client.adds_partitions():
            return
        transactional_id = self._options.transactional_id
        assert transactional_id is not None
        topics = [
            AddPartitionsToTxnTopic(name, theirs)
            for name, theirs in requests.by_topic(partitions).items()
        ]
        request = AddPartitionsToTxnRequest(transactional_id, self._id, self._epoch, topics)
        reply = self._call_coordinator(request, AddPartitionsToTxnResponse)
        for code in requests.error_codes(reply):
            self._check(code, transactional_id)

    def _call_coordinator(self, request: Message, kind: type[_Reply]) -> _Reply:
        """Call the coordinator; retry while an earlier transaction is still ending."""
        transactional_id = self._options.transactional_id
        for _ in self._client.attempts():
            if transactional_id is None:
                reply = self._client.call(request)
            else:
                reply = self._client.call_coordinator(
                    transactional_id, CoordinatorType.TRANSACTION, request
                )
            if not _RETRY_LATER.intersection(requests.error_codes(reply)):
                break
        assert isinstance(reply, kind)
        return reply

    def _check(self, code: int, subject: str, message: str | None = None) -> None:
        if code in _FENCED and self._options.transactional_id is not None:
            raise Fenced(
                f"{self._options.transactional_id}: another producer uses this transactional id"
            )
        if code != ErrorCode.NONE:
            raise Refused(code, subject, message)
