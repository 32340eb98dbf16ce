"""How a client looks up topics, leaders, coordinators and offsets. Without I/O.

A look-up is a generator: it yields a step and gets the result of it, so that a client on an event
loop (`ottla.client.cluster`) and a blocking one (`ottla.client.blocking`) follow the same rules::

    Ask(request)        the reply of any broker
    AskEach(requests)   for each node its reply, or the exception that was raised instead
    Pause(attempt)      whether to try again, after a pause; False: the client gives up
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from ottla.client import requests
from ottla.client.failures import COORDINATOR_MOVED_OR_LOADING, Refused
from ottla.client.metadata import ClusterMetadata, KnownTopic, Leader
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId, TopicPartition
from ottla.runtime.ports import Address


class Ask(msgspec.Struct, frozen=True):
    """Send a request to any broker."""

    request: Message


class AskEach(msgspec.Struct, frozen=True):
    """Send one request to each of several brokers."""

    requests: dict[NodeId, Message]


class Pause(msgspec.Struct, frozen=True):
    """Wait before another attempt; the first has number 0."""

    attempt: int


Result = TypeVar("Result")

_NOT_THERE_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
Step: TypeAlias = Ask | AskEach | Pause
Lookup: TypeAlias = Generator[Step, Any, Result]


def find_topic(
    metadata: ClusterMetadata,
    name: str,
    *,
    may_create: bool = False,
) -> Lookup[KnownTopic]:
    """Return a topic. A reply that it does not exist is doubted ``metadata.doubts_max`` times.

    Raises:
        Refused: the topic does not exist, or not before the client gives up.
    """
    attempt, unknown = 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while (topic := metadata.topic(name)) is None:
        response = yield Ask(requests.metadata([name], may_create=may_create))
        metadata.learn(response)
        if metadata.topic(name) is not None:
            continue
        code = next((each.error_code for each in response.topics), unknown)
        is_unknown = code == unknown and not may_create
        is_final = not is_retriable(code) or (is_unknown and attempt >= metadata.doubts_max)
        if is_final or not (yield Pause(attempt)):
            raise Refused(code, name)
        attempt += 1
    return topic


def wait_until_known(metadata: ClusterMetadata, name: str) -> Lookup[bool]:
    """Wait until every broker that replies knows a topic; False if the client gives up before.

    A broker applies the creation of a topic a moment after the controller has answered it.
    """
    attempt, behind = 0, list(metadata.nodes)
    while behind:
        replies = yield AskEach({node: requests.metadata([name]) for node in behind})
        behind = [
            node
            for node, reply in zip(behind, replies, strict=True)
            if isinstance(reply, MetadataResponse)
            and any(topic.error_code in _NOT_THERE_YET for topic in reply.topics)
        ]
        if behind and not (yield Pause(attempt)):
            return False
        attempt += 1
    return True


def find_leader(
    metadata: ClusterMetadata,
    partition: TopicPartition,
    *,
    attempts_max: int | None = None,
) -> Lookup[Leader]:
    """Return the leader of a partition; wait for an election, at most ``attempts_max`` times.

    Raises:
        Refused: no such topic or partition, or no leader before the client gives up.
    """
    attempt = 0
    while True:
        topic = yield from find_topic(metadata, partition.topic)
        leader = topic.leaders.get(partition.partition)
        if leader is not None:
            return leader
        metadata.forget(partition.topic)
        if partition.partition not in topic.partitions:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        if attempt + 1 == attempts_max or not (yield Pause(attempt)):
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        attempt += 1


def find_coordinator(metadata: ClusterMetadata, kind: int, key: str) -> Lookup[NodeId]:
    """Return the coordinator of a group (0) or a transactional id (1).

    Raises:
        Refused: there is none before the client gives up, or access is denied.
    """
    attempt = 0
    while True:
        reply = yield Ask(requests.find_coordinator(key, kind))
        coordinator = requests.read_coordinator(reply)
        code = coordinator.error_code
        if code == ErrorCode.NONE:
            node_id = NodeId(coordinator.node_id)
            metadata.nodes[node_id] = Address(coordinator.host, coordinator.port)
            return node_id
        if code not in COORDINATOR_MOVED_OR_LOADING or not (yield Pause(attempt)):
            raise Refused(code, key, coordinator.error_message)
        attempt += 1


def find_offsets(
    metadata: ClusterMetadata,
    timestamps: Mapping[TopicPartition, int],
    *,
    committed: bool,
) -> Lookup[dict[TopicPartition, int]]:
    """Return the offset of each timestamp or special value; -1: no record is that late.

    Raises:
        Refused: the look-up failed for a partition. Other exceptions: those of `AskEach`.
    """
    offsets: dict[TopicPartition, int] = {}
    attempt = 0
    while True:
        left = {each: time for each, time in timestamps.items() if each not in offsets}
        by_leader: dict[NodeId, dict[TopicPartition, int]] = {}
        for partition, time in left.items():
            leader = yield from find_leader(metadata, partition)
            by_leader.setdefault(leader.node_id, {})[partition] = time
        replies = yield AskEach(
            {node: requests.list_offsets(theirs, committed) for node, theirs in by_leader.items()}
        )
        failure: Exception | None = None
        for reply in replies:
            if isinstance(reply, Exception):
                failure = reply
            else:
                failure = requests.read_offsets(reply, offsets) or failure
        if failure is None:
            return offsets
        if isinstance(failure, Refused) and not is_retriable(failure.code):
            raise failure
        for partition in left:
            metadata.forget(partition.topic)
        if not (yield Pause(attempt)):
            raise failure
        attempt += 1
