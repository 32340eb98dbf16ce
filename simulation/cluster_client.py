"""Simulated clients of a cluster: idempotent producers, and consumers. Their hosts never fail.

Both use the newest leader epoch they have seen, as Kafka's clients do, and so detect a former
leader. They retry forever, and treat any answer that the protocol does not allow as a broken
invariant: a sequence out of order, an offset out of range, a diverging log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.connection import Connection, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, Millis, Offset, Uuid
from ottla.runtime.ports import Address
from simulation.cluster_node import BROKER_PORT, name_of
from simulation.cluster_watch import TOPIC, ClusterWatch, Value, decode_value
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports

IMPATIENT: Final = Options(connect_timeout_ms=300)
REQUEST_TIMEOUT_MS: Final = 900
ACKS_TIMEOUT_MS: Final = 500
FETCH_WAIT_MS: Final = 60
LATEST: Final = -1
# Batches in flight per partition: fewer than the five that a broker remembers.
WINDOW_MAX: Final = 3
# Attempts per batch before an out-of-order sequence is an error: by then all committed batches are
# seen.
TRIES_MAX: Final = 30

# Errors that a client must expect while faults are injected; it retries.
EXPECTED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader, as far as a client knows."""

    node_id: int
    epoch: int
    replicas: tuple[int, ...]


