"""Creates the internal topics that streams groups need (KIP-1071).

    heartbeat finds topics missing -> status is MISSING_INTERNAL_TOPICS, and CreateTopics is sent
    to the active controller, as the member -> a later heartbeat finds them

No request waits for the creation, and a topic that is being created is not requested twice. An
error is kept for a while and reported with the status; only then is the topic requested again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from ottla.api.cluster.auto_create import Forwarder
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.streams.topology import InternalTopic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.types import Millis

log = logging.getLogger(__name__)

KNOWN_MAX: Final = 10_000
"""Topics being created or failed at once; further ones are not requested."""

# Replication factor for the cluster's default.
_DEFAULT_FACTOR: Final = -1


class Clock(Protocol):
    """The monotonic clock."""

    def monotonic(self) -> Millis:
        """Return milliseconds since a fixed moment."""
        ...


class _Failure(NamedTuple):
    why: str
    until: int


class StreamsTopicCreation:
    """`Service`: requests internal topics from the controller, one request at a time."""

    name = "streams-topics"

    def __init__(self, forwarding: Forwarder, clock: Clock, timeout_ms: int) -> None:
        self._forwarding = forwarding
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._in_flight: set[str] = set()
        self._wanted: list[tuple[Caller, list[InternalTopic], int]] = []
        self._failed: dict[str, _Failure] = {}
        self._wake = asyncio.Event()

    def want(self, caller: Caller, topics: Iterable[InternalTopic], keep_ms: int) -> None:
        """Have topics created that are not being created and did not fail within ``keep_ms``."""
        self._forget_old()
        fresh: list[InternalTopic] = []
        for topic in topics:
            is_known = topic.name in self._in_flight or topic.name in self._failed
            if not is_known and len(self._in_flight) + len(self._failed) < KNOWN_MAX:
                self._in_flight.add(topic.name)
                fresh.append(topic)
        if fresh:
            self._wanted.append((caller, fresh, keep_ms))
            self._wake.set()

    def failures(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the errors of topics that could not be created recently."""
        self._forget_old()
        return {name: self._failed[name].why for name in names if name in self._failed}

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        for name in [name for name, failure in self._failed.items() if failure.until <= now]:
            del self._failed[name]

    async def run(self, ready: Callable[[], None]) -> None:
        """Create the requested topics until cancelled."""
        ready()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                caller, topics, keep_ms = self._wanted.pop(0)
                try:
                    failed = await self._create(caller, topics)
                finally:
                    self._in_flight.difference_update(topic.name for topic in topics)
                until = self._clock.monotonic() + keep_ms
                for name, why in failed.items():
                    self._failed[name] = _Failure(why, until)

    async def _create(self, caller: Caller, topics: list[InternalTopic]) -> dict[str, str]:
        """Request topics; return the errors of those that were not created."""
        request = CreateTopicsRequest(list(map(creatable, topics)), self._timeout_ms)
        try:
            response = await self._forwarding.forward_message(caller, request, self._timeout_ms)
        except Fault as fault:
            log.warning("streams topics not created count=%d reason=%s", len(topics), fault)
            return dict.fromkeys((topic.name for topic in topics), str(fault))
        assert isinstance(response, CreateTopicsResponse)
        failed: dict[str, str] = {}
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                log.info("topic created for a streams group topic=%s", result.name)
            elif code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failed[result.name] = result.error_message or code.name
                log.warning(
                    "streams topic not created topic=%s error=%s reason=%r",
                    *(result.name, code.name, result.error_message),
                )
        return failed


def creatable(topic: InternalTopic) -> CreatableTopic:
    """Return the CreateTopics entry of a topic."""
    return CreatableTopic(
        topic.name,
        topic.partitions,
        topic.replication_factor or _DEFAULT_FACTOR,
        configs=[CreatableTopicConfig(key, value) for key, value in topic.configs],
    )
