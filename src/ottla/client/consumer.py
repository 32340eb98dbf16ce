"""A consumer without a group: reads partitions from given offsets, batch by batch.

    async with open_reader(cluster, {TopicPartition("greetings", 0): Offset(0)}) as reader:
        for fetched in await reader.poll():
            for record in fetched.records():
                ...

The caller assigns the partitions. `poll` keeps one fetch in flight per leader and returns when the
first of them completes, so that a slow leader does not delay the others. Positions advance over
markers and aborted transactions, too.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from ottla.client import requests
from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.fetched import Fetched, read_fetched
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.types import NodeId, Offset, TopicPartition

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_SLACK_MS: Final = 30_000
"""How long a fetch may take beyond its ``max_wait_ms``."""


class ReaderOptions(requests.FetchLimits, frozen=True, kw_only=True):
    """Options of a reader. ``failures_max``: consecutive failed fetches before `poll` raises."""

    is_committed_only: bool = True
    failures_max: int = 20


class _Answered(msgspec.Struct, frozen=True):
    """The result of a fetch: a reply or an error."""

    leader: NodeId
    asked: Mapping[TopicPartition, Offset]
    reply: FetchResponse | None
    error: Exception | None = None


class Reader:
    """Reads partitions. Created by `open_reader`."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, Offset], options: ReaderOptions
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._positions = dict(positions)
        self._ends: dict[TopicPartition, Offset] = {}
        self._in_flight: dict[NodeId, asyncio.Task[_Answered]] = {}
        self._failures = 0
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def positions(self) -> dict[TopicPartition, Offset]:
        """The next offset to read of each partition."""
        return dict(self._positions)

    @property
    def is_at_end(self) -> bool:
        """Whether every partition was read up to its last known end."""
        return all(
            partition in self._ends and offset >= self._ends[partition]
            for partition, offset in self._positions.items()
        )

    async def poll(self) -> list[Fetched]:
        """Return the result of the next fetch that completes; empty if it waited in vain.

        Raises:
            Refused: a partition cannot be read: its offset is out of range, it does not exist, or
                access is denied. NoBroker, ConnectionLost: too many consecutive failures.
            CorruptBatch, RecordTooLarge: the response is invalid.
        """
        await self._begin_fetches()
        if not self._in_flight:
            return []
        done, _ = await asyncio.wait(self._in_flight.values(), return_when=asyncio.FIRST_COMPLETED)
        found: list[Fetched] = []
        for leader, task in list(self._in_flight.items()):
            if task in done:
                del self._in_flight[leader]
                found += await self._take(task.result())
        return found

    # -- requests --------------------------------------------------------------

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
            if leader_id not in self._in_flight:
                task = tasks.create_task(self._fetch(leader_id, asked))
                self._in_flight[leader_id] = task

    async def _fetch(self, leader: NodeId, asked: Mapping[TopicPartition, Offset]) -> _Answered:
        """Fetch once; an error is returned, so that it does not cancel the other fetches."""
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
        positions: dict[TopicPartition, requests.FetchPosition] = {}
        for partition, offset in asked.items():
            topic = await self._cluster.topic(partition.topic)
            leader = await self._cluster.leader_of(partition, attempts_max=1)
            position = requests.FetchPosition(topic.topic_id, offset, leader.epoch)
            positions[partition] = position
        options = self._options
        return requests.fetch(positions, options, committed=options.is_committed_only)

    # -- responses -------------------------------------------------------------

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
                continue  # the position was changed by `seek` in the meantime
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
            aborted = requests.aborted_in(data, committed=True)
        return read_fetched(
            partition, offset, data.records or b"", end_offset=Offset(end), aborted=aborted
        )

    async def _failed(
        self,
        partitions: Mapping[TopicPartition, Offset] | Sequence[TopicPartition],
        error: Exception,
    ) -> None:
        """Raise a permanent error; otherwise refresh the leaders after a pause."""
        self._failures += 1
        if isinstance(error, Refused) and not is_retriable(error.code):
            raise error
        if self._failures > self._options.failures_max:
            raise error
        for partition in partitions:
            self._cluster.forget(partition.topic)
        await self._cluster.pause(min(self._failures, 10))

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Continue at another offset; the result of a fetch in flight is discarded."""
        assert partition in self._positions
        self._positions[partition] = offset
        self._ends.pop(partition, None)

    def add(self, partition: TopicPartition, offset: Offset) -> None:
        """Read another partition, too, from the next fetch of its leader on."""
        self._positions[partition] = offset

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(partition, None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Reader"]:
        """Run fetches within a block; they are cancelled at its end."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                yield self
                for task in self._in_flight.values():
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
    """Open a reader for a block; exceptions of the block are raised unchanged."""
    reader = Reader(cluster, positions, options or ReaderOptions())
    async with reader.running():
        yield reader
