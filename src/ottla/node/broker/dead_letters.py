"""Writes dead letters of share groups to their topic, on whichever broker leads it (KIP-1191).

A member of a group that rejects a record makes the broker write to another topic, which the member
itself might not be allowed to do. So the topic has to enable it
(``errors.deadletterqueue.group.enable``), and its name has to start with the prefix in the brokers'
settings. A topic that cannot be used is named in the log once per reason, not once per record.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.config.generated import BrokerConfig
from ottla.coordinators.broker_links import UNREACHABLE, BrokerLinks
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.node.broker.dead_letter_metrics import DeadLetterCounts
from ottla.node.broker.dead_letter_search import find_written
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotLeader
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Offset
from ottla.sharing.dead_letters import without
from ottla.sharing.ports import Origin

log = logging.getLogger(__name__)

ENABLE: Final = "errors.deadletterqueue.group.enable"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
EARLIER: Final = "ottla."
"""Keys had this prefix before Kafka had them."""
EARLIER_ENABLE: Final = "ottla.errors.deadletterqueue.group.enable"

_ALL: Final = -1
_INTERNAL: Final = "__"
_NOTED_MAX: Final = 1000


class DeadLetterWriter:
    """Reaches the leaders of dead-letter topics over the links between brokers."""

    def __init__(
        self, image: Callable[[], Image], links: BrokerLinks, config: BrokerConfig
    ) -> None:
        self._image = image
        self._links = links
        self._config = config
        self._noted: set[tuple[str, str]] = set()
        self.counts = DeadLetterCounts()

    async def write(
        self, topic: str, origin: Origin, letters: Sequence[Record], *, may_exist: bool
    ) -> ErrorCode:
        """Write letters of one partition into one partition, so that they stay in order.

        Raises `NotLeader` where the partition has no leader, or the leader does not answer.
        """
        image = self._image()
        reason = self._objection(image, topic)
        if reason is not None:
            self._note(origin.group_id, topic, reason)
            self.counts.add_failed(origin, topic)
            return ErrorCode.INVALID_CONFIG
        found = image.topics.named(topic)
        if found is None:
            return await self._create(topic)
        index = origin.partition % len(found.partitions)
        leader = found.partitions[index].leader
        try:
            if leader < 0:
                raise NotLeader(f"{topic}-{index} has no leader")
            if may_exist:
                place = (found, index, leader)
                letters = await self._unwritten(place, origin, letters)
            code = await self._produce(found, index, leader, letters)
        except UNREACHABLE as error:
            self.counts.add_failed(origin, topic)
            raise NotLeader(f"broker {leader}: {error}") from error
        if code is ErrorCode.NONE:
            self.counts.add_written(origin, letters)
        else:
            self._note(origin.group_id, topic, f"the topic answered {code.name}")
            self.counts.add_failed(origin, topic)
        return code

    def lost(self, origin: Origin, topic: str, offsets: tuple[Offset, Offset], count: int) -> None:
        """Count and log records that are archived without a dead letter."""
        self.counts.lost += count
        log.error(
            "records archived without dead letters group=%s topic=%s partition=%d offsets=%d-%d "
            "count=%d dead_letter_topic=%s",
            *(origin.group_id, origin.topic, origin.partition, *offsets, count, topic),
        )

    # -- the topic -------------------------------------------------------------

    def _objection(self, image: Image, topic: str) -> str | None:
        """Return why a topic cannot have dead letters, in Kafka's order, or None."""
        if topic.startswith(_INTERNAL):
            return "its name starts with __"
        found = image.topics.named(topic)
        if found is not None and not self._is_enabled(image, topic):
            return f"it does not have {ENABLE}=true"
        if found is None and self._setting(image, AUTO_CREATE) != "true":
            return f"it does not exist, and {AUTO_CREATE} is false"
        prefix = self._setting(image, PREFIX)
        if not topic.startswith(prefix):
            return f"its name does not start with {prefix!r}, as {PREFIX} says"
        return None

    def _is_enabled(self, image: Image, topic: str) -> bool:
        configs = image.configs.of(ConfigResource(ConfigResourceType.TOPIC, topic))
        if configs.get(EARLIER_ENABLE) == "true" and ENABLE not in configs:
            self._note("", topic, f"{EARLIER_ENABLE} is deprecated: set {ENABLE}")
            return True
        return configs.get(ENABLE) == "true"

    def _setting(self, image: Image, key: str) -> str:
        """Return a setting of this broker that can be changed while it runs."""
        for name in (str(self._config.node_id), ""):
            configs = image.configs.of(ConfigResource(ConfigResourceType.BROKER, name))
            if key in configs:
                return configs[key]
        if key == AUTO_CREATE:
            return str(self._config.errors_deadletterqueue_auto_create_topics_enable).lower()
        earlier = self._config.ottla_errors_deadletterqueue_topic_name_prefix
        if earlier is not None:
            self._note("", "", f"{EARLIER}{PREFIX} is deprecated: set {PREFIX}")
            return earlier
        return self._config.errors_deadletterqueue_topic_name_prefix

    def _note(self, group_id: str, topic: str, reason: str) -> None:
        """Log a reason once."""
        key = (f"{group_id} {topic}", reason)
        if key in self._noted:
            return
        if len(self._noted) >= _NOTED_MAX:
            self._noted.clear()
        self._noted.add(key)
        log.warning("dead-letter topic group=%s topic=%s: %s", group_id, topic, reason)

    async def _create(self, topic: str) -> ErrorCode:
        """Have the topic created; the letters are written once it is there."""
        configs = [
            CreatableTopicConfig(ENABLE, "true"),
            CreatableTopicConfig("message.timestamp.type", "CreateTime"),
        ]
        row = CreatableTopic(topic, num_partitions=-1, replication_factor=-1, configs=configs)
        request = CreateTopicsRequest([row], timeout_ms=self._config.request_timeout_ms)
        try:
            await self._links.ask(self._config.node_id, request)
        except UNREACHABLE as error:
            raise NotLeader(f"{topic} was not created: {error}") from error
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # -- records ---------------------------------------------------------------

    async def _unwritten(
        self, place: tuple[Topic, int, int], origin: Origin, letters: Sequence[Record]
    ) -> list[Record]:
        written = await find_written(self._links, place, origin)
        return without(letters, origin, written)

    async def _produce(
        self, topic: Topic, index: int, leader: int, letters: Sequence[Record]
    ) -> ErrorCode:
        if not letters:
            return ErrorCode.NONE
        data = PartitionProduceData(index, bytes(build_batch(letters)))
        rows = [TopicProduceData(topic.name, topic.id, [data])]
        timeout_ms = self._config.request_timeout_ms
        request = ProduceRequest(acks=_ALL, timeout_ms=timeout_ms, topic_data=rows)
        reply = await self._links.ask(leader, request)
        assert isinstance(reply, ProduceResponse)
        return ErrorCode(reply.responses[0].partition_responses[0].error_code)
