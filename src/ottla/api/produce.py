"""Produce: append the batches of a request to the partitions led here, and say where they are.

Everything up to the append happens while the handler is called, so in the order in which a
connection sends: no task, no future, no copy for acks=0 and acks=1. With acks=all a future is
handed out unless the high watermark has already passed the records; the request's bytes are
not needed for it. Only a transaction that is new to a partition takes longer before it is
appended: it is verified first (KIP-890), for which its records are copied.

One partition's refusal is its own: the others are appended and answered beside it. A body that
is no request appends nothing.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from ottla.api.cluster import INTERNAL_TOPICS
from ottla.api.current_leaders import NodeEndpoint, current_leader, endpoint_of
from ottla.api.partition_wait import PartitionWait, Subscribe
from ottla.api.produce_lane import ProduceLane
from ottla.api.produce_reply import (
    CURRENT_LEADER_VERSION_FIRST,
    PartitionResult,
    TopicResult,
    pack_produce,
)
from ottla.api.produce_request import ProduceBody, parse_produce
from ottla.api.record_validation import (
    RecordRules,
    RecordsRejected,
    TimestampsRejected,
    rules_of,
    take_batch,
    validate_batch,
)
from ottla.api.replies import NO_REPLY, Answer, Reply, Result
from ottla.api.routes import Caller, Route
from ottla.config.generated import TopicConfig
from ottla.metadata.image import Image
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.api_keys import ApiKey
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
    UnsupportedMagic,
)
from ottla.protocol.frames import Request
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.replication.partition import ALL, Partition
from ottla.replication.partitions import Partitions
from ottla.runtime.ports import Clock
from ottla.storage.partition_names import TopicPartition

log = logging.getLogger(__name__)

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics, as in Kafka."""

ADDING_VERSION_FIRST: Final = 12
"""From here on a transactional produce adds its partition to the transaction (KIP-890)."""

ABORTABLE_VERSION_FIRST: Final = 11
"""Before it, a client knows a transaction that it has to abort by INVALID_TXN_STATE."""

RULES_MAX: Final = 10_000
"""Topic configurations whose rules are kept worked out; then all are forgotten."""

