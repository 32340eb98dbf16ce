"""How far a mirror is, by its state topic and the ends of both clusters; changes nothing."""

import asyncio

import msgspec

from ottla.client.cluster import Refused
from ottla.client.offset_spec import LATEST
from ottla.client.offsets import list_offsets
from ottla.mirror.metadata_sync import Clusters
from ottla.mirror.offset_map import MapDiverged, is_identity, recover, source_end
from ottla.mirror.records_of_state import OWNER_KEY, Link, Owner, decode, state_topic
from ottla.mirror.service import MirrorRefused, stored_state
from ottla.mirror.state_log import StateLog
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicPartition


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A copied partition. ``rate`` is in offsets of the source per second."""

    partition: TopicPartition
    position: int
    lag: int
    target_end: int
    is_identity: bool
    rate: float = 0.0
    problem: str = ""


class MirrorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A mirror at one time."""

    is_closed: bool
    source_cluster: str
    partitions: tuple[PartitionStatus, ...]


def status_of(
    at: TopicPartition,
    link: Link,
    source_end_now: int,
    target_end_now: int,
    *,
    is_closed: bool = False,
) -> PartitionStatus:
    """Return how far a partition is, or was when the mirror was closed. Pure."""
    problem = ""
    if is_closed and link.position_end >= 0:
        target_end_now = link.position_end  # clients have written to the target since
    try:
        runs = recover(link.runs, target_end_now)
    except MapDiverged as error:
        runs, problem = link.runs, str(error)
    position = source_end(runs)
    if link.position_end == target_end_now:
        position = max(position, link.position)
    return PartitionStatus(
        partition=at,
        position=position,
        lag=max(source_end_now - position, 0),
        target_end=target_end_now,
        is_identity=is_identity(runs),
        problem=problem,
    )


async def read_status(clusters: Clusters, name: str, sample_s: float = 1.0) -> MirrorStatus:
    """Return the state of a mirror; rates are measured over ``sample_s``.

    Raises:
        MirrorRefused: there is no such mirror in the target.
    """
    first = await _read(clusters, name)
    if sample_s <= 0:
        return first
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(sample_s)
    second = await _read(clusters, name)
    seconds = loop.time() - began
    before = {each.partition: each.position for each in first.partitions}
    rated = tuple(
        msgspec.structs.replace(
            each, rate=(each.position - before.get(each.partition, each.position)) / seconds
        )
        for each in second.partitions
    )
    return msgspec.structs.replace(second, partitions=rated)


async def _read(clusters: Clusters, name: str) -> MirrorStatus:
    try:
        records = await StateLog(clusters.target, state_topic(name)).load()
    except Refused as refused:
        if refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        records = {}
    if OWNER_KEY not in records:
        raise MirrorRefused(f"there is no mirror {name!r} in the target: no {state_topic(name)}")
    owner = decode(records[OWNER_KEY], Owner)
    links, _ = stored_state(records)
    asked = dict.fromkeys(links, LATEST)
    sources, targets = await asyncio.gather(
        list_offsets(clusters.source, asked), list_offsets(clusters.target, asked)
    )
    return MirrorStatus(
        is_closed=owner.is_closed,
        source_cluster=owner.source_cluster,
        partitions=tuple(
            status_of(at, link, sources[at] or 0, targets[at] or 0, is_closed=owner.is_closed)
            for at, link in sorted(links.items())
        ),
    )
