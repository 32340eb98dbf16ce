"""Begins or resumes the copy of partitions: where the target ends, and so where to read on."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.mirror.appender import Appender, is_permanent, queue_of
from ottla.mirror.metadata_sync import Clusters
from ottla.mirror.offset_map import MapDiverged, begin, recover, source_end
from ottla.mirror.pieces import FILL_RECORDS, Piece, filler
from ottla.mirror.records_of_state import Link
from ottla.mirror.topic_rules import TopicFacts, may_fill
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.types import TopicPartition

FILL_BATCHES: Final = 20
"""Batches that fill a partition before its end is read again."""
DELETE_TIMEOUT_MS: Final = 30_000
FAILURES_MAX: Final = 60


class Ends:
    """The first and last offsets of partitions, in both clusters."""

    def __init__(
        self,
        sources: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self.source_starts = sources
        self.target_starts = starts
        self.target_ends = ends


async def read_ends(clusters: Clusters, partitions: Sequence[TopicPartition]) -> Ends:
    """Ask both clusters where partitions begin and end. Raises `Refused`, NoBroker."""
    sources, starts, ends = await asyncio.gather(
        list_offsets(clusters.source, dict.fromkeys(partitions, EARLIEST)),
        list_offsets(clusters.target, dict.fromkeys(partitions, EARLIEST)),
        list_offsets(clusters.target, dict.fromkeys(partitions, LATEST)),
    )
    return Ends(
        {at: offset or 0 for at, offset in sources.items()},
        {at: offset or 0 for at, offset in starts.items()},
        {at: offset or 0 for at, offset in ends.items()},
    )


def begin_link(
    topic: TopicFacts, at: TopicPartition, ends: Ends, *, fill_max: int, may_append: bool
) -> Link | str:
    """Return how a partition is copied from now on, or why it is not. Pure."""
    start, end = ends.source_starts[at], ends.target_ends[at]
    if end == 0 and ends.target_starts[at] == 0 and may_fill(topic.settings, start, fill_max):
        return Link(topic_id=topic.topic_id, runs=begin(0, 0), fill_to=start)
    if end > 0 and not may_append:
        return (
            f"{at} of the target has records already, and not from this mirror: delete the topic, "
            "or copy behind them with --into-existing"
        )
    return Link(topic_id=topic.topic_id, runs=begin(start, end))


def resume_link(link: Link, topic: TopicFacts, end: int) -> tuple[Link, int] | str:
    """Return the link as it is in the target and the offset to read, or what is wrong. Pure."""
    if link.topic_id != topic.topic_id:
        return (
            "the topic was deleted and created again in the source: delete it in the target and "
            "begin a mirror of another name"
        )
    try:
        runs = recover(link.runs, end)
    except MapDiverged as error:
        return f"cannot be resumed: {error}"
    position = source_end(runs)
    if link.position_end == end:
        position = max(position, link.position)
    return replace(link, runs=runs), position


async def fill(
    target: Cluster, appender: Appender, at: TopicPartition, link: Link, ends: Ends
) -> int:
    """Fill a partition of the target up to the first offset of the source, and delete that again.

    Returns where the target ends then. A fill that was interrupted goes on.

    Raises:
        Refused, NoBroker: the target does not take it.
    """
    end, failures = ends.target_ends[at], 0
    timestamp = target.ports.clock.now()
    while end < link.fill_to:
        pieces: list[Piece] = []
        position = end
        while position < link.fill_to and len(pieces) < FILL_BATCHES:
            count = min(FILL_RECORDS, link.fill_to - position)
            pieces.append(filler(position, count, timestamp))
            position += count
        queue = queue_of(0, end, pieces)
        await appender.append({at: queue})
        if queue.failure is not None:
            failures += 1
            if failures > FAILURES_MAX or is_permanent(queue.failure):
                raise queue.failure
            await target.pause(min(failures, 10))
        end = (await list_offsets(target, {at: LATEST}))[at] or 0
    if ends.target_starts[at] < link.fill_to:
        await _delete_records(target, at, link.fill_to)
    return end


async def _delete_records(target: Cluster, at: TopicPartition, offset: int) -> None:
    wanted = DeleteRecordsTopic(at.topic, [DeleteRecordsPartition(at.partition, offset)])
    request = DeleteRecordsRequest([wanted], DELETE_TIMEOUT_MS)
    for attempt in range(FAILURES_MAX):
        leader = await target.leader_of(at)
        code = int(ErrorCode.REQUEST_TIMED_OUT)
        try:
            reply = await target.send_to(leader.node_id, request, DeleteRecordsResponse)
            code = reply.topics[0].partitions[0].error_code
        except (NoBroker, ConnectionLost, RequestTimedOut):
            pass
        if code == ErrorCode.NONE:
            return
        if code == ErrorCode.POLICY_VIOLATION or attempt + 1 == FAILURES_MAX:
            raise Refused(code, str(at), "records that fill the partition cannot be deleted")
        target.forget(at.topic)
        await target.pause(min(attempt, 10))