# Refusals that say nothing of the log, not even where it starts.
_WITHOUT_LOG_START: Final = (
    *(UnknownTopicOrPartition, NotLeader, RecordTooLarge, BatchTooLargeForSegment),
    *(CorruptBatch, StorageFailed),
)
# What an older client would not try again is told as something that it does.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class InTransaction(NamedTuple):
    """The part of a request that has to be known to a transaction before it is appended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    may_add: bool
    """Whether the partitions are added to the transaction; else they are to be in it."""


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transaction (KIP-890)."""

    def verify(self, wanted: InTransaction) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Return what is wrong, by partition; nothing for those that may be appended to."""
        ...


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
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._clock = clock
        self._verifier = verifier
        self._events: TopicEvents = events or NoTopicEvents()
        # By identity: a changed configuration is another object, and this one keeps it alive.
        self._rules: dict[int, tuple[TopicConfig, RecordRules]] = {}

    def routes(self) -> tuple[Route, ...]:
        """Return the part of a route table that takes records."""
        lane = ProduceLane(self._partitions, self._clock, self._events, self._rules_of)
        return (Route(ApiKey.PRODUCE, self.handle, raw=True, keeps_body=False, quick=lane.serve),)

    def handle(self, caller: Caller, request: Request, body: memoryview) -> Reply:
        """Serve one request.

        Raises:
            ProtocolFault: the body is none.
        """
        produce = parse_produce(body, request.version)
        terms = _Terms(caller, request.version, produce.acks, self._clock.now())
        transactional = _transactional(produce)
        if transactional:
            return self._in_transaction(terms, produce, transactional)
        return self._append_all(terms, produce, {})

    # -- append ----------------------------------------------------------------

    def _append_all(
        self, terms: _Terms, produce: ProduceBody, refused: Mapping[TopicPartition, ErrorCode]
    ) -> Reply:
        """Append everything but what is ``refused`` beforehand, and answer or wait."""
        if terms.acks == 1 and not refused and len(produce.topics) == 1:
            topic, partitions = produce.topics[0]
            if len(partitions) == 1:
                return self._append_single(terms, topic, *partitions[0])
        reply = _Reply(terms)
        results = reply.results
        waits: dict[int, Subscribe] = {}
        for topic, partitions in produce.topics:
            name = topic if isinstance(topic, str) else self._name_of(topic)
            reply.topics.append((topic, len(partitions)))
            for index, records in partitions:
                reply.names.append(name)
                error = refused.get(TopicPartition(name, index)) if refused else None
                if error is not None:
                    results.append(_unverified(index, error))
                    continue
                found = self._append(terms, (topic, name, index), records)
                if isinstance(found, PartitionResult):
                    results.append(found)
                    continue
                partition, result, end = found
                if terms.acks == ALL:
                    waits[len(results)] = partial(partition.when_replicated, end)
                results.append(result)
        if not waits:
            return self._answer(reply)
        waiting = PartitionWait(reply.ended, partial(self._answer, reply))
        return waiting.begin(waits, produce.timeout_ms)

    def _append_single(
        self, terms: _Terms, topic: str | Uuid, index: int, records: memoryview | None
    ) -> Result:
        """Append the one batch of a request that does not wait: what small requests are."""
        name = topic if isinstance(topic, str) else self._name_of(topic)
        found = self._append(terms, (topic, name, index), records)
        if not isinstance(found, PartitionResult):
            return [pack_produce(terms.version, ((topic, (found[1],)),))]
        reply = _Reply(terms)
        reply.topics.append((topic, 1))
        reply.names.append(name)
        reply.results.append(found)
        return self._answer(reply)

    def _append(
        self, terms: _Terms, at: tuple[str | Uuid, str, int], records: memoryview | None
    ) -> tuple[Partition, PartitionResult, Offset] | PartitionResult:
        """Append one batch; return where it is and its end, or why it is not."""
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

    def _in_transaction(
        self,
        terms: _Terms,
        produce: ProduceBody,
        batches: list[tuple[str | Uuid, int, BatchHeader]],
    ) -> Reply:
        """Append batches of a transaction, after those that are new to it are verified."""
        transactional_id = produce.transactional_id
        if transactional_id is None:
            return self._fail(terms, produce, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        producers = {(header.producer_id, header.producer_epoch) for _, _, header in batches}
        if len(producers) > 1:
            return self._fail(terms, produce, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        (producer,) = producers
        named = (
            TopicPartition(topic if isinstance(topic, str) else self._name_of(topic), index)
            for topic, index, _ in batches
        )
        unverified = tuple(each for each in named if not self._is_open(each, *producer))
        if not unverified:
            return self._append_all(terms, produce, {})
        if self._verifier is None:
            nobody = dict.fromkeys(unverified, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return self._append_all(terms, produce, nobody)
        may_add = terms.version >= ADDING_VERSION_FIRST
        wanted = InTransaction(transactional_id, *producer, unverified, may_add)
        return self._verify_and_append(terms, _owned(produce), self._verifier.verify(wanted))

    def _is_open(self, at: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        """Say whether the transaction is known here, and so was verified."""
        found = self._partitions.get(*at)
        return found is not None and found.log.producers.has_open_transaction(
            producer_id, producer_epoch
        )

    async def _verify_and_append(
        self,
        terms: _Terms,
        produce: ProduceBody,
        verified: Awaitable[Mapping[TopicPartition, ErrorCode]],
    ) -> Result:
        refused = await verified
        if terms.version < ABORTABLE_VERSION_FIRST:
            refused = {at: _for_older(code) for at, code in refused.items()}
        reply = self._append_all(terms, produce, refused)
        return await reply if isinstance(reply, Awaitable) else reply

    def _fail(self, terms: _Terms, produce: ProduceBody, code: ErrorCode) -> Result:
        """Refuse the whole request."""
        reply = _Reply(terms)
        for topic, partitions in produce.topics:
            reply.topics.append((topic, len(partitions)))
            reply.results += [PartitionResult(index, code) for index, _ in partitions]
        return self._answer(reply)


def _transactional(produce: ProduceBody) -> list[tuple[str | Uuid, int, BatchHeader]]:
    """Return the batches that say they belong to a transaction."""
    return [
        (topic, index, header)
        for topic, partitions in produce.topics
        for index, records in partitions
        if records is not None
        and len(records) >= HEADER_BYTES
        and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL
        and (header := _header(records)) is not None
    ]


def _header(records: memoryview) -> BatchHeader | None:
    """Return the header of what may be a batch; whoever appends it says what is wrong with it."""
    try:
        return read_header(records)
    except (CorruptBatch, UnsupportedMagic):
        return None


def _owned(produce: ProduceBody) -> ProduceBody:
    """Return the request with records of its own, to outlive the buffer it came in."""
    topics = [
        (topic, [(i, None if r is None else memoryview(bytearray(r))) for i, r in partitions])
        for topic, partitions in produce.topics
    ]
    return produce._replace(topics=topics)


def _for_older(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code


def _unverified(index: int, error: ErrorCode) -> PartitionResult:
    """Say that a batch was not appended for its transaction's sake."""
    if error is ErrorCode.INVALID_TXN_STATE:
        reason = "The partition is not part of the transaction."
        return PartitionResult(index, error, error_message=reason)
    if error in _TRY_AGAIN:
        reason = f"The transaction could not be verified: {error.name}."
        return PartitionResult(index, ErrorCode.NOT_ENOUGH_REPLICAS, error_message=reason)
    return PartitionResult(index, error)


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
