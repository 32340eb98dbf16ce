"""Produce: append the batches of a request to the partitions led here and return their offsets.

There is one general path, `ProduceHandler.handle`, and one fast path for small plain requests,
`fast_path.py`. Both use the same record rules (`record_validation.py`) and the same
authorization decisions (`access_decisions.py`); what the fast path declines arrives here.

Most requests are appended while the handler is called, and therefore in the order in which a
connection sends them: no task and no copy. With acks=all the reply is pending unless the high
watermark has already passed the records; it does not need the request's bytes.

Three kinds of request wait before they are appended, each in a task of its own:

    a transaction that is new to a partition    verified with its coordinator first (KIP-890)
    batches that are expensive to validate      validated by a worker thread (`work.py`)
    schema validation that takes time           by another one (`schema_checks.py`)

`append_order.py` keeps later requests of the same producer and partition behind them. Partitions
fail independently: the others are appended and answered. A malformed body appends nothing.

A request with many partitions is parsed and appended in pieces. Its partitions are known only when
it is parsed, so all later requests of its connection wait until its last piece is appended.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from ottla.api.cluster.metadata import INTERNAL_TOPICS
from ottla.api.partitions.current_leaders import NodeEndpoint, current_leader, endpoint_of
from ottla.api.partitions.partition_wait import PartitionWait, Subscribe
from ottla.api.produce.append_order import AppendOrder, Ticket, wait_first
from ottla.api.produce.fast_path import AppendedBatch, ProduceFastPath
from ottla.api.produce.record_validation import (
    UNPACKED_BYTES_MAX,
    RecordRules,
    RecordsRejected,
    SchemasUnavailable,
    TimestampsRejected,
    rules_of,
    take_batch,
    validate_batch,
)
from ottla.api.produce.reply import (
    CURRENT_LEADER_VERSION_FIRST,
    PartitionResult,
    ProduceResults,
    TopicResult,
    pack_produce,
    pack_produce_steps,
)
from ottla.api.produce.request import (
    PARTITIONS_PER_PIECE,
    TOPIC_ID_VERSION_FIRST,
    ProduceBody,
    each_once,
    each_once_steps,
    owned,
    parse_produce_steps,
    pieces_of,
    producer_of,
    release_steps,
)
from ottla.api.produce.transaction import (
    ADDING_VERSION_FIRST,
    TRY_AGAIN,
    Busy,
    InTransaction,
    TransactionVerifier,
    producer_error,
    rejected_result,
    transactional_batches,
)
from ottla.api.produce.work import (
    BYTES_AT_ONCE_MAX,
    HELD_BYTES_MIN,
    PACKED_AT_ONCE_MAX,
    SLICE_BYTES,
    Contents,
    Job,
    Prepared,
    SchemaJob,
    ThinnedBatch,
    inspect_batches,
    is_any,
    is_apart,
    is_packed,
    share_of,
)
from ottla.api.security.access_decisions import ALLOW_ALL, AccessDecisions, ProduceAccess
from ottla.api.surface.replies import (
    NO_REPLY,
    Answer,
    Hold,
    Reply,
    Result,
    Steps,
    Work,
    at_once,
    finish,
    finished,
    paced,
)
from ottla.api.surface.routes import Caller, FastPath
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
    ProtocolFault,
    RecordTooLarge,
    StorageFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.frames import Request
from ottla.protocol.types import Millis, Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.appending import ALL
from ottla.replication.partition import Partition
from ottla.runtime.ports import Clock, Worker
from ottla.runtime.worker import InlineWorker

if TYPE_CHECKING:
    from ottla.api.produce.schema_checks import SchemaChecks

log = logging.getLogger(__name__)

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics, as in Kafka."""

RULES_MAX: Final = 10_000
"""Topic configurations whose record rules are cached; a full cache is dropped whole."""

# Errors whose result does not even name the log start offset.
_WITHOUT_LOG_START: Final = (
    *(UnknownTopicOrPartition, NotLeader, RecordTooLarge, BatchTooLargeForSegment),
    *(CorruptBatch, StorageFailed),
)
_NO_ERRORS: Final[Mapping[TopicPartition, ErrorCode]] = MappingProxyType({})


