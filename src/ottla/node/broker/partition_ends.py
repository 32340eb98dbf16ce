"""High watermarks of partitions: read here if led here, else requested from their leaders."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ottla.coordinators.broker_links import UNREACHABLE, BrokerLinks
from ottla.metadata.topics import Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.types import NO_EPOCH, TopicPartition
from ottla.replication.hosted_partitions import Partitions

LATEST: Final = -1
CONSUMER: Final = -1
READ_COMMITTED: Final = 1
PARTITIONS_PER_SLICE: Final = 256


PartitionEnd = tuple[int, int]
"""The high watermark and the last stable offset of a partition."""


class LeaderHighWatermarks(msgspec.Struct, frozen=True):
    """Sends one request to each leader; if one does not answer, its partitions are left out."""

    node_id: int
    partitions: Partitions
    links: BrokerLinks

    async def ends(self, topic: Topic, indexes: Iterable[int]) -> Mapping[int, int]:
        """Return the high watermarks by partition; unknown ones are left out."""
        found, elsewhere = await self._split((topic, index) for index in indexes)
        answers = await asyncio.gather(
            *(self._ask(leader, each) for leader, each in elsewhere.items())
        )
        for each in answers:
            found.update({name: (end, end) for name, end in each.items()})
        return {name.partition: end for name, (end, _) in found.items()}

    async def ends_of(
        self, wanted: Iterable[tuple[Topic, int]]
    ) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the ends of partitions of any topics; unknown ones are left out."""
        found, elsewhere = await self._split(wanted)
        for leader, each in elsewhere.items():
            ends, stable = await asyncio.gather(
                self._ask(leader, each), self._ask(leader, each, READ_COMMITTED)
            )
            found.update({name: (end, stable.get(name, end)) for name, end in ends.items()})
        return found

    async def _split(
        self, wanted: Iterable[tuple[Topic, int]]
    ) -> tuple[dict[TopicPartition, PartitionEnd], dict[int, list[TopicPartition]]]:
        """Return the ends of partitions led here, and the others by their leaders, in slices."""
        found: dict[TopicPartition, PartitionEnd] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for number, (topic, index) in enumerate(wanted, 1):
            if number % PARTITIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
            here = self.partitions.by_id(topic.id, index)
            registered = topic.partitions.get(index)
            name = TopicPartition(topic.name, index)
            if here is not None and here.is_leader:
                found[name] = (here.log.high_watermark, here.log.last_stable_offset)
            elif registered is not None and registered.leader not in (-1, self.node_id):
                elsewhere.setdefault(registered.leader, []).append(name)
        return found, elsewhere

    async def _ask(
        self, leader: int, names: Sequence[TopicPartition], isolation: int = 0
    ) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in names:
            row = topics.setdefault(topic, ListOffsetsTopic(topic, []))
            row.partitions.append(ListOffsetsPartition(index, NO_EPOCH, LATEST))
        request = ListOffsetsRequest(CONSUMER, isolation, topics=list(topics.values()))
        try:
            reply = await self.links.ask(leader, request)
        except UNREACHABLE:
            return {}
        assert isinstance(reply, ListOffsetsResponse)
        return {
            TopicPartition(each.name, row.partition_index): row.offset
            for each in reply.topics
            for row in each.partitions
            if row.error_code == ErrorCode.NONE
        }
