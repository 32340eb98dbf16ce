"""Make a reset plan: ask the cluster for the partitions and their offsets."""

from collections.abc import Mapping

import msgspec

from ottla.client.cluster import Cluster, Refused
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.operations.reset_plan import (
    BadReset,
    Bounds,
    FromFile,
    PlannedOffset,
    Target,
    ToTime,
    plan_reset,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Offset, TopicPartition


class Resetting(msgspec.Struct, frozen=True):
    """The requested reset. ``topics`` are partitions by topic, None for all of them."""

    group_id: str
    target: Target
    topics: Mapping[str, tuple[int, ...] | None]
    is_all: bool

    def check(self) -> None:
        """Raise `BadReset` unless partitions are selected in one way."""
        has_own = isinstance(self.target, FromFile)
        if bool(self.topics) + self.is_all + has_own != 1:
            raise BadReset("give exactly one of --topic, --all-topics and --from-file")


async def plan_of(
    cluster: Cluster, resetting: Resetting, current: Mapping[TopicPartition, int]
) -> list[PlannedOffset]:
    """Return the planned offset of each partition. Raises `Refused`, `BadReset`."""
    resetting.check()
    places = await _places(cluster, resetting, current)
    bounds = await _bounds(cluster, resetting.target, places)
    return plan_reset(resetting.target, bounds, current)


async def _places(
    cluster: Cluster, resetting: Resetting, current: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if isinstance(resetting.target, FromFile):
        return sorted(resetting.target.offsets)
    if resetting.is_all:
        if not current:
            why = "it has no committed offsets; name topics with --topic"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, resetting.group_id, why)
        return sorted(current)
    found: list[TopicPartition] = []
    for name, numbers in resetting.topics.items():
        has = (await cluster.topic(name)).partitions
        wanted = has if numbers is None else numbers
        for number in wanted:
            if number not in has:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{number}")
            found.append(TopicPartition(name, number))
    return sorted(found)


async def _bounds(
    cluster: Cluster, target: Target, places: list[TopicPartition]
) -> dict[TopicPartition, Bounds]:
    first = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    times: dict[TopicPartition, Offset | None] = {}
    if isinstance(target, ToTime):
        times = await list_offsets(cluster, dict.fromkeys(places, target.timestamp))
    return {
        place: Bounds(first[place] or 0, ends[place] or 0, times.get(place)) for place in places
    }
