"""A producer: batches records and sends them in order, by default idempotently.

    async with open_producer(cluster) as producer:
        report = await producer.send("greetings", b"good morning", key=b"lars")
        metadata = await report             # its offset; raises if it was not acknowledged

Leaving the block sends the remaining records. One loop takes due batches from the accumulator and
sends those of one leader together; each partition has one batch in flight. A batch is retried until
``delivery_timeout_ms``; then it has failed, and it is unknown whether it was written.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from ottla.client import requests
from ottla.client.accumulator import (
    Accumulator,
    AccumulatorLimits,
    Batch,
    Outcome,
    ProducerRecord,
    RecordMetadata,
)
from ottla.client.cluster import Cluster, KnownTopic, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.partitioner import StickyPartitioner, partition_of_key
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut, UnsupportedVersion
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Header
from ottla.protocol.records.writer import Producer as ProducerIdentity
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, NodeId, TopicPartition

ACKS_ALL: Final = -1
_PRODUCER_ID_ATTEMPTS_MAX: Final = 20
# With these errors the broker has lost or fenced the sequence numbers of this producer.
_NEEDS_NEW_PRODUCER_ID: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_LOST: Final = (ConnectionLost, RequestTimedOut)

Report = asyncio.Future[RecordMetadata]


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a producer. An idempotent producer needs acks=all."""

    acks: int = ACKS_ALL
    is_idempotent: bool = True
    compression: Compression = Compression.NONE
    request_timeout_ms: int = 30_000
    may_create_topics: bool = True
    limits: AccumulatorLimits = msgspec.field(default_factory=AccumulatorLimits)


