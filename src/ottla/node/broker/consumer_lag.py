"""Service: measures the lag of the groups coordinated here, for /metrics.

One round every ``ottla.consumer.lag.interval.ms``. A round walks the groups in slices, requests the
ends of partitions that other brokers lead with two requests per leader, and keeps its result until
the next round, so that a scrape costs no more than rendering it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from ottla.coordinators.groups.kind import GroupType
from ottla.coordinators.groups.machine import GroupsView
from ottla.coordinators.groups.offsets.committed import offsets_in
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.share_state.rules import StateResult
from ottla.coordinators.share_state.state import ShareKey
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.node.broker.partition_ends import PartitionEnd
from ottla.observability.consumer_lag import GroupLag, PartitionLag, lag_families
from ottla.observability.exposition import WALKED_PER_STEP, Family, gauge
from ottla.observability.offset_history import OffsetHistory
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicIdPartition, TopicPartition, Uuid
from ottla.runtime.ports import Clock

GROUPS_PER_SLICE: Final = 20
SHARE_PARTITIONS_MAX: Final = 10_000
"""Share partitions whose state is requested in one round; the others have no lag."""


class GroupPosition(msgspec.Struct, frozen=True):
    """Where a group stands. ``finished`` counts records acknowledged beyond ``offset`` (share)."""

    topic: Topic
    partition: int
    offset: int
    finished: int = 0


class Ends(Protocol):
    """Returns the ends of partitions on any leader."""

    async def ends_of(
        self, wanted: Iterable[tuple[Topic, int]]
    ) -> Mapping[TopicPartition, PartitionEnd]:
        """Return high watermarks and last stable offsets; unknown ones are left out."""
        ...


class ShareStates(Protocol):
    """Returns the state of share partitions."""

    async def summary(self, key: ShareKey) -> StateResult:
        """Return the summary of a share partition's state, or an error code."""
        ...


class LagSources(msgspec.Struct, frozen=True):
    """Where lag comes from."""

    views: Callable[[], list[GroupsView]]
    ends: Ends
    shares: ShareStates
    image: Callable[[], Image]
    clock: Clock


class ConsumerLag:
    """`Service` of one broker, and `Source` of the metrics of its last round."""

    name = "consumer-lag"

    def __init__(self, sources: LagSources, interval_ms: int) -> None:
        self._sources = sources
        self._interval_s = interval_ms / 1000
        self._histories: dict[TopicPartition, OffsetHistory] = {}
        self._groups: list[GroupLag] = []
        self._round_s = 0.0

    async def run(self, ready: Callable[[], None]) -> None:
        """Measure until cancelled."""
        ready()
        while True:
            await asyncio.sleep(self._interval_s)
            await self.measure()

    async def measure(self) -> None:
        """Measure the lag of all groups once."""
        began = self._sources.clock.monotonic()
        positions = await self._positions()
        ends = await self._sources.ends.ends_of(await _partitions_of(positions))
        now = self._sources.clock.monotonic()
        await self._observe(ends, now)
        found = []
        for number, (group, rows) in enumerate(positions):
            if number % GROUPS_PER_SLICE == 0:
                await asyncio.sleep(0)
            found.append(self._lag(group, rows, ends, now))
        self._groups = found
        self._round_s = (self._sources.clock.monotonic() - began) / 1000

    def collect(self) -> Iterable[Family | None]:
        """Yield the lag as of the last round."""
        yield from lag_families(self._groups)
        text = "How long the last measurement of consumer lag took."
        yield gauge("ottla_consumergroup_lag_round_seconds", text, self._round_s)

    # -- one round ---------------------------------------------------------------------

    async def _positions(self) -> list[tuple[GroupLag, list[GroupPosition]]]:
        """Return each group, without its lag, and where it stands."""
        image = self._sources.image()
        found: list[tuple[GroupLag, list[GroupPosition]]] = []
        for view in self._sources.views():
            for number, name in enumerate(sorted(set(view.groups) | set(view.offsets))):
                if number % GROUPS_PER_SLICE == 0:
                    await asyncio.sleep(0)
                rows = list(_committed(view, name, image))
                group = view.groups.get(name)
                if isinstance(group, ShareGroup):
                    rows = await self._shared(name, group.initialized, image)
                kind = GroupType.CLASSIC.value if group is None else group.type.value
                members = 0 if group is None else group.member_count()
                found.append((GroupLag(name, kind, members, ()), rows))
        return found

    async def _shared(
        self, name: str, initialized: Iterable[TopicIdPartition], image: Image
    ) -> list[GroupPosition]:
        rows = []
        for topic_id, index in sorted(initialized)[:SHARE_PARTITIONS_MAX]:
            topic = image.topics.by_id.get(topic_id)
            if topic is None:
                continue
            found = await self._sources.shares.summary(ShareKey(name, topic.id, index))
            start, finished = found.state.start_offset, found.state.delivery_complete_count
            if found.code is ErrorCode.NONE and start >= 0:
                rows.append(GroupPosition(topic, index, start, max(0, finished)))
        return rows

    async def _observe(self, ends: Mapping[TopicPartition, PartitionEnd], now: int) -> None:
        """Record the ends; forget partitions that no group reads any more."""
        known: dict[TopicPartition, OffsetHistory] = {}
        for number, (name, (end, _)) in enumerate(ends.items(), 1):
            known[name] = self._histories.get(name) or OffsetHistory()
            known[name].observe(now, end)
            if number % WALKED_PER_STEP == 0:
                await asyncio.sleep(0)
        self._histories = known

    def _lag(
        self,
        group: GroupLag,
        rows: Iterable[GroupPosition],
        ends: Mapping[TopicPartition, PartitionEnd],
        now: int,
    ) -> GroupLag:
        found = []
        for row in rows:
            name = TopicPartition(row.topic.name, row.partition)
            if name not in ends:
                continue
            end, stable = ends[name]
            behind = max(0, end - row.offset - row.finished)
            stable_behind = max(0, stable - row.offset - row.finished)
            seconds = self._histories[name].seconds_behind(row.offset, now) if behind else 0.0
            found.append(PartitionLag(*name, row.offset, behind, stable_behind, seconds))
        return msgspec.structs.replace(group, partitions=tuple(sorted(found, key=_order)))


async def _partitions_of(
    positions: Iterable[tuple[GroupLag, list[GroupPosition]]],
) -> list[tuple[Topic, int]]:
    """Return the partitions that any group reads, each once. Topics are compared by their ids."""
    found: dict[tuple[Uuid, int], tuple[Topic, int]] = {}
    for number, (_, rows) in enumerate(positions):
        if number % GROUPS_PER_SLICE == 0:
            await asyncio.sleep(0)
        for each in rows:
            found[each.topic.id, each.partition] = each.topic, each.partition
    return list(found.values())


def _order(row: PartitionLag) -> tuple[str, int]:
    return row.topic, row.partition


def _committed(view: GroupsView, name: str, image: Image) -> Iterator[GroupPosition]:
    """Yield the committed offsets of a group for topics that exist."""
    for (topic_name, index), committed in offsets_in(view.offsets, name).items():
        topic = image.topics.named(topic_name)
        if topic is not None and index in topic.partitions and committed.is_of(topic.id):
            yield GroupPosition(topic, index, committed.offset)
