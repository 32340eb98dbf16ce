"""Appends batches to partitions of the target at given offsets, or not at all.

The sequence number of a batch is the offset that it must get, counted from where the copy began. A
leader that has the batch already answers as if it had appended it; one that ends elsewhere rejects
it. So it does not matter how often a batch is sent, or by how many processes: after any failure
the caller reads where the partition ends, and continues there.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ottla.client import requests
from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.mirror.pieces import Piece, sequence_at, stamp
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import NodeId, TopicPartition

ACKS_ALL: Final = -1
IN_FLIGHT_MAX: Final = 5
"""Batches of one partition in flight: a leader recognizes duplicates of as many."""
REQUEST_TIMEOUT_MS: Final = 30_000
# The partition does not end where the batch belongs.
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
_LOST: Final = (NoBroker, ConnectionLost, RequestTimedOut)


class ForeignWrite(Exception):
    """Somebody else writes to a partition of the target: its offsets mean nothing any more."""


class AppendQueue(msgspec.Struct, eq=False):
    """The batches for one partition. ``first`` is the target offset where its copy began."""

    first: int
    expected: int
    pieces: deque[Piece]
    failure: Exception | None = None


class Appender:
    """Sends batches under one producer id."""

    def __init__(self, cluster: Cluster, producer_id: int, producer_epoch: int) -> None:
        self._cluster = cluster
        self._id = producer_id
        self._epoch = producer_epoch

    async def append(self, queues: Mapping[TopicPartition, AppendQueue]) -> None:
        """Append every batch of every queue; a queue that fails stops and keeps its ``failure``.

        Raises:
            ForeignWrite: a batch got another offset.
        """
        by_leader: dict[NodeId, dict[TopicPartition, AppendQueue]] = {}
        for partition, queue in queues.items():
            try:
                leader = await self._cluster.leader_of(partition)
            except (Refused, *_LOST) as error:
                queue.failure = error
            else:
                by_leader.setdefault(leader.node_id, {})[partition] = queue
        await asyncio.gather(
            *(self._append_to(leader, theirs) for leader, theirs in by_leader.items())
        )

    async def _append_to(
        self, leader: NodeId, queues: Mapping[TopicPartition, AppendQueue]
    ) -> None:
        """Keep up to `IN_FLIGHT_MAX` requests in flight, each with one batch per partition."""
        try:
            async with asyncio.TaskGroup() as tasks:
                in_flight: deque[asyncio.Task[None]] = deque()
                while step := self._next_step(queues):
                    in_flight.append(tasks.create_task(self._send(leader, queues, step)))
                    if len(in_flight) == IN_FLIGHT_MAX:
                        await in_flight.popleft()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def _next_step(
        self, queues: Mapping[TopicPartition, AppendQueue]
    ) -> dict[TopicPartition, tuple[int, Piece]]:
        """Take the next batch of each queue, with the offset that it must get."""
        step = {}
        for partition, queue in queues.items():
            if queue.failure is None and queue.pieces:
                piece = queue.pieces.popleft()
                step[partition] = (queue.expected, piece)
                queue.expected += piece.count
        return step

    async def _send(
        self,
        leader: NodeId,
        queues: Mapping[TopicPartition, AppendQueue],
        step: Mapping[TopicPartition, tuple[int, Piece]],
    ) -> None:
        try:
            request = await self._request(queues, step)
            reply = await self._cluster.send_to(
                leader, request, ProduceResponse, timeout_ms=REQUEST_TIMEOUT_MS
            )
        except (Refused, *_LOST) as error:
            for partition in step:
                self._fail(partition, queues[partition], error)
            return
        ids = {each.topic: self._cluster.known_id(each.topic) for each in step}
        for partition, answer in requests.read_produced(reply, ids).items():
            self._take(
                partition, queues[partition], step[partition][0], answer.error_code,
                answer.base_offset, answer.error_message,
            )  # fmt: skip

    async def _request(
        self,
        queues: Mapping[TopicPartition, AppendQueue],
        step: Mapping[TopicPartition, tuple[int, Piece]],
    ) -> ProduceRequest:
        batches = {
            partition: stamp(
                piece,
                Producer(self._id, self._epoch, sequence_at(offset, queues[partition].first)),
            )
            for partition, (offset, piece) in step.items()
        }
        topics = {each.topic for each in step}
        ids = {name: (await self._cluster.topic(name)).topic_id for name in topics}
        return requests.produce(batches, ids, acks=ACKS_ALL, timeout_ms=REQUEST_TIMEOUT_MS)

    def _take(
        self,
        partition: TopicPartition,
        queue: AppendQueue,
        expected: int,
        code: int,
        base_offset: int,
        message: str | None,
    ) -> None:
        if code == ErrorCode.NONE:
            if base_offset not in (expected, -1):
                raise ForeignWrite(
                    f"{partition}: a batch for offset {expected} was appended at {base_offset}: "
                    "something else writes to this partition of the target"
                )
            return
        self._fail(partition, queue, Refused(code, str(partition), message))

    def _fail(self, partition: TopicPartition, queue: AppendQueue, error: Exception) -> None:
        queue.failure = queue.failure or error
        self._cluster.forget(partition.topic)


def is_permanent(error: Exception) -> bool:
    """Say whether a queue failed for good: sending its batches again would not help."""
    if not isinstance(error, Refused):
        return False
    return not is_retriable(error.code) and error.code not in _ELSEWHERE


def queue_of(first: int, expected: int, pieces: Sequence[Piece]) -> AppendQueue:
    """Return a queue that begins at the offset ``expected``."""
    return AppendQueue(first, expected, deque(pieces))
