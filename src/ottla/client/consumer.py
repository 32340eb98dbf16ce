"""Reads partitions from offsets that the caller chooses, batch by batch.

    async with open_reader(cluster, {TopicPartition("greetings", 0): Offset(0)}) as reader:
        for fetched in await reader.poll():
            for record in fetched.records():
                ...

There is no group here: who reads what is the caller's business. `poll` keeps one fetch under way
for each leader and returns when one of them brings something, so that a silent leader does not hold
the others up. Positions move past markers and aborted transactions too.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.fetched import Aborted, Fetched, read_fetched
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.types import NodeId, Offset, TopicPartition

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_SESSION_EPOCH: Final = -1
_SLACK_MS: Final = 30_000
"""What a fetch may take beyond the wait it asks for."""


class ReaderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to fetch. Sizes are bytes. ``failures_max``: fetches in a row that bring nothing but
    errors before `poll` raises.
    """

    is_committed_only: bool = True
    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20
    failures_max: int = 20


class _Answered(msgspec.Struct, frozen=True):
    """How a fetch ended: with a reply, or without one."""

    leader: NodeId
    asked: Mapping[TopicPartition, Offset]
    reply: FetchResponse | None
    error: Exception | None = None


class Reader:
    """Made by `open_reader`."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, Offset], options: ReaderOptions
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._positions = dict(positions)
        self._ends: dict[TopicPartition, Offset] = {}
        self._under_way: dict[NodeId, asyncio.Task[_Answered]] = {}
        self._failures = 0
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def positions(self) -> dict[TopicPartition, Offset]:
        """The offset each partition is read from next."""
        return dict(self._positions)

    @property
    def is_at_end(self) -> bool:
        """Whether every partition was read up to where it ended when last heard of."""
        return all(
            partition in self._ends and offset >= self._ends[partition]
            for partition, offset in self._positions.items()
        )

    async def poll(self) -> list[Fetched]:
        """Return what the next fetch that ends has brought; often nothing, when it waited.

        Raises:
            Refused: a partition cannot be read: its offset is out of range, it is gone, it is
                forbidden. NoBroker, ConnectionLost: too many failures in a row.
            CorruptBatch, RecordTooLarge: what came makes no sense.
        """
        await self._begin_fetches()
        if not self._under_way:
            return []
        done, _ = await asyncio.wait(self._under_way.values(), return_when=asyncio.FIRST_COMPLETED)
        found: list[Fetched] = []
        for leader, task in list(self._under_way.items()):
            if task in done:
                del self._under_way[leader]
                found += await self._take(task.result())
        return found

    # -- asking ----------------------------------------------------------------

    async def _begin_fetches(self) -> None:
        wanted: dict[NodeId, dict[TopicPartition, Offset]] = {}
        for partition, offset in self._positions.items():
            try:
                leader = await self._cluster.leader_of(partition, attempts_max=1)
            except (Refused, NoBroker) as error:
                await self._failed([partition], error)
            else:
                wanted.setdefault(leader.node_id, {})[partition] = offset
        tasks = self._tasks
        assert tasks is not None
        for leader_id, asked in wanted.items():
            if leader_id not in self._under_way:
                task = tasks.create_task(self._fetch(leader_id, asked))
                self._under_way[leader_id] = task

    async def _fetch(self, leader: NodeId, asked: Mapping[TopicPartition, Offset]) -> _Answered:
        """Ask once; a failure is an answer too, so that it ends nobody else's fetch."""
        try:
            request = await self._request(asked)
            timeout_ms = self._options.wait_ms_max + _SLACK_MS
            reply = await self._cluster.send_to(
                leader, request, FetchResponse, timeout_ms=timeout_ms
            )
        except (NoBroker, Refused, ConnectionLost, RequestTimedOut) as error:
            return _Answered(leader, asked, None, error)
        return _Answered(leader, asked, reply)

    async def _request(self, asked: Mapping[TopicPartition, Offset]) -> FetchRequest:
        options = self._options
        topics: dict[str, FetchTopic] = {}
        for partition, offset in asked.items():
            name = partition.topic
            known = await self._cluster.topic(name)
            leader = await self._cluster.leader_of(partition, attempts_max=1)
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=known.topic_id))
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=leader.epoch,
                    fetch_offset=offset,
                    partition_max_bytes=options.partition_bytes_max,
                )
            )
        return FetchRequest(
            max_wait_ms=options.wait_ms_max,
            min_bytes=options.bytes_min,
            max_bytes=options.bytes_max,
            isolation_level=READ_COMMITTED if options.is_committed_only else READ_UNCOMMITTED,
            session_epoch=NO_SESSION_EPOCH,
            topics=list(topics.values()),
        )

    # -- what came -------------------------------------------------------------

    async def _take(self, answered: _Answered) -> list[Fetched]:
        if answered.reply is None:
            assert answered.error is not None
            await self._failed(answered.asked, answered.error)
            return []
        if answered.reply.error_code != ErrorCode.NONE:
            error = Refused(answered.reply.error_code, f"fetch from broker {answered.leader}")
            await self._failed(answered.asked, error)
            return []
        found: list[Fetched] = []
        for partition, data in self._answers(answered):
            if data.error_code != ErrorCode.NONE:
                await self._failed([partition], Refused(data.error_code, str(partition)))
                continue
            self._failures = 0
            fetched = self._read(partition, answered.asked[partition], data)
            if self._positions[partition] != answered.asked[partition]:
                continue  # moved meanwhile: these are not the records that come next
            self._positions[partition] = fetched.next_offset
            self._ends[partition] = fetched.end_offset
            if fetched.batches:
                found.append(fetched)
        return found

    def _answers(self, answered: _Answered) -> list[tuple[TopicPartition, PartitionData]]:
        assert answered.reply is not None
        names = {self._cluster.known_id(each.topic): each.topic for each in answered.asked}
        found = []
        for topic in answered.reply.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition in answered.asked and partition in self._positions:
                    found.append((partition, data))
        return found

    def _read(self, partition: TopicPartition, offset: Offset, data: PartitionData) -> Fetched:
        end, aborted = data.high_watermark, None
        if self._options.is_committed_only:
            end = data.last_stable_offset
            aborted = [
                Aborted(each.producer_id, each.first_offset)
                for each in data.aborted_transactions or ()
            ]
        return read_fetched(
            partition, offset, data.records or b"", end_offset=Offset(end), aborted=aborted
        )

    async def _failed(
        self,
        partitions: Mapping[TopicPartition, Offset] | Sequence[TopicPartition],
        error: Exception,
    ) -> None:
        """Raise what will not get better; else look for the leaders again, after a pause."""
        self._failures += 1
        if isinstance(error, Refused) and not is_retriable(error.code):
            raise error
        if self._failures > self._options.failures_max:
            raise error
        for partition in partitions:
            self._cluster.forget(partition.topic)
        await self._cluster.pause(min(self._failures, 10))

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Read on from another offset; a fetch under way counts for nothing."""
        assert partition in self._positions
        self._positions[partition] = offset
        self._ends.pop(partition, None)

    def drop(self, partition: TopicPartition) -> None:
        """Do not read a partition any further."""
        self._positions.pop(partition, None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Reader"]:
        """Have a place for fetches under way; they end with the block."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                yield self
                for task in self._under_way.values():
                    task.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._tasks = None


@asynccontextmanager
async def open_reader(
    cluster: Cluster,
    positions: Mapping[TopicPartition, Offset],
    options: ReaderOptions | None = None,
) -> AsyncIterator[Reader]:
    """Give a reader for the length of a block; what the block raises comes out as it is."""
    reader = Reader(cluster, positions, options or ReaderOptions())
    async with reader.running():
        yield reader
