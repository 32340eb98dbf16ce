"""DescribeTopicPartitions: topics page by page, with eligible leader replicas (KIP-966).

Topics are answered by ascending name. A page holds at most ``response_partition_limit``
partitions, and never more than ``max.request.partition.size.limit``; the next page starts at
``next_cursor``. A topic of which no partition fits is left for the next page.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import islice
from typing import Final

import msgspec

from ottla.api.cluster.metadata import (
    InvalidRequest,
    is_internal,
    is_reachable,
    offline_replicas,
    unknown_code,
)
from ottla.api.security.access import OPEN, Access
from ottla.api.surface.replies import ITEMS_PER_STEP, Steps, batched
from ottla.api.surface.routes import Caller
from ottla.metadata.image import Image
from ottla.metadata.topics import PartitionRegistration, Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from ottla.protocol.types import NO_LEADER
from ottla.security.acl import AclOperation, ResourceType

# Names sorted between two yields: a millisecond or two.
NAMES_PER_STEP: Final = 4096


class TopicPartitionsHandlers(msgspec.Struct, frozen=True):
    """The handler of one broker. ``partitions_max`` limits every page."""

    image: Callable[[], Image]
    partitions_max: int
    access: Access = OPEN

    def describe_topic_partitions_steps(
        self, caller: Caller, request: DescribeTopicPartitionsRequest, version: int
    ) -> Steps[DescribeTopicPartitionsResponse]:
        """Describe one page.

        Raises:
            InvalidRequest: a cursor that is not among the requested topics, or before partition 0.
        """
        image = self.image()
        wanted: set[str] = set()
        for group in batched(request.topics):
            wanted.update(topic.name for topic in group)
            yield
        is_all = not wanted
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        names = yield from _sorted_from(image.topics.ids if is_all else wanted, first)
        if cursor is not None and not is_all and first not in wanted:
            raise InvalidRequest(f"the cursor's topic {first!r} is not among the requested topics")
        if cursor is not None and cursor.partition_index < 0:
            raise InvalidRequest(f"cursor at partition {cursor.partition_index}")
        room = max(1, min(self.partitions_max, request.response_partition_limit))
        operations = partial(self.access.operations, caller, ResourceType.TOPIC)
        page = _Page(image, caller.listener, room, operations)
        has_room = True
        for count, name in enumerate(names):
            if not count % ITEMS_PER_STEP:
                yield
            if not self.access.allows(
                caller, AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_audited=not is_all
            ):
                if not is_all:
                    page.refuse(name)
                continue
            start = cursor.partition_index if cursor is not None and name == first else 0
            # A full page still names every topic that is refused, as in Kafka.
            has_room = has_room and page.take(name, start, is_all=is_all)
            if not has_room and is_all:
                break
        return page.finish()


def _sorted_from(names: Iterable[str], first: str) -> Steps[Iterator[str]]:
    """Return the names from ``first`` on, ascending; sorted in parts, which are then merged."""
    parts: list[list[str]] = []
    source = iter(names)
    while part := list(islice(source, NAMES_PER_STEP)):
        parts.append(sorted(name for name in part if name >= first))
        yield
    return iter(parts[0]) if len(parts) == 1 else merge(*parts)


class _Page:
    """A response being built, with room for a number of partitions."""

    def __init__(
        self, image: Image, listener: str, room: int, operations: Callable[[str], int]
    ) -> None:
        self.response = DescribeTopicPartitionsResponse()
        self._image = image
        self._listener = listener
        self._room = room
        self._operations = operations
        self._refused: list[DescribeTopicPartitionsResponseTopic] = []

    def refuse(self, name: str) -> None:
        """Add a topic that the client may not describe: only with its name."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._refused.append(DescribeTopicPartitionsResponseTopic(code, name))

    def finish(self) -> DescribeTopicPartitionsResponse:
        """Return the response: the described topics, then, as in Kafka, the refused ones."""
        self.response.topics += self._refused
        return self.response

    def take(self, name: str, start: int, *, is_all: bool) -> bool:
        """Add a topic from partition ``start`` on; say whether the page has room left."""
        if self._room == 0:
            self.response.next_cursor = ResponseCursor(name, 0)
            return False
        topic = self._image.topics.named(name)
        if topic is None:
            if not is_all:
                self.response.topics.append(_unknown(name, self._operations(name)))
            return True
        count = len(topic.partitions)
        end = min(count, start + self._room)
        self.response.topics.append(self._topic(topic, range(start, end)))
        self._room -= max(0, end - start)
        if end < count:
            self.response.next_cursor = ResponseCursor(name, end)
            return False
        return True

    def _topic(self, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            topic_authorized_operations=self._operations(topic.name),
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[
                self._partition(index, topic.partitions[index])
                for index in indexes
                if index in topic.partitions
            ],
        )

    def _partition(
        self, index: int, partition: PartitionRegistration
    ) -> DescribeTopicPartitionsResponsePartition:
        image, leader = self._image, partition.leader
        return DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=leader if is_reachable(image, leader, self._listener) else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.elr),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=offline_replicas(image, partition, self._listener),
        )


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        unknown_code(name),
        name,
        is_internal=is_internal(name),
        topic_authorized_operations=operations,
    )