class Producer:
    """Sends records. Created by `open_producer`."""

    def __init__(self, cluster: Cluster, options: ProducerOptions) -> None:
        assert options.acks == ACKS_ALL or not options.is_idempotent, "idempotence needs acks=all"
        self._cluster = cluster
        self._options = options
        self._clock = cluster.ports.clock
        self._accumulator = Accumulator(options.limits)
        self._sticky = StickyPartitioner(cluster.ports.random.below)
        self._needs_id = options.is_idempotent
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_flushing = False
        self._is_closing = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Report:
        """Buffer a record; return a future of its outcome. Waits while the buffer is full.

        ``partition`` None: chosen by the key, else by `StickyPartitioner`. ``timestamp`` None: now.

        Raises:
            Refused: no such topic or partition. NoBroker: no broker responds.
        """
        known = await self._cluster.topic(topic, may_create=self._options.may_create_topics)
        at = TopicPartition(topic, self._choose(known, key, partition))
        report: Report = asyncio.get_running_loop().create_future()
        stamp = Millis(self._clock.now() if timestamp is None else timestamp)
        record = ProducerRecord(
            key, value, headers, stamp, lambda outcome: _settle(report, outcome)
        )
        while not self._accumulator.has_room(record.size):
            self._has_room.clear()
            await self._has_room.wait()
        if self._accumulator.append(at, record, self._clock.monotonic()) and key is None:
            self._sticky.move_on(topic, len(known.partitions))
        self._changed.set()
        return report

    def _choose(self, known: KnownTopic, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            if partition not in known.partitions:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{known.name}-{partition}")
            return partition
        if key is not None:
            return partition_of_key(key, len(known.partitions))
        return self._sticky.choose(known.name, len(known.partitions))

    async def flush(self) -> None:
        """Send all buffered records; return when all of them are acknowledged or have failed."""
        self._is_flushing = True
        self._changed.set()
        try:
            while not self._accumulator.is_empty:
                self._has_room.clear()
                await self._has_room.wait()
        finally:
            self._is_flushing = False

    # -- the loop --------------------------------------------------------------

    def stop(self) -> None:
        """Stop the send loop."""
        self._is_closing = True
        self._changed.set()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Send due batches until `stop`. Every request is a task of ``tasks``."""
        while not self._is_closing:
            self._changed.clear()
            if self._needs_id and not self._accumulator.is_empty:
                await self._init_producer_id()
            now = self._clock.monotonic()
            due = self._accumulator.drain(now, is_flushing=self._is_flushing)
            for leader, batches in (await self._by_leader(due)).items():
                tasks.create_task(self._deliver(leader, batches))
            if not due:
                await self._wait_due()

    async def _wait_due(self) -> None:
        due = self._accumulator.next_due(is_flushing=self._is_flushing)
        wait_s = None if due is None else max(due - self._clock.monotonic(), 0) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _by_leader(self, batches: Sequence[Batch]) -> dict[NodeId, list[Batch]]:
        """Group batches by leader; retry those without one later."""
        found: dict[NodeId, list[Batch]] = {}
        for batch in batches:
            try:
                leader = await self._cluster.leader_of(batch.partition, attempts_max=1)
            except (Refused, NoBroker, UnsupportedVersion) as error:
                self._retry(batch, error)
            else:
                found.setdefault(leader.node_id, []).append(batch)
        return found

    async def _init_producer_id(self) -> None:
        """Get a producer id, without which nothing can be sent."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        for attempt in range(_PRODUCER_ID_ATTEMPTS_MAX):
            try:
                reply = await self._cluster.send_any(request, InitProducerIdResponse)
            except NoBroker:
                if attempt + 1 == _PRODUCER_ID_ATTEMPTS_MAX:
                    raise
            else:
                if reply.error_code == ErrorCode.NONE:
                    identity = ProducerIdentity(reply.producer_id, reply.producer_epoch)
                    self._accumulator.begin_as(identity)
                    self._needs_id = False
                    return
                if not is_retriable(reply.error_code):
                    raise Refused(reply.error_code, "producer id")
            await self._cluster.pause(attempt)
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "producer id")

    # -- one request -----------------------------------------------------------

    async def _deliver(self, leader: NodeId, batches: Sequence[Batch]) -> None:
        try:
            request = await self._request(batches)
            if self._options.acks == 0:
                await (await self._cluster.connection(leader)).post(request)
                for batch in batches:
                    self._finish(batch)
                    batch.complete(-1)
                return
            timeout_ms = self._options.request_timeout_ms
            reply = await self._cluster.send_to(
                leader, request, ProduceResponse, timeout_ms=timeout_ms
            )
        except (Refused, NoBroker, UnsupportedVersion, *_LOST) as error:
            for batch in batches:
                self._cluster.forget(batch.partition.topic)
                self._retry(batch, error)
        else:
            self._take_reply(batches, reply)
        finally:
            self._changed.set()

    async def _request(self, batches: Sequence[Batch]) -> ProduceRequest:
        names = {batch.partition.topic for batch in batches}
        return requests.produce(
            {batch.partition: self._encode(batch) for batch in batches},
            {name: (await self._cluster.topic(name)).topic_id for name in names},
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
        )

    def _encode(self, batch: Batch) -> bytearray:
        assert batch.producer is not None
        return build_batch(
            batch.records(), compression=self._options.compression, producer=batch.producer
        )

    def _take_reply(self, batches: Sequence[Batch], reply: ProduceResponse) -> None:
        names = {batch.partition.topic for batch in batches}
        ids = {name: self._cluster.known_id(name) for name in names}
        answers = requests.read_produced(reply, ids)
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                self._retry(batch, Refused(ErrorCode.UNKNOWN_TOPIC_ID, str(batch.partition)))
            else:
                self._take_answer(batch, answer)

    def _take_answer(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._finish(batch)
            batch.complete(answer.base_offset if not code else -1, answer.log_append_time_ms)
            return
        error = Refused(code, str(batch.partition), answer.error_message)
        if is_retriable(code):
            self._cluster.forget(batch.partition.topic)
            self._retry(batch, error)
            return
        if code in _NEEDS_NEW_PRODUCER_ID:
            self._needs_id = self._options.is_idempotent
        else:
            self._accumulator.rewind(batch)
        self._finish(batch)
        batch.fail(*_errors_of(batch, answer))

    def _retry(self, batch: Batch, error: Exception) -> None:
        """Retry a batch later, or fail it if it has expired or the error is permanent."""
        now = self._clock.monotonic()
        is_final = isinstance(error, Refused) and not is_retriable(error.code)
        if is_final or self._accumulator.is_expired(batch, now):
            # It may or may not be in the log, so the next sequence number is unknown.
            self._needs_id = self._options.is_idempotent
            self._finish(batch)
            batch.fail(error)
            return
        fraction = self._cluster.ports.random.fraction()
        wait_ms = self._cluster.options.backoff.wait_ms(batch.attempts, fraction)
        self._accumulator.retry(batch, Millis(now + wait_ms))

    def _finish(self, batch: Batch) -> None:
        self._accumulator.done(batch)
        self._has_room.set()


def _errors_of(
    batch: Batch, answer: PartitionProduceResponse
) -> tuple[Refused, dict[int, Exception]]:
    """Return the error of a rejected batch, and those of the records that caused it (KIP-467)."""
    code, place = answer.error_code, str(batch.partition)
    if not answer.record_errors:
        return Refused(code, place, answer.error_message), {}
    own: dict[int, Exception] = {
        each.batch_index: Refused(
            code, place, each.batch_index_error_message or answer.error_message
        )
        for each in answer.record_errors
    }
    return Refused(code, place, "another record of its batch was rejected"), own


def _settle(report: Report, outcome: Outcome) -> None:
    if report.done():
        return
    if isinstance(outcome, RecordMetadata):
        report.set_result(outcome)
    else:
        report.set_exception(outcome)


@asynccontextmanager
async def open_producer(
    cluster: Cluster, options: ProducerOptions | None = None
) -> AsyncIterator[Producer]:
    """Open a producer for a block, then send the remaining records.

    Raises:
        Refused, NoBroker: no producer id was available. Exceptions of the block are raised
        unchanged; the remaining records are not sent then.
    """
    producer = Producer(cluster, options or ProducerOptions())
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(producer.run(tasks))
            yield producer
            await producer.flush()
            producer.stop()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