class ClusterClient:
    """Common parts of the clients: connections, and the leaders of partitions."""

    def __init__(self, name: str, ports: Ports, watch: ClusterWatch, nodes: int) -> None:
        self.name = name
        self.ports = ports
        self.watch = watch
        self._nodes = nodes
        self._connections: dict[int, Connection] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[str, Uuid] = {}

    async def ask(
        self,
        node_id: int,
        request: Message,
        *,
        version: int | None = None,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Message | None:
        """Return the response; None if there was none."""
        try:
            connection = await self.connect(node_id)
            return await connection.send(request, version=version, timeout_ms=timeout_ms)
        except (OSError, Fault):
            return None

    async def connect(self, node_id: int) -> Connection:
        """Return the connection to a node, opened if needed. Raises OSError or a `Fault`."""
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_open:
            connection = self._connections[node_id] = await Connection.open(
                self.ports.network, Address(name_of(node_id), BROKER_PORT), options=IMPATIENT
            )
        return connection

    def anybody(self) -> int:
        """Return a random node."""
        return 1 + self.ports.random.below(self._nodes)

    async def leader(self, index: int, topic: str = TOPIC) -> Leader | None:
        """Return a partition's leader; None while none is known."""
        if (topic, index) not in self._leaders:
            await self._refresh(topic)
        return self._leaders.get((topic, index))

    def forget(self, index: int, topic: str = TOPIC) -> None:
        """Discard the known leader, so that it is looked up again."""
        self._leaders.pop((topic, index), None)

    async def _refresh(self, name: str) -> None:
        request = MetadataRequest(
            [MetadataRequestTopic(ZERO_UUID, name)], allow_auto_topic_creation=False
        )
        response = await self.ask(self.anybody(), request)
        if not isinstance(response, MetadataResponse) or not response.topics:
            return
        topic = response.topics[0]
        if topic.error_code:
            return
        self.topic_ids[name] = topic.topic_id
        for each in topic.partitions:
            key = (name, each.partition_index)
            # A node with an older image may report an older leader epoch: never go back.
            if each.leader_epoch < self._epochs.get(key, -1):
                continue
            self._epochs[key] = each.leader_epoch
            self._leaders.pop(key, None)
            if each.leader_id >= 0:
                self._leaders[key] = Leader(
                    each.leader_id, each.leader_epoch, tuple(each.replica_nodes)
                )

    def expect(self, error: ErrorCode, index: int) -> None:
        """Accept an expected error, and forget the leader.

        Raises:
            InvariantBroken: the error must not happen here.
        """
        self.watch.refused += 1
        if error not in EXPECTED:
            raise InvariantBroken(f"{self.name} was rejected without reason: {index} {error.name}")
        self.forget(index)


@dataclass(slots=True)
class Pending:
    """A batch that is not acknowledged yet."""

    sequence: int
    values: tuple[Value, ...]
    tries: int = 0


@dataclass(slots=True)
class Outbox:
    """A producer's batches for one partition, in order."""

    next_sequence: int = 0
    pending: list[Pending] = field(default_factory=list)


class ClusterProducer(ClusterClient):
    """Write numbered values with acks=all, several batches in flight, each retried."""

    def __init__(self, name: str, ports: Ports, watch: ClusterWatch, nodes: int) -> None:
        super().__init__(name, ports, watch, nodes)
        self._outboxes = [Outbox() for _ in watch.partitions]
        self._producer_id = -1

    async def run(self) -> None:
        """Run until the watch ends the clients and everything is acknowledged."""
        random = self.ports.random
        while self._producer_id < 0:
            await self._begin()
        while not self.watch.is_over or any(box.pending for box in self._outboxes):
            await asyncio.sleep(0.02 + 0.1 * random.fraction())
            index = random.below(len(self._outboxes))
            if self.watch.is_over and not self._outboxes[index].pending:
                continue
            await self._deliver(index, self._outboxes[index])

    async def _begin(self) -> None:
        await asyncio.sleep(0.05)
        response = await self.ask(self.anybody(), InitProducerIdRequest(None, -1))
        if isinstance(response, InitProducerIdResponse) and not response.error_code:
            self._producer_id = response.producer_id

    def _fill(self, box: Outbox) -> None:
        if any(batch.tries for batch in box.pending):
            return  # never send past a rejected batch: a broker remembers five batches
        random = self.ports.random
        wanted = 1 + random.below(WINDOW_MAX)
        while len(box.pending) < wanted and not self.watch.is_over:
            count = 1 + random.below(3)
            numbers = range(box.next_sequence, box.next_sequence + count)
            values = tuple(Value(self.name, number) for number in numbers)
            box.pending.append(Pending(box.next_sequence, values))
            box.next_sequence += count

    async def _deliver(self, index: int, box: Outbox) -> None:
        """Send the pending batches in order without waiting; keep those not acknowledged."""
        leader = await self.leader(index)
        if leader is None:
            return
        try:
            await self.connect(leader.node_id)  # all use one connection, in order
        except (OSError, Fault):
            self.forget(index)
            return
        self._fill(box)
        sent = list(box.pending)
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(self.ask(leader.node_id, self._request(index, each)))
                for each in sent
            ]
        for each, task in zip(sent, asked, strict=True):
            each.tries += 1
            self.watch.retried += each.tries > 1
            self._take_in(index, box, each, task.result())

    def _request(self, index: int, batch: Pending) -> ProduceRequest:
        now = self.ports.clock.now()
        records = [
            Record(Offset(at), Millis(now), None, value.encode())
            for at, value in enumerate(batch.values)
        ]
        data = build_batch(records, producer=Producer(self._producer_id, 0, batch.sequence))
        topic = TopicProduceData(TOPIC, self.topic_ids[TOPIC], [PartitionProduceData(index, data)])
        return ProduceRequest(acks=-1, timeout_ms=ACKS_TIMEOUT_MS, topic_data=[topic])

    def _take_in(self, index: int, box: Outbox, batch: Pending, response: Message | None) -> None:
        if not isinstance(response, ProduceResponse):
            self.forget(index)
            return
        answer = response.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self.watch.acked(index, answer.base_offset, batch.values)
            box.pending.remove(batch)
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and box.pending[0] is not batch:
            self.forget(index)  # the batch before it was rejected or is in flight
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.tries < TRIES_MAX:
            self._look_for(index, box, batch)
        else:
            self.expect(error, index)

    def _look_for(self, index: int, box: Outbox, batch: Pending) -> None:
        """Drop a batch that is in the log but that the broker has forgotten.

        A broker detects retries by the last five batches; after a restart it remembers only the
        last (Kafka's snapshots hold no more). Any other batch is retried, and is an error if it
        stays out of order.
        """
        self.forget(index)
        if all(value in self.watch.partitions[index].places for value in batch.values):
            self.watch.forgotten += 1
            box.pending.remove(batch)


