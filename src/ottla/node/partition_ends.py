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
from ottla.protocol.types import NO_EPOCH
from ottla.replication.hosted_partitions import Partitions

LATEST: Final = -1
CONSUMER: Final = -1


class LeaderHighWatermarks(msgspec.Struct, frozen=True):
    """Sends one request to each leader; if one does not answer, its partitions are left out."""

    node_id: int
    partitions: Partitions
    links: BrokerLinks

    async def ends(self, topic: Topic, indexes: Iterable[int]) -> Mapping[int, int]:
        """Return the high watermarks by partition; unknown ones are left out."""
        found: dict[int, int] = {}
        elsewhere: dict[int, list[int]] = {}
        for index in indexes:
            here = self.partitions.by_id(topic.id, index)
            registered = topic.partitions.get(index)
            if here is not None and here.is_leader:
                found[index] = here.log.high_watermark
            elif registered is not None and registered.leader not in (-1, self.node_id):
                elsewhere.setdefault(registered.leader, []).append(index)
        told = await asyncio.gather(
            *(self._ask(leader, topic.name, each) for leader, each in elsewhere.items())
        )
        for each in told:
            found.update(each)
        return found

    async def _ask(self, leader: int, topic: str, indexes: Sequence[int]) -> dict[int, int]:
        asked = [ListOffsetsPartition(index, NO_EPOCH, LATEST) for index in indexes]
        request = ListOffsetsRequest(CONSUMER, topics=[ListOffsetsTopic(topic, asked)])
        try:
            reply = await self.links.ask(leader, request)
        except UNREACHABLE:
            return {}
        assert isinstance(reply, ListOffsetsResponse)
        return {
            row.partition_index: row.offset
            for each in reply.topics
            for row in each.partitions
            if row.error_code == ErrorCode.NONE
        }
