"""Asks a broker for the ends of its logs, with requests that any Kafka broker serves (KIP-966).

    ListOffsets, latest      -> the end of each log
    Fetch of the last offset -> the last batch, whose header has the leader epoch that wrote it

Both use the debugging replica id -2: a replica answers it although it does not lead, up to the end
of its log. Kafka has no request of its own for this yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from ottla.client.connection import Connection
from ottla.controller.unclean_recovery import LeaderlessPartition, LogState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.records.batch import read_header
from ottla.protocol.types import NO_EPOCH, TopicIdPartition

log = logging.getLogger(__name__)

POLL_MS: Final = 3_000
"""How long a broker has to answer: it is alive, and partitions have no leader meanwhile."""

_DEBUGGER: Final = -2
_LATEST: Final = -1
# The last version with topic names, and with the replica id in the field that every Kafka reads.
_FETCH_VERSION: Final = 12

Ends = dict[TopicIdPartition, int]


class LogPolls(msgspec.Struct, frozen=True):
    """Polls brokers, each over a connection of its own for one poll."""

    dial: Callable[[int], Awaitable[Connection]]
    timeout_ms: int = POLL_MS

    async def ask(
        self, broker_id: int, leaderless: Sequence[LeaderlessPartition]
    ) -> dict[TopicIdPartition, LogState] | None:
        """Return the log ends that a broker reports, without failed ones; None if unreachable."""
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                connection = await self.dial(broker_id)
                try:
                    return await self._ask(connection, leaderless)
                finally:
                    await connection.close()
        except (OSError, TimeoutError, Fault) as error:
            log.info("replica did not answer broker=%d reason=%s", broker_id, error)
            return None

    async def _ask(
        self, connection: Connection, leaderless: Sequence[LeaderlessPartition]
    ) -> dict[TopicIdPartition, LogState]:
        ends = await self._ends(connection, leaderless)
        found: dict[TopicIdPartition, LogState] = {}
        # One after the other: each response contains a whole batch.
        for each in leaderless:
            end = ends.get(each.at)
            if end is not None:
                epoch = NO_EPOCH if end == 0 else await self._last_epoch(connection, each, end)
                found[each.at] = LogState(epoch, end)
        return found

    async def _ends(
        self, connection: Connection, leaderless: Sequence[LeaderlessPartition]
    ) -> Ends:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for each in leaderless:
            partition = ListOffsetsPartition(each.at.partition, NO_EPOCH, _LATEST)
            by_topic.setdefault(each.topic, []).append(partition)
        topics = [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]
        request = ListOffsetsRequest(replica_id=_DEBUGGER, topics=topics)
        response = await connection.send(request, timeout_ms=self.timeout_ms)
        assert isinstance(response, ListOffsetsResponse)
        return _ends_in(response, leaderless)

    async def _last_epoch(
        self, connection: Connection, leaderless: LeaderlessPartition, end: int
    ) -> int:
        """Return the leader epoch of the batch with the last offset; -1 if it was deleted."""
        request_partition = FetchPartition(
            partition=leaderless.at.partition, fetch_offset=end - 1, partition_max_bytes=1
        )
        request = FetchRequest(
            replica_id=_DEBUGGER,
            max_bytes=1,
            topics=[FetchTopic(leaderless.topic, partitions=[request_partition])],
        )
        response = await connection.send(
            request, version=_FETCH_VERSION, timeout_ms=self.timeout_ms
        )
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE and partition.records:
                    return int(read_header(partition.records).leader_epoch)
        return NO_EPOCH


def _ends_in(response: ListOffsetsResponse, leaderless: Iterable[LeaderlessPartition]) -> Ends:
    known = {(each.topic, each.at.partition): each.at for each in leaderless}
    return {
        at: partition.offset
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
        and partition.offset >= 0
        and (at := known.get((topic.name, partition.partition_index))) is not None
    }
