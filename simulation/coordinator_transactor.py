"""A simulated transactional producer, of transaction version 0 or 2, as Kafka's clients behave.

Retriable errors are retried, for a time that depends on the request. A transaction whose records or
offsets cannot be written is aborted. The end of a transaction is requested until its outcome is
known, or until another producer has taken the transactional id.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.protocol.errors import ErrorCode
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
from ottla.protocol.types import Millis, Offset
from simulation.cluster_client import ACKS_TIMEOUT_MS
from simulation.cluster_watch import TOPIC
from simulation.coordinator_client import AGAIN, FOR_GROUP, FOR_TRANSACTION, CoordinatorClient
from simulation.coordinator_watch import GROUP, OUT, Work

TRANSACTION_TIMEOUT_MS: Final = 2500
TRIES_MAX: Final = 12
NOBODY: Final = Producer(-1, -1)
# The newest versions in which a client adds partitions and offsets itself.
_OLD: Final = {
    "produce": 11,
    "add_partitions": 3,
    "txn_offset_commit": 4,
    "end": 4,
}
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class Fenced(Exception):
    """Another producer has the transactional id, or the coordinator has aborted this producer."""


class MustAbort(Exception):
    """The transaction cannot be committed."""


@dataclass(slots=True)
class Transactor:
    """One producer. ``between`` is called before every step: faults may be injected there."""

    client: CoordinatorClient
    name: str
    version: int
    between: Callable[[], Awaitable[None]]
    producer: Producer = NOBODY
    sequences: dict[int, int] = field(default_factory=dict)
    is_unsure: bool = False  # a batch may or may not have been written
    timeout_ms: int = TRANSACTION_TIMEOUT_MS

    @property
    def _is_old(self) -> bool:
        return self.version < 2

    def _version(self, what: str) -> int | None:
        return _OLD[what] if self._is_old else None

    async def _coordinator(self, request: Message, what: str = "") -> Message | None:
        version = self._version(what) if what else None
        return await self.client.ask_coordinator(
            FOR_TRANSACTION, self.name, request, version=version
        )

    # -- the id ----------------------------------------------------------------

    async def begin_anew(self) -> None:
        """Initialize the transactional id, fencing its former owner; retried until done."""
        await self._init(NOBODY)

    async def _init(self, named: Producer) -> None:
        request = InitProducerIdRequest(self.name, self.timeout_ms, named.id, named.epoch)
        while True:
            response = await self._coordinator(request)
            if isinstance(response, InitProducerIdResponse):
                error = ErrorCode(response.error_code)
                if error is ErrorCode.NONE:
                    self.producer = Producer(response.producer_id, response.producer_epoch)
                    self.sequences, self.is_unsure = {}, False
                    return
                if error in _FENCED and named.id >= 0:
                    raise Fenced
                self._refused(error, AGAIN, "InitProducerId")
            await self.client.rest()

    def _refused(self, error: ErrorCode, expected: frozenset[ErrorCode], what: str) -> None:
        self.client.moved(FOR_TRANSACTION, self.name, error)
        self.client.check(error, expected, what)

    def heed(self, error: ErrorCode, what: str) -> None:
        """Raise what an error means for the transaction, unless it is retriable."""
        if error in _FENCED:
            raise Fenced
        if error in _ABORTABLE | _NO_MEMBER:
            self.client.watch.refused += 1
            raise MustAbort
        self._refused(error, AGAIN, what)

    # -- records ---------------------------------------------------------------

    async def produce(self, works: Sequence[Work]) -> None:
        """Write values, those of one partition in one batch.

        Raises:
            MustAbort, Fenced: they are not all written.
        """
        by_place: dict[int, list[Work]] = {}
        for work in works:
            by_place.setdefault(work.place, []).append(work)
        if self._is_old:
            await self._add_partitions(sorted(by_place))
        for index, part in by_place.items():
            await self.between()
            await self._write(index, part)

    async def _add_partitions(self, indexes: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            self.name,
            self.producer.id,
            self.producer.epoch,
            [AddPartitionsToTxnTopic(OUT, indexes)],
        )
        for _ in range(TRIES_MAX):
            response = await self._coordinator(request, "add_partitions")
            if isinstance(response, AddPartitionsToTxnResponse):
                results = response.results_by_topic_v3_and_below[0].results_by_partition
                errors = {ErrorCode(each.partition_error_code) for each in results}
                if errors == {ErrorCode.NONE}:
                    return
                errors.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
                self.heed(min(errors), "AddPartitionsToTxn")
            await self.client.rest()
        raise MustAbort

    async def _write(self, index: int, works: list[Work]) -> None:
        sequence = self.sequences.get(index, 0)
        self.sequences[index] = sequence + len(works)
        for _ in range(TRIES_MAX):
            leader = await self.client.leader(index, OUT)
            if leader is not None:
                request = self.request(index, sequence, works)
                response = await self.client.ask(
                    leader.node_id, request, version=self._version("produce")
                )
                if self._is_written(index, response):
                    return
            await self.client.rest()
        raise MustAbort

    def _is_written(self, index: int, response: Message | None) -> bool:
        if not isinstance(response, ProduceResponse):
            self.is_unsure = True
            self.client.forget(index, OUT)
            return False
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            return True
        self.is_unsure = True
        self.client.forget(index, OUT)
        self.heed(error, "Produce")
        return False

    def request(self, index: int, sequence: int, works: list[Work]) -> ProduceRequest:
        """Return a request with one batch of values for a partition of the output."""
        now = Millis(self.client.ports.clock.now())
        records = [Record(Offset(at), now, None, work.encode()) for at, work in enumerate(works)]
        producer = self.producer._replace(base_sequence=sequence)
        data = build_batch(records, producer=producer, is_transactional=True)
        topic = TopicProduceData(
            OUT, self.client.topic_ids[OUT], [PartitionProduceData(index, data)]
        )
        return ProduceRequest(self.name, -1, ACKS_TIMEOUT_MS, [topic])

    # -- offsets ---------------------------------------------------------------

    async def commit_offsets(self, member: tuple[str, int], partition: int, offset: int) -> None:
        """Add a group's offset to the transaction, as the member of an epoch.

        Raises:
            MustAbort, Fenced: it was not added.
        """
        if self._is_old:
            await self._add_offsets()
            await self.between()
        member_id, epoch = member
        at = TxnOffsetCommitRequestPartition(partition, offset)
        request = TxnOffsetCommitRequest(
            self.name,
            GROUP,
            self.producer.id,
            self.producer.epoch,
            epoch,
            member_id,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, partitions=[at])],
        )
        for _ in range(TRIES_MAX):
            response = await self.client.ask_coordinator(
                FOR_GROUP, GROUP, request, version=self._version("txn_offset_commit")
            )
            if isinstance(response, TxnOffsetCommitResponse):
                error = ErrorCode(response.topics[0].partitions[0].error_code)
                if error is ErrorCode.NONE:
                    return
                self.client.moved(FOR_GROUP, GROUP, error)
                self.heed(error, "TxnOffsetCommit")
            await self.client.rest()
        raise MustAbort

    async def _add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(self.name, self.producer.id, self.producer.epoch, GROUP)
        for _ in range(TRIES_MAX):
            response = await self._coordinator(request)
            if isinstance(response, AddOffsetsToTxnResponse):
                error = ErrorCode(response.error_code)
                if error is ErrorCode.NONE:
                    return
                self.heed(error, "AddOffsetsToTxn")
            await self.client.rest()
        raise MustAbort

    # -- the end ---------------------------------------------------------------

    async def end(self, *, commit: bool) -> None:
        """End the transaction, retrying until the outcome is known.

        Raises:
            Fenced: the outcome can no longer be learned.
        """
        producer = self.producer
        request = EndTxnRequest(self.name, producer.id, producer.epoch, commit)
        while True:
            response = await self._coordinator(request, "end")
            if isinstance(response, EndTxnResponse):
                error = ErrorCode(response.error_code)
                if error is ErrorCode.NONE:
                    break
                if error in _FENCED or error is ErrorCode.INVALID_TXN_STATE:
                    raise Fenced
                self._refused(error, AGAIN, "EndTxn")
            await self.client.rest()
        if not self._is_old:
            self.producer, self.sequences = (
                Producer(response.producer_id, response.producer_epoch),
                {},
            )
            self.is_unsure = False
        elif self.is_unsure and not commit:
            await self._init(producer)
