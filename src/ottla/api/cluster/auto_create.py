"""Creates topics that a client requests metadata of (``auto.create.topics.enable``).

    Metadata names an unknown topic -> the reply is UNKNOWN_TOPIC_OR_PARTITION, and CreateTopics is
    sent to the active controller, as the client -> the client retries and finds the topic

As in Kafka no request waits for the creation, and a topic that is being created is not requested
twice. If the controller rejects a topic, the error is only logged; to the client the topic stays
unknown.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ottla.api.surface.routes import Caller
from ottla.config.generated import BrokerConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.schema import Message

log = logging.getLogger(__name__)

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
SCHEMAS: Final = "_schemas"
"""The topic of the schema registry."""

IN_FLIGHT_MAX: Final = 1000
"""Topics being created at once. Further ones are answered as unknown; the client retries."""
TOPICS_PER_REQUEST: Final = 10
"""Topics per CreateTopics request: creating each takes milliseconds on the controller and on every
replica, and other clients are served between two requests.
"""


def creatable_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """Return the CreateTopics entry of a topic, from the broker's settings for internal or other
    topics.
    """
    if name == CONSUMER_OFFSETS:
        return _creatable(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return _creatable(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        return _creatable(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    return CreatableTopic(name, config.num_partitions, config.default_replication_factor)


def schemas_topic(replication_factor: int, brokers: int) -> CreatableTopic:
    """Return the CreateTopics entry of the schema registry's topic.

    A cluster of few brokers gets fewer replicas, as Confluent's registry does.
    """
    factor = max(1, min(replication_factor, brokers))
    return _creatable(SCHEMAS, 1, factor, {"cleanup.policy": "compact"})


def _creatable(name: str, partitions: int, factor: int, configs: dict[str, str]) -> CreatableTopic:
    entries = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, factor, configs=entries)


class Forwarder(Protocol):
    """Sends requests to the active controller on behalf of a client."""

    async def forward_message(self, caller: Caller, request: Message, timeout_ms: int) -> Message:
        """Send a request on behalf of ``caller``; return the response.

        Raises:
            Fault: no active controller answered in time, or the response is invalid.
        """
        ...


class TopicCreation:
    """`Service`: requests missing topics from the controller, one request at a time.

    ``describe`` returns the CreateTopics entry of a topic. Topics that one caller needs meanwhile
    are requested together.
    """

    name = "auto-create-topics"

    def __init__(
        self,
        forwarding: Forwarder,
        describe: Callable[[str], CreatableTopic],
        timeout_ms: int,
    ) -> None:
        self._forwarding = forwarding
        self._describe = describe
        self._timeout_ms = timeout_ms
        self._in_flight: set[str] = set()
        self._wanted: dict[Caller, list[str]] = {}
        self._wake = asyncio.Event()

    def want(self, caller: Caller, topics: Iterable[str]) -> None:
        """Have topics created that are not being created yet. Does not wait."""
        for topic in topics:
            if topic not in self._in_flight and len(self._in_flight) < IN_FLIGHT_MAX:
                self._in_flight.add(topic)
                self._wanted.setdefault(caller, []).append(topic)
        if self._wanted:
            self._wake.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Create the requested topics until cancelled."""
        ready()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                caller = next(iter(self._wanted))
                topics = self._next(caller)
                try:
                    await self._create(caller, topics)
                finally:
                    self._in_flight.difference_update(topics)

    def _next(self, caller: Caller) -> list[str]:
        wanted = self._wanted.pop(caller)
        if len(wanted) > TOPICS_PER_REQUEST:
            self._wanted[caller] = wanted[TOPICS_PER_REQUEST:]
        return wanted[:TOPICS_PER_REQUEST]

    async def _create(self, caller: Caller, topics: list[str]) -> None:
        request = CreateTopicsRequest([self._describe(topic) for topic in topics], self._timeout_ms)
        try:
            response = await self._forwarding.forward_message(caller, request, self._timeout_ms)
        except Fault as fault:
            log.warning("topics not created count=%d reason=%s", len(topics), fault)
            return
        assert isinstance(response, CreateTopicsResponse)
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                log.info("topic created automatically topic=%s", result.name)
            elif code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning(
                    "topic not created topic=%s error=%s reason=%r",
                    *(result.name, code.name, result.error_message),
                )
