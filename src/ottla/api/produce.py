"""Produce: append the batches of a request to the partitions led here, and say where they are.

Most requests are appended while the handler is called, so in the order in which a connection
sends: no task, no future, no copy for acks=0 and acks=1. With acks=all a future is handed out
unless the high watermark has already passed the records; the request's bytes are not needed
for it.

Two kinds of request wait before they are appended, and become a task of their own:

    a transaction that is new to a partition    verified with its coordinator first (KIP-890)
    batches that are much work to validate      validated by a worker thread (`produce_work.py`)

`append_order.py` keeps later requests of the same producer and partition behind them. One
partition's refusal is its own: the others are appended and answered beside it. A body that is
no request appends nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.api.append_order import AppendOrder, Ticket, wait_first
from ottla.api.cluster import INTERNAL_TOPICS
from ottla.api.current_leaders import NodeEndpoint, current_leader, endpoint_of
from ottla.api.partition_wait import PartitionWait, Subscribe
from ottla.api.produce_fast_path import ProduceFastPath
from ottla.api.produce_reply import (
    CURRENT_LEADER_VERSION_FIRST,
    PartitionResult,
    TopicResult,
    pack_produce,
)
from ottla.api.produce_request import ProduceBody, each_once, parse_produce
from ottla.api.produce_transaction import (
    ADDING_VERSION_FIRST,
    TRY_AGAIN,
    Busy,
    InTransaction,
    TransactionVerifier,
    told_to_producer,
    transactional_batches,
    unverified_result,
)
from ottla.api.produce_work import (
    BYTES_AT_ONCE_MAX,
    HELD_BYTES_MIN,
    PACKED_AT_ONCE_MAX,
    SLICE_BYTES,
    Job,
    Prepared,
    is_apart,
    is_one_plain_batch,
    is_packed,
    measure,
    share_of,
)
from ottla.api.record_validation import (
    RecordRules,
    RecordsRejected,
    TimestampsRejected,
    rules_of,
    take_batch,
    validate_batch,
)
from ottla.api.replies import NO_REPLY, Answer, Holding, Reply, Result
from ottla.api.routes import Caller, FastPath
from ottla.config.generated import TopicConfig
from ottla.metadata.image import Image
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    BatchTooLargeForSegment,
    CorruptBatch,
    Fault,
    InvalidRequiredAcks,
    InvalidTopic,
    NotLeader,
    RecordTooLarge,
    StorageFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.frames import Request
from ottla.protocol.records.batch import (
    HEADER_BYTES,
    PRODUCER_ID_AT,
)
from ottla.protocol.types import Millis, Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import ALL, Partition
from ottla.runtime.ports import Clock, Worker
from ottla.runtime.worker import InlineWorker

log = logging.getLogger(__name__)

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics, as in Kafka."""

_INT64: Final = Struct(">q")

RULES_MAX: Final = 10_000
"""Topic configurations whose rules are kept worked out; then all are forgotten."""

# Refusals that say nothing of the log, not even where it starts.
_WITHOUT_LOG_START: Final = (
    *(UnknownTopicOrPartition, NotLeader, RecordTooLarge, BatchTooLargeForSegment),
    *(CorruptBatch, StorageFailed),
)
_NONE_PREPARED: Final[Mapping[int, Prepared]] = MappingProxyType({})
_NONE_REFUSED: Final[Mapping[TopicPartition, ErrorCode]] = MappingProxyType({})
_Waits = dict[int, Subscribe]
"""What a reply waits for, by the place of the result in it."""


class _Terms(NamedTuple):
    """What all partitions of a request have in common."""

    caller: Caller
    version: int
    acks: int
    now: Millis


class _Reply:
    """What becomes of a request, in its order; refers to none of its bytes."""

    __slots__ = ("names", "results", "terms", "topics")

    def __init__(self, terms: _Terms) -> None:
        self.terms = terms
        self.topics: list[tuple[str | Uuid, int]] = []  # and how many partitions of it
        self.names: list[str] = []  # of the topic, for each result
        self.results: list[PartitionResult] = []

    def ended(self, slot: int, code: ErrorCode) -> None:
        """Note how the wait for an append ended; it keeps its offsets also where it failed."""
        if code is not ErrorCode.NONE:
            self.results[slot] = self.results[slot]._replace(error_code=code)


