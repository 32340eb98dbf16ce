"""Look up offsets by timestamp or special value, in many partitions at once."""

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.consumer import READ_COMMITTED, READ_UNCOMMITTED
from ottla.client.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffset,
    AtTime,
    BeforeEnd,
    OffsetSpec,
    before_end,
)
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.types import NodeId, Offset, TopicPartition

_ATTEMPTS_MAX: Final = 10
_CONSUMER: Final = -1


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, is_committed_only: bool = False
) -> dict[TopicPartition, Offset | None]:
    """Return the offset for each timestamp; None if no record is that late.

    Raises:
        Refused: the lookup failed for a partition. NoBroker, ConnectionLost, RequestTimedOut: its
            leader does not respond after all retries.
    """
    found: dict[TopicPartition, Offset | None] = {}
    for attempt in range(_ATTEMPTS_MAX):
        left = {each: time for each, time in wanted.items() if each not in found}
        error = await _ask_leaders(cluster, left, is_committed_only, found)
        if error is None:
            return found
        if isinstance(error, Refused) and not is_retriable(error.code):
            raise error
        for partition in left:
            cluster.forget(partition.topic)
        if attempt + 1 == _ATTEMPTS_MAX:
            raise error
        await cluster.pause(attempt)
    return found


async def resolve(
    cluster: Cluster, wanted: Mapping[TopicPartition, OffsetSpec], *, is_committed_only: bool = True
) -> dict[TopicPartition, Offset]:
    """Return the start offset of each partition; a time after the last record means the end.

    Raises: as `list_offsets`.
    """
    ends = await _at(cluster, wanted, LATEST, (AtTime, BeforeEnd), is_committed_only)
    beginnings = await _at(cluster, wanted, EARLIEST, (BeforeEnd,), is_committed_only)
    times = await list_offsets(
        cluster,
        {at: spec.timestamp for at, spec in wanted.items() if isinstance(spec, AtTime)},
        is_committed_only=is_committed_only,
    )
    found: dict[TopicPartition, Offset] = {}
    for partition, spec in wanted.items():
        match spec:
            case AtOffset(offset):
                found[partition] = Offset(offset)
            case AtTime():
                at = times[partition]
                found[partition] = ends[partition] if at is None else at
            case BeforeEnd(count):
                offset = before_end(count, beginnings[partition], ends[partition])
                found[partition] = Offset(offset)
    return found


async def _at(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, OffsetSpec],
    time: int,
    kinds: tuple[type, ...],
    is_committed_only: bool,
) -> dict[TopicPartition, Offset]:
    asked = {each: time for each, spec in wanted.items() if isinstance(spec, kinds)}
    found = await list_offsets(cluster, asked, is_committed_only=is_committed_only)
    return {each: Offset(0) if offset is None else offset for each, offset in found.items()}


async def _ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    is_committed_only: bool,
    found: dict[TopicPartition, Offset | None],
) -> Exception | None:
    """Send ListOffsets to all leaders, add the results to ``found``, return the first error."""
    by_leader: dict[NodeId, dict[TopicPartition, int]] = {}
    for partition, time in wanted.items():
        leader = await cluster.leader_of(partition)
        by_leader.setdefault(leader.node_id, {})[partition] = time
    isolation = READ_COMMITTED if is_committed_only else READ_UNCOMMITTED
    replies = await asyncio.gather(
        *(
            cluster.send_to(leader, _request(asked, isolation), ListOffsetsResponse)
            for leader, asked in by_leader.items()
        ),
        return_exceptions=True,
    )
    error: Exception | None = None
    for reply in replies:
        if isinstance(reply, NoBroker | ConnectionLost | RequestTimedOut):
            error = error or reply
        elif isinstance(reply, BaseException):
            raise reply
        else:
            error = _take(reply, found) or error
    return error


def _request(asked: Mapping[TopicPartition, int], isolation: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), time in asked.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=time))
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=list(topics.values()),
        timeout_ms=30_000,
    )


def _take(
    reply: ListOffsetsResponse, found: dict[TopicPartition, Offset | None]
) -> Exception | None:
    error: Exception | None = None
    for topic in reply.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code != ErrorCode.NONE:
                error = Refused(each.error_code, str(partition))
            else:
                found[partition] = None if each.offset < 0 else Offset(each.offset)
    return error
