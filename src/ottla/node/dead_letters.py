"""Writes dead letters of share groups to their topic, on whichever broker leads it (KIP-1191).

A member of a group that rejects a record makes the broker write to another topic, which the member
itself might not be allowed to do. So the topic has to enable it
(``ottla.errors.deadletterqueue.group.enable``), and its name has to start with the prefix in the
broker's settings.
"""

from collections.abc import Callable, Sequence

import msgspec

from ottla.coordinators.broker_links import UNREACHABLE, BrokerLinks
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotLeader
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch

ENABLE = "ottla.errors.deadletterqueue.group.enable"
ALL = -1


class DeadLetterWriter(msgspec.Struct, frozen=True):
    """Reaches the leaders of dead-letter topics over the links between brokers."""

    image: Callable[[], Image]
    links: BrokerLinks
    prefix: str
    timeout_ms: int

    async def write(self, topic: str, origin: int, records: Sequence[Record]) -> ErrorCode:
        """Write records of one partition into one partition, so that they stay in order.

        Returns INVALID_TOPIC_EXCEPTION for a topic that is not enabled, and
        UNKNOWN_TOPIC_OR_PARTITION, which may be retried, for one that does not exist. Raises
        `NotLeader` where the partition has no leader, or the leader does not answer.
        """
        image = self.image()
        found = image.topics.named(topic)
        if not topic.startswith(self.prefix):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        configs = image.configs.of(ConfigResource(ConfigResourceType.TOPIC, topic))
        if configs.get(ENABLE) != "true":
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        index = origin % len(found.partitions)
        leader = found.partitions[index].leader
        if leader < 0:
            raise NotLeader(f"{topic}-{index} has no leader")
        data = PartitionProduceData(index, bytes(build_batch(records)))
        wanted = [TopicProduceData(topic, found.id, [data])]
        request = ProduceRequest(acks=ALL, timeout_ms=self.timeout_ms, topic_data=wanted)
        return await self._sent(leader, request)

    async def _sent(self, leader: int, request: ProduceRequest) -> ErrorCode:
        try:
            reply = await self.links.ask(leader, request)
        except UNREACHABLE as error:
            raise NotLeader(f"broker {leader}: {error}") from error
        assert isinstance(reply, ProduceResponse)
        return ErrorCode(reply.responses[0].partition_responses[0].error_code)