class ProduceHandler:
    """Serves Produce. Without a verifier no transaction is taken."""

    def __init__(
        self,
        partitions: Partitions,
        image: Callable[[], Image],
        clock: Clock,
        verifier: TransactionVerifier | None = None,
        events: TopicEvents | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._clock = clock
        self._verifier = verifier
        self._events: TopicEvents = events or NoTopicEvents()
        self._worker: Worker = worker or InlineWorker()
        self._order = AppendOrder()
        # By identity: a changed configuration is another object, and this one keeps it alive.
        self._rules: dict[int, tuple[TopicConfig, RecordRules]] = {}

    def fast_path(self) -> FastPath:
        """Return the fast path of small requests."""
        return ProduceFastPath(self._partitions, self._clock, self._events, self._rules_of).serve

    def handle(self, caller: Caller, request: Request, body: memoryview) -> Reply:
        """Serve one request.

        Raises:
            ProtocolFault: the body is none.
        """
        produce = parse_produce(body, request.version)
        terms = _Terms(caller, request.version, produce.acks, self._clock.now())
        if not self._order.queues and is_one_plain_batch(produce.topics):
            return self._append_all(terms, produce, _NONE_PREPARED, _NONE_REFUSED)
        produce = each_once(produce)
        transaction = self._transaction_of(terms, produce)
        if isinstance(transaction, ErrorCode):
            return self._fail(terms, produce, transaction)
        if self._order and self._order.holds(self._keys(terms, produce)):
            return self._queue(terms, produce, transaction, len(body))
        unverified = () if transaction is None else self._unverified(transaction)
        if unverified and self._verifier is not None:
            return self._queue(terms, produce, transaction, len(body))
        prepared = self._prepare_at_once(terms, produce)
        if prepared is None:
            return self._queue(terms, produce, transaction, len(body))
        unknown = dict.fromkeys(unverified, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._append_all(terms, produce, prepared, unknown)

    # -- order -----------------------------------------------------------------

    def _keys(self, terms: _Terms, produce: ProduceBody) -> list[Hashable]:
        """Return what other requests may have in common with this one, and then keep in order."""
        connection = (terms.caller.listener, terms.caller.peer)
        keys: list[Hashable] = []
        for topic, partitions in produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            keys += [(name, index, _producer_id(data, connection)) for index, data in partitions]
        return keys

    def _queue(
        self, terms: _Terms, produce: ProduceBody, transaction: InTransaction | None, size: int
    ) -> Awaitable[Result]:
        """Take the request's place now; append it when it is first and nothing is waited for."""
        ticket = self._order.enter(self._keys(terms, produce))
        if size >= HELD_BYTES_MIN:
            return Holding(self._append_in_turn(ticket, terms, produce, transaction))
        return self._append_in_turn(ticket, terms, _owned(produce), transaction)

    async def _append_in_turn(
        self,
        ticket: Ticket,
        terms: _Terms,
        produce: ProduceBody,
        transaction: InTransaction | None,
    ) -> Result:
        try:
            if not ticket.is_first:
                await wait_first(ticket)
            prepared = self._prepare_at_once(terms, produce)
            if prepared is None:
                prepared = await self._prepare_apart(terms, produce)
            if transaction is None:
                reply = await self._append_in_slices(terms, produce, prepared)
            else:
                refused = await self._verified(ticket, terms, transaction)
                # What was verified is appended before the event loop goes on.
                reply = self._append_all(terms, produce, prepared, refused)
        finally:
            self._order.leave(ticket)
        return await reply if isinstance(reply, Awaitable) else reply

    # -- validation ------------------------------------------------------------

    def _prepare_at_once(self, terms: _Terms, produce: ProduceBody) -> dict[int, Prepared] | None:
        """Validate what is compressed, by place in the request; None where it is too much work."""
        packed, size = measure(produce.topics)
        if packed > PACKED_AT_ONCE_MAX or size > BYTES_AT_ONCE_MAX:
            return None
        prepared: dict[int, Prepared] = {}
        if not packed:
            return prepared
        for slot, job in self._jobs(terms, produce, is_packed):
            found = job.at_once(share_of(packed))
            if found is None:
                return None
            prepared[slot] = found
        return prepared

    async def _prepare_apart(self, terms: _Terms, produce: ProduceBody) -> dict[int, Prepared]:
        """Validate in a worker thread what may be much work: one batch after the other."""
        jobs = list(self._jobs(terms, produce, is_apart))
        return {slot: await self._worker.run(job.in_pieces) for slot, job in jobs}

    def _jobs(
        self, terms: _Terms, produce: ProduceBody, is_wanted: Callable[[memoryview | None], bool]
    ) -> Iterator[tuple[int, Job]]:
        """Yield the validations of batches; those that are refused unseen are left out."""
        slot = -1
        for topic, partitions in produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            for index, records in partitions:
                slot += 1
                if not is_wanted(records):
                    continue
                try:
                    found = self._find(topic, name, index)
                    found.check_leader()
                    batch = take_batch(records, terms.version)
                except Fault:
                    continue  # `_append` says why, in its order of checks
                yield slot, Job(batch, self._rules_of(found.config), terms.now)

    # -- append ----------------------------------------------------------------

    def _append_all(
        self,
        terms: _Terms,
        produce: ProduceBody,
        prepared: Mapping[int, Prepared],
        refused: Mapping[TopicPartition, ErrorCode],
    ) -> Reply:
        """Append everything but what is ``refused`` beforehand, and answer or wait."""
        if terms.acks == 1 and not refused and len(produce.topics) == 1:
            topic, partitions = produce.topics[0]
            if len(partitions) == 1:
                return self._append_single(terms, topic, *partitions[0], prepared.get(0))
        reply, waits = _Reply(terms), _Waits()
        for _ in self._append_each(reply, waits, produce, prepared, refused):
            pass
        return self._finish(reply, waits, produce.timeout_ms)

    async def _append_in_slices(
        self, terms: _Terms, produce: ProduceBody, prepared: Mapping[int, Prepared]
    ) -> Reply:
        """Append everything; other clients get their turn in between."""
        reply, waits = _Reply(terms), _Waits()
        size = 0
        for appended in self._append_each(reply, waits, produce, prepared, {}):
            size += appended
            if size >= SLICE_BYTES:
                size = 0
                await asyncio.sleep(0)
        return self._finish(reply, waits, produce.timeout_ms)

    def _append_each(
        self,
        reply: _Reply,
        waits: _Waits,
        produce: ProduceBody,
        prepared: Mapping[int, Prepared],
        refused: Mapping[TopicPartition, ErrorCode],
    ) -> Iterator[int]:
        """Append one partition after the other; yield the bytes of each."""
        terms, results = reply.terms, reply.results
        for topic, partitions in produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            reply.topics.append((topic, len(partitions)))
            for index, records in partitions:
                reply.names.append(name)
                error = refused.get(TopicPartition(name, index)) if refused else None
                if error is not None:
                    results.append(unverified_result(index, error, terms.version))
                    continue
                at = (topic, name, index)
                found = self._append(terms, at, records, prepared.get(len(results)))
                if isinstance(found, PartitionResult):
                    results.append(found)
                    continue
                partition, result, end = found
                if terms.acks == ALL:
                    waits[len(results)] = partial(partition.when_replicated, end)
                results.append(result)
                yield 0 if records is None else len(records)

    def _finish(self, reply: _Reply, waits: _Waits, timeout_ms: int) -> Reply:
        """Answer, or wait for the followers first."""
        if not waits:
            return self._answer(reply)
        return PartitionWait(reply.ended, partial(self._answer, reply)).begin(waits, timeout_ms)

    def _append_single(
        self,
        terms: _Terms,
        topic: str | Uuid,
        index: int,
        records: memoryview | None,
        prepared: Prepared | None,
    ) -> Result:
        """Append the one batch of a request that does not wait: what small requests are."""
        name = topic if isinstance(topic, str) else self._name_of(topic)
        found = self._append(terms, (topic, name, index), records, prepared)
        if not isinstance(found, PartitionResult):
            return [pack_produce(terms.version, ((topic, (found[1],)),))]
        reply = _Reply(terms)
        reply.topics.append((topic, 1))
        reply.names.append(name)
        reply.results.append(found)
        return self._answer(reply)

    def _append(
        self,
        terms: _Terms,
        at: tuple[str | Uuid, str, int],
        records: memoryview | None,
        prepared: Prepared | None,
    ) -> tuple[Partition, PartitionResult, Offset] | PartitionResult:
        """Append one batch, validated before or now; return where it ends, or why it is not."""
        topic, name, index = at
        partition: Partition | None = None
        try:
            found = self._find(topic, name, index)
            batch = take_batch(records, terms.version)
            if not -1 <= terms.acks <= 1:
                raise InvalidRequiredAcks(f"acks={terms.acks}")
            if name in INTERNAL_TOPICS and terms.caller.client_id != ADMIN_CLIENT_ID:
                raise InvalidTopic(f"{name} is written by brokers alone")
            found.check_leader()
            partition = found
            if isinstance(prepared, Fault):
                raise prepared
            valid = prepared
            if valid is None:
                valid = validate_batch(batch, self._rules_of(partition.config), terms.now)
            appended = partition.append(valid, now=terms.now, required_acks=terms.acks)
        except Fault as fault:
            self._events.produce_failed(name)
            return _refusal(terms.caller, (name, index), partition, fault)
        first, last, _, append_time, _ = appended
        self._events.produced(name, last - first + 1, len(valid))
        start = partition.log.log_start_offset
        result = PartitionResult(index, ErrorCode.NONE, first, append_time, start)
        return partition, result, Offset(last + 1)

    def _find(self, topic: str | Uuid, name: str, index: int) -> Partition:
        """Return a partition hosted here.

        Raises:
            UnknownTopicId, UnknownTopicOrPartition, NotLeader, StorageFailed
        """
        if isinstance(topic, str):
            return self._partitions.find(topic, index)
        found = self._partitions.by_id(topic, index)
        if found is not None:
            found.check_online()
            return found
        if not name:
            raise UnknownTopicId("no topic has this id")
        return self._partitions.find(name, index)

    def _name_of(self, topic_id: Uuid) -> str:
        """Return the name of a topic, empty if there is none with this id."""
        topic = self._image().topics.by_id.get(topic_id)
        return "" if topic is None else topic.name

    def _rules_of(self, config: TopicConfig) -> RecordRules:
        kept = self._rules.get(id(config))
        if kept is not None:
            return kept[1]
        if len(self._rules) >= RULES_MAX:
            self._rules.clear()
        rules = rules_of(config)
        self._rules[id(config)] = config, rules
        return rules

    # -- answer ----------------------------------------------------------------

    def _answer(self, reply: _Reply) -> Result:
        terms, results = reply.terms, reply.results
        if terms.acks == 0:
            failed = any(each.error_code for each in results)
            return Answer(NO_REPLY, close=True) if failed else NO_REPLY
        endpoints: dict[int, NodeEndpoint] = {}
        if terms.version >= CURRENT_LEADER_VERSION_FIRST:
            for slot, each in enumerate(results):
                if each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    results[slot] = self._with_leader(reply, slot, endpoints)
        topics: list[TopicResult] = []
        start = 0
        for topic, count in reply.topics:
            if count:  # as in Kafka: a topic without partitions has no row
                topics.append((topic, results[start : start + count]))
            start += count
        return [pack_produce(terms.version, topics, 0, tuple(endpoints.values()))]

    def _with_leader(
        self, reply: _Reply, slot: int, endpoints: dict[int, NodeEndpoint]
    ) -> PartitionResult:
        image, result = self._image(), reply.results[slot]
        leader = current_leader(image, reply.names[slot], result.partition)
        at = endpoint_of(image, leader.leader_id, reply.terms.caller.listener)
        if at is not None:
            endpoints[at.node_id] = at
        return result._replace(current_leader=leader)

    # -- transactions ----------------------------------------------------------

    def _transaction_of(
        self, terms: _Terms, produce: ProduceBody
    ) -> InTransaction | ErrorCode | None:
        """Return the transaction of the request's batches, or what is wrong with it."""
        batches = transactional_batches(produce)
        if not batches:
            return None
        if produce.transactional_id is None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        producers = {(header.producer_id, header.producer_epoch) for _, _, header in batches}
        if len(producers) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        (producer,) = producers
        named = tuple(
            TopicPartition(topic if isinstance(topic, str) else self._name_of(topic), index)
            for topic, index, _ in batches
        )
        may_add = terms.version >= ADDING_VERSION_FIRST
        return InTransaction(produce.transactional_id, *producer, named, may_add)

    def _unverified(self, transaction: InTransaction) -> tuple[TopicPartition, ...]:
        """Return the partitions that are not known to be part of the transaction."""
        producer = transaction.producer_id, transaction.producer_epoch
        return tuple(each for each in transaction.partitions if not self._is_open(each, *producer))

    def _is_open(self, at: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        """Say whether the transaction is known here, and so was verified."""
        found = self._partitions.get(*at)
        return found is not None and found.log.producers.has_open_transaction(
            producer_id, producer_epoch
        )

    async def _verified(
        self, ticket: Ticket, terms: _Terms, transaction: InTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Verify what is not known here to be open; return what is refused.

        A request that waited behind one whose transaction was busy is refused like it: verified
        on its own it might be appended, without the records that come before its own.
        """
        unverified = self._unverified(transaction)
        if self._verifier is None:
            return dict.fromkeys(unverified, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        whole = transaction._replace(partitions=())
        refused = {
            at: code
            for note in ticket.notes
            if isinstance(note, Busy) and note.transaction == whole
            for at, code in note.refused.items()
            if at in unverified
        }
        left = tuple(each for each in unverified if each not in refused)
        if left:
            refused |= await self._verifier.verify(transaction._replace(partitions=left))
        busy = {at: code for at, code in refused.items() if code in TRY_AGAIN}
        if busy:
            ticket.note = Busy(whole, busy)
        return {at: told_to_producer(code, terms.version) for at, code in refused.items()}

    def _fail(self, terms: _Terms, produce: ProduceBody, code: ErrorCode) -> Result:
        """Refuse the whole request."""
        reply = _Reply(terms)
        for topic, partitions in produce.topics:
            reply.topics.append((topic, len(partitions)))
            reply.results += [PartitionResult(index, code) for index, _ in partitions]
        return self._answer(reply)


def _owned(produce: ProduceBody) -> ProduceBody:
    """Return the request with records of its own, to outlive the buffer it came in."""
    topics = [
        (topic, [(i, None if r is None else memoryview(bytearray(r))) for i, r in partitions])
        for topic, partitions in produce.topics
    ]
    return produce._replace(topics=topics)


def _producer_id(records: memoryview | None, connection: Hashable) -> Hashable:
    """Return whose order a batch belongs to: its producer's, else the connection's."""
    if records is None or len(records) < HEADER_BYTES:
        return connection
    (producer_id,) = _INT64.unpack_from(records, PRODUCER_ID_AT)
    return producer_id if producer_id >= 0 else connection


def _refusal(
    caller: Caller, at: tuple[str, int], partition: Partition | None, fault: Fault
) -> PartitionResult:
    """Say why a batch was not appended, to the client and, where it may be at fault, in the log."""
    is_routine = isinstance(fault, NotLeader | UnknownTopicOrPartition | UnknownTopicId)
    log.log(
        logging.DEBUG if is_routine else logging.INFO,
        "append refused partition=%r-%d peer=%s client_id=%r error=%s reason=%s",
        *(*at, caller.peer, caller.client_id, fault.code.name, fault),
    )
    start = -1
    if partition is not None and not isinstance(fault, _WITHOUT_LOG_START):
        start = partition.log.log_start_offset
    if isinstance(fault, RecordsRejected | TimestampsRejected):
        return PartitionResult(
            at[1], fault.code, -1, -1, start, fault.errors, error_message=str(fault)
        )
    return PartitionResult(at[1], fault.code, log_start_offset=start)