class _Call(msgspec.Struct, frozen=True):
    """A request, its caller, and the partitions that the caller may not write to."""

    caller: Caller
    version: int
    now: Millis
    produce: ProduceBody
    contents: Contents
    denied: Mapping[TopicPartition, ErrorCode]


class ProduceHandler:
    """Serves Produce. Without a verifier transactional batches are rejected.

    Without ``schemas`` batches to topics with schema validation are rejected.
    """

    def __init__(
        self,
        partitions: Partitions,
        image: Callable[[], Image],
        clock: Clock,
        verifier: TransactionVerifier | None = None,
        *,
        events: TopicEvents | None = None,
        worker: Worker | None = None,
        access: ProduceAccess = ALLOW_ALL,
        schemas: "SchemaChecks | None" = None,
    ) -> None:
        self._partitions = partitions
        self._schemas = schemas
        self._image = image
        self._clock = clock
        self._verifier = verifier
        self._events: TopicEvents = events or NoTopicEvents()
        self._worker: Worker = worker or InlineWorker()
        self._topic_writes = AccessDecisions(access.write_topic, access.version)
        self._may_write_transactional_id = access.write_transactional_id
        self._order = AppendOrder()
        # By identity: a changed configuration is another object, and this one keeps it alive.
        self._rules: dict[int, tuple[TopicConfig, RecordRules]] = {}
        self._fast_path = ProduceFastPath(
            partitions,
            clock,
            self._events,
            self._rules_of,
            self._topic_writes,
            self._order,
            self._wait_replicated,
        )

    def fast_path(self) -> FastPath:
        """Return the fast path of small requests."""
        return self._fast_path.serve

    def handle(self, caller: Caller, request: Request, body: memoryview) -> Reply:
        """Serve one request.

        Raises:
            ProtocolFault: the body is malformed.
        """
        steps = parse_produce_steps(body, request.version)
        parsed = at_once(steps)
        if parsed is None:
            hold = Hold()
            run = self._handle_long(caller, request.version, steps, hold)
            return Work(run, holds_body=True, hold=hold)
        return self._handle_parsed(caller, request.version, each_once(parsed), len(body))

    def _handle_parsed(
        self, caller: Caller, version: int, produce: ProduceBody, size: int
    ) -> Reply:
        """Append a request of ``size`` bytes at once, or queue it if something delays it."""
        contents = inspect_batches(produce.topics)
        denied = self._denied(caller, produce)
        call = _Call(caller, version, self._clock.now(), produce, contents, denied)
        transaction = self._transaction_of(call) if contents.is_transactional else None
        if isinstance(transaction, ErrorCode):
            return self._fail(call, transaction)
        if self._order.queues and self._order.holds(self._keys(call)):
            return self._queue(call, transaction, size)
        rejected = denied
        if transaction is not None:
            unverified = self._unverified(transaction)
            if unverified and self._verifier is not None:
                return self._queue(call, transaction, size)
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            rejected = {**denied, **dict.fromkeys(unverified, unavailable)}
        prepared = self._prepare_at_once(call)
        if prepared is not None and self._validates_schemas(call):
            assert self._schemas is not None
            checked = self._schemas.at_once(self._schema_jobs(call, prepared))
            prepared = None if checked is None else {**prepared, **checked}
        if prepared is None:
            return self._queue(call, transaction, size)
        return self._append_all(call, prepared, rejected)

    def _denied(self, caller: Caller, produce: ProduceBody) -> Mapping[TopicPartition, ErrorCode]:
        """Return the partitions of topics that the caller may not write to, each with its error."""
        if self._topic_writes.is_open:
            return _NO_ERRORS
        denied: dict[TopicPartition, ErrorCode] = {}
        for topic, partitions in produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            # An unknown topic id has no name: UNKNOWN_TOPIC_ID, as in Kafka.
            if self._topic_writes.ask(caller, name) or (not name and not isinstance(topic, str)):
                continue
            for index, _ in partitions:
                denied[TopicPartition(name, index)] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return denied

    # -- order -----------------------------------------------------------------

    def _keys(self, call: _Call) -> list[Hashable]:
        """Return the keys whose requests must be appended in arrival order."""
        connection = (call.caller.listener, call.caller.peer)
        keys: list[Hashable] = []
        for topic, partitions in call.produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            keys += [(name, index, producer_of(data, connection)) for index, data in partitions]
        return keys

    def _queue(self, call: _Call, transaction: InTransaction | None, size: int) -> Work:
        """Queue the request now; append it when it is first and nothing delays it."""
        ticket = self._order.enter(self._keys(call))
        if size >= HELD_BYTES_MIN:
            return Work(self._append_in_turn(ticket, call, transaction), holds_body=True)
        kept = replace(call, produce=owned(call.produce))
        return Work(self._append_in_turn(ticket, kept, transaction))

    async def _handle_long(
        self, caller: Caller, version: int, steps: Steps[ProduceBody], hold: Hold
    ) -> Result:
        """Serve a request with many partitions in pieces; other connections are served in between.

        ``hold`` is released once all pieces are appended, before the wait for their replication.
        """
        try:
            produce = await paced(each_once_steps(await paced(steps)))
        except ProtocolFault as fault:
            log.warning("connection closed peer=%s reason=%s", caller.peer, fault)
            return Answer(NO_REPLY, close=True)
        reply = ProduceResults(caller, version, produce.acks)
        for piece in pieces_of(produce):
            contents, denied = inspect_batches(piece.topics), self._denied(caller, piece)
            call = _Call(caller, version, self._clock.now(), piece, contents, denied)
            transaction = self._transaction_of(call) if contents.is_transactional else None
            if isinstance(transaction, ErrorCode):
                return self._fail(replace(call, produce=produce), transaction)
            ticket = self._order.enter(self._keys(call))
            await self._append_piece(ticket, call, transaction, reply)
            await asyncio.sleep(0)
        hold.release()
        if reply.waits:
            await finished(
                PartitionWait(reply.ended, lambda: NO_REPLY).begin(reply.waits, produce.timeout_ms)
            )
        await paced(release_steps(produce.topics))
        result = await paced(self._answer_steps(reply))
        await paced(release_steps(reply.results))
        await paced(release_steps(reply.topics))
        return result

    async def _append_in_turn(
        self, ticket: Ticket, call: _Call, transaction: InTransaction | None
    ) -> Result:
        reply = ProduceResults(call.caller, call.version, call.produce.acks)
        await self._append_piece(ticket, call, transaction, reply)
        return await finished(self._finish(reply, call.produce.timeout_ms))

    async def _append_piece(
        self, ticket: Ticket, call: _Call, transaction: InTransaction | None, reply: ProduceResults
    ) -> None:
        """Append the batches of a request when it is first; add their results to ``reply``."""
        try:
            if not ticket.is_first:
                await wait_first(ticket)
            prepared = self._prepare_at_once(call)
            if prepared is None:
                prepared = await self._prepare_apart(call)
            if self._validates_schemas(call):
                assert self._schemas is not None
                prepared |= await self._schemas.apart(self._schema_jobs(call, prepared))
            if transaction is None:
                await self._append_in_slices(reply, call, prepared)
            else:
                unverified = await self._verified(ticket, call.version, transaction)
                # No await between the verification and the append.
                rejected = {**call.denied, **unverified}
                for _ in self._append_each(reply, call, prepared, rejected):
                    pass
        finally:
            self._order.leave(ticket)

    # -- validation ------------------------------------------------------------

    def _prepare_at_once(self, call: _Call) -> dict[int, Prepared] | None:
        """Validate compressed batches, by index in the request; None if that is too much work."""
        compressed = call.contents.compressed
        if compressed > PACKED_AT_ONCE_MAX or call.contents.size > BYTES_AT_ONCE_MAX:
            return None
        prepared: dict[int, Prepared] = {}
        if not compressed:
            return prepared
        for slot, _, job in self._jobs(call, is_packed):
            result = job.at_once(share_of(compressed))
            if result is None:
                return None
            prepared[slot] = result
        return prepared

    async def _prepare_apart(self, call: _Call) -> dict[int, Prepared]:
        """Validate expensive batches in a worker thread, one after the other."""
        jobs = list(self._jobs(call, is_apart))
        return {slot: await self._worker.run(job.in_pieces) for slot, _, job in jobs}

    def _jobs(
        self, call: _Call, is_selected: Callable[[memoryview | None], bool]
    ) -> Iterator[tuple[int, Partition, Job]]:
        """Yield the validations of the selected batches, except those rejected without one."""
        slot = -1
        for topic, partitions in call.produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            for index, records in partitions:
                slot += 1
                if not is_selected(records) or TopicPartition(name, index) in call.denied:
                    continue
                try:
                    partition = self._find(topic, name, index)
                    partition.check_leader()
                    batch = take_batch(records, call.version)
                except Fault:
                    continue  # `_append` returns the error, in its order of checks
                yield slot, partition, Job(batch, self._rules_of(partition.config), call.now)

    def _validates_schemas(self, call: _Call) -> bool:
        """Return whether a topic of the request has schema validation, on a node that can do it."""
        if self._schemas is None:
            return False
        for topic, partitions in call.produce.topics:
            for index, _ in partitions:
                if isinstance(topic, str):
                    partition = self._partitions.get(topic, index)
                else:
                    partition = self._partitions.by_id(topic, index)
                if partition is not None:
                    if self._rules_of(partition.config).schemas is not None:
                        return True
                    break  # partitions of a topic have one configuration
        return False

    def _schema_jobs(self, call: _Call, prepared: Mapping[int, Prepared]) -> Iterator[SchemaJob]:
        """Yield the batches of topics with schema validation that are valid otherwise."""
        for slot, partition, job in self._jobs(call, is_any):
            schemas = job.rules.schemas
            if schemas is None:
                continue
            batch = prepared.get(slot) or job.at_once(UNPACKED_BYTES_MAX)
            # `_append` returns the error of an invalid batch.
            if isinstance(batch, memoryview | bytearray):
                yield SchemaJob(slot, partition, batch, schemas)

    # -- append ----------------------------------------------------------------

    def _append_all(
        self,
        call: _Call,
        prepared: Mapping[int, Prepared],
        rejected: Mapping[TopicPartition, ErrorCode],
    ) -> Reply:
        """Append every batch but those of ``rejected`` partitions, then reply or wait."""
        reply = ProduceResults(call.caller, call.version, call.produce.acks)
        for _ in self._append_each(reply, call, prepared, rejected):
            pass
        return self._finish(reply, call.produce.timeout_ms)

    async def _append_in_slices(
        self, reply: ProduceResults, call: _Call, prepared: Mapping[int, Prepared]
    ) -> None:
        """Append every batch; other requests are served in between."""
        size = 0
        for appended in self._append_each(reply, call, prepared, call.denied):
            size += appended
            if size >= SLICE_BYTES:
                size = 0
                await asyncio.sleep(0)

    def _append_each(
        self,
        reply: ProduceResults,
        call: _Call,
        prepared: Mapping[int, Prepared],
        rejected: Mapping[TopicPartition, ErrorCode],
    ) -> Iterator[int]:
        """Append one partition after the other; yield the bytes of each."""
        results = reply.results
        before = len(results)
        for topic, partitions in call.produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            reply.add_topic(topic, len(partitions))
            for index, records in partitions:
                error = rejected.get(TopicPartition(name, index)) if rejected else None
                if error is not None:
                    results.append(rejected_result(index, error, call.version))
                    continue
                at = (topic, name, index)
                valid = prepared.get(len(results) - before)
                results.append(self._append(reply, call, at, records, valid))
                yield 0 if records is None else len(records)

    def _append(
        self,
        reply: ProduceResults,
        call: _Call,
        at: tuple[str | Uuid, str, int],
        records: memoryview | None,
        prepared: Prepared | None,
    ) -> PartitionResult:
        """Append one batch, validating it unless it is ``prepared``; return its result."""
        topic, name, index = at
        acks, now = reply.acks, call.now
        partition: Partition | None = None
        try:
            found = self._find(topic, name, index)
            batch = take_batch(records, call.version)
            if not -1 <= acks <= 1:
                raise InvalidRequiredAcks(f"acks={acks}")
            if name in INTERNAL_TOPICS and call.caller.client_id != ADMIN_CLIENT_ID:
                raise InvalidTopic(f"only brokers write to {name}")
            found.check_leader()
            partition = found
            if isinstance(prepared, Fault):
                raise prepared
            rules = self._rules_of(partition.config)
            if rules.schemas is not None and self._schemas is None:
                raise SchemasUnavailable
            is_thinned = isinstance(prepared, ThinnedBatch)
            valid = prepared.batch if isinstance(prepared, ThinnedBatch) else prepared
            if valid is None:
                valid = validate_batch(batch, rules, now)
            appended = partition.append(
                valid, now=now, required_acks=acks, may_have_gaps=is_thinned
            )
        except Fault as fault:
            self._events.produce_failed(name)
            reply.reject(name, index, fault)
            return _failed_result(index, partition, fault)
        first, last, _, append_time, _ = appended
        self._events.produced(name, last - first + 1, len(valid))
        if acks == ALL:
            end = Offset(last + 1)
            reply.waits[len(reply.results)] = partial(partition.when_replicated, end)
        start = partition.log.log_start_offset
        return PartitionResult(index, ErrorCode.NONE, first, append_time, start)

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
        """Return the name of the topic with this id, empty if there is none."""
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

    # -- reply -----------------------------------------------------------------

    def _wait_replicated(self, caller: Caller, batch: AppendedBatch) -> Reply:
        """Reply to a request whose only batch the fast path has appended with acks=all."""
        partition, version = batch.partition, batch.version
        topic = partition.topic if version < TOPIC_ID_VERSION_FIRST else partition.topic_id
        start, end = partition.log.log_start_offset, Offset(batch.last + 1)
        result = PartitionResult(partition.index, base_offset=batch.first, log_start_offset=start)
        waits: dict[int, Subscribe] = {0: partial(partition.when_replicated, end)}
        reply = ProduceResults(caller, version, ALL, [(topic, 1)], [result], waits)
        return self._finish(reply, batch.timeout_ms)

    def _finish(self, reply: ProduceResults, timeout_ms: int) -> Reply:
        """Reply, or wait for the followers first."""
        if not reply.waits:
            return self._answer(reply)
        wait = PartitionWait(reply.ended, partial(self._answer, reply))
        return wait.begin(reply.waits, timeout_ms)

    def _answer(self, reply: ProduceResults) -> Result:
        return finish(self._answer_steps(reply))

    def _answer_steps(self, reply: ProduceResults) -> Steps[Result]:
        """Return what `_answer` does, and yield often."""
        reply.log_rejected()
        if reply.acks == 0:
            return reply.nothing()
        endpoints: dict[int, NodeEndpoint] = {}
        topics = yield from self._topic_results(reply, endpoints)
        nodes = tuple(endpoints.values())
        if len(topics) == 1:
            return [pack_produce(reply.version, topics, 0, nodes)]
        packed = yield from pack_produce_steps(reply.version, topics, 0, nodes)
        yield from release_steps(topics)
        return [packed]

    def _topic_results(
        self, reply: ProduceResults, endpoints: dict[int, NodeEndpoint]
    ) -> Steps[list[TopicResult]]:
        """Return the results by topic; ``endpoints`` gets the nodes that lead elsewhere."""
        results = reply.results
        topics: list[TopicResult] = []
        start = 0
        for topic, count in reply.topics:
            found = results[start : start + count]
            start += count
            if reply.version >= CURRENT_LEADER_VERSION_FIRST:
                for at, each in enumerate(found):
                    if each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        found[at] = self._with_leader(reply.caller, topic, each, endpoints)
            if count:  # as in Kafka: a topic without partitions is left out
                topics.append((topic, found))
                if not len(topics) % PARTITIONS_PER_PIECE:
                    yield
        return topics

    def _with_leader(
        self,
        caller: Caller,
        topic: str | Uuid,
        result: PartitionResult,
        endpoints: dict[int, NodeEndpoint],
    ) -> PartitionResult:
        """Return a result that names the current leader; add its endpoint (KIP-951)."""
        image = self._image()
        name = topic if isinstance(topic, str) else self._name_of(topic)
        leader = current_leader(image, name, result.partition)
        at = endpoint_of(image, leader.leader_id, caller.listener)
        if at is not None:
            endpoints[at.node_id] = at
        return result._replace(current_leader=leader)

    def _fail(self, call: _Call, code: ErrorCode) -> Result:
        """Reject the whole request."""
        reply = ProduceResults(call.caller, call.version, call.produce.acks)
        for topic, partitions in call.produce.topics:
            reply.topics.append((topic, len(partitions)))
            reply.results += [PartitionResult(index, code) for index, _ in partitions]
        return self._answer(reply)

    # -- transactions ----------------------------------------------------------

    def _transaction_of(self, call: _Call) -> InTransaction | ErrorCode | None:
        """Return the transaction of the request's batches, or the error of the whole request."""
        batches = transactional_batches(call.produce)
        if not batches:
            return None
        transactional_id = call.produce.transactional_id
        if transactional_id is None or not self._may_write_transactional_id(
            call.caller, transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        partitions: list[TopicPartition] = []
        producers: set[tuple[int, int]] = set()
        for topic, index, header in batches:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            at = TopicPartition(name, index)
            if at not in call.denied:
                partitions.append(at)
                producers.add((header.producer_id, header.producer_epoch))
        if not producers:
            return None
        if len(producers) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        (producer,) = producers
        may_add = call.version >= ADDING_VERSION_FIRST
        return InTransaction(transactional_id, *producer, tuple(partitions), may_add)

    def _unverified(self, transaction: InTransaction) -> tuple[TopicPartition, ...]:
        """Return the partitions that are not known to be part of the transaction."""
        producer = transaction.producer_id, transaction.producer_epoch
        return tuple(each for each in transaction.partitions if not self._is_open(each, *producer))

    def _is_open(self, at: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        """Return whether this log has the transaction open, which means that it was verified."""
        found = self._partitions.get(*at)
        return found is not None and found.log.producers.has_open_transaction(
            producer_id, producer_epoch
        )

    async def _verified(
        self, ticket: Ticket, version: int, transaction: InTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Verify the partitions that are not known to be open; return the rejected ones.

        A request queued behind one whose transaction was busy gets the same error: verified on
        its own it might be appended, without the records that precede its own.
        """
        unverified = self._unverified(transaction)
        if self._verifier is None:
            return dict.fromkeys(unverified, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        whole = transaction._replace(partitions=())
        rejected = {
            at: code
            for note in ticket.notes
            if isinstance(note, Busy) and note.transaction == whole
            for at, code in note.rejected.items()
            if at in unverified
        }
        left = tuple(each for each in unverified if each not in rejected)
        if left:
            rejected |= await self._verifier.verify(transaction._replace(partitions=left))
        busy = {at: code for at, code in rejected.items() if code in TRY_AGAIN}
        if busy:
            ticket.note = Busy(whole, busy)
        return {at: producer_error(code, version) for at, code in rejected.items()}


def _failed_result(index: int, partition: Partition | None, fault: Fault) -> PartitionResult:
    """Return the result of a batch that was not appended."""
    start = -1
    if partition is not None and not isinstance(fault, _WITHOUT_LOG_START):
        start = partition.log.log_start_offset
    if isinstance(fault, RecordsRejected | TimestampsRejected):
        return PartitionResult(
            index, fault.code, -1, -1, start, fault.errors, error_message=str(fault)
        )
    return PartitionResult(index, fault.code, log_start_offset=start)