class ClusterConsumer(ClusterClient):
    """Read from the start, over and over, mostly from leaders, and ask for the end offset."""

    def __init__(self, name: str, ports: Ports, watch: ClusterWatch, nodes: int) -> None:
        super().__init__(name, ports, watch, nodes)
        self.positions = [0 for _ in watch.partitions]
        self._epoch_read = [-1 for _ in watch.partitions]
        self._end_seen = [0 for _ in watch.partitions]

    async def run(self) -> None:
        """Read until the watch ends the clients and everything committed is read."""
        random = self.ports.random
        while not self.watch.is_over or not self._has_all():
            await asyncio.sleep(0.02 + 0.1 * random.fraction())
            index = random.below(len(self.positions))
            if random.below(4) == 0:
                await self._ask_end(index)
            else:
                await self._fetch(index)
            if not self.watch.is_over and random.below(25) == 0:
                self.positions[index], self._epoch_read[index] = 0, -1

    def _has_all(self) -> bool:
        ends = [known.end for known in self.watch.partitions]
        return all(at >= end for at, end in zip(self.positions, ends, strict=True))

    async def _fetch(self, index: int) -> None:
        leader = await self.leader(index)
        if leader is None:
            return
        node_id = leader.node_id
        if self.ports.random.below(5) == 0:
            node_id = leader.replicas[self.ports.random.below(len(leader.replicas))]
        wanted = FetchPartition(
            index,
            leader.epoch,
            self.positions[index],
            last_fetched_epoch=self._epoch_read[index],
            partition_max_bytes=4096,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            topics=[FetchTopic(TOPIC, self.topic_ids[TOPIC], [wanted])],
        )
        response = await self.ask(node_id, request)
        if not isinstance(response, FetchResponse) or response.error_code:
            self.forget(index)
            return
        data = response.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and node_id != leader.node_id:
            return  # a follower that lags
        if error is not ErrorCode.NONE:
            self.expect(error, index)
            return
        self._take_in(index, data, is_leader=node_id == leader.node_id)

    def _take_in(self, index: int, data: PartitionData, *, is_leader: bool) -> None:
        if data.diverging_epoch.end_offset >= 0 and is_leader:
            raise InvariantBroken(
                f"{self.name} has read what is no part of {index}: at {self.positions[index]}, "
                f"{data.diverging_epoch}"
            )
        records: Sequence[Record] = ()
        for position, header in batches(data.records or b""):
            records = read_records(data.records or b"", position)
            for record in records:
                if record.offset >= self.positions[index]:
                    self._read(index, record)
                    self._epoch_read[index] = header.leader_epoch
        self._end_seen[index] = max(self._end_seen[index], self.positions[index])

    def _read(self, index: int, record: Record) -> None:
        if record.offset != self.positions[index]:
            raise InvariantBroken(f"{self.name}: {record} at {self.positions[index]} of {index}")
        self.watch.was_read(index, record.offset, decode_value(record.value))
        self.positions[index] = record.offset + 1

    async def _ask_end(self, index: int) -> None:
        """Ask the leader for the end offset; it must never decrease."""
        leader = await self.leader(index)
        if leader is None:
            return
        topic = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(index, leader.epoch, LATEST)])
        response = await self.ask(leader.node_id, ListOffsetsRequest(-1, 0, [topic]))
        if not isinstance(response, ListOffsetsResponse):
            self.forget(index)
            return
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            self.expect(ErrorCode(answer.error_code), index)
            return
        if answer.offset < self._end_seen[index]:
            raise InvariantBroken(
                f"{self.name}: {index} ends at {answer.offset}, was {self._end_seen[index]}"
            )
        self._end_seen[index] = answer.offset
