"""What classic consumers tell each other, which a consumer group has to read and write for them.

    int16  version   then a ConsumerProtocolSubscription or ConsumerProtocolAssignment in it

A version above ours is read as ours: newer ones only add to the end. All of it comes from
clients; what cannot be read raises `ProtocolFault`.
"""

from collections.abc import Iterable
from typing import Final

from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Partitions
from ottla.metadata.topics import Topics
from ottla.protocol.codec import decode_prefix, encode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.types import Uuid

_VERSION_MAX: Final = 3


def embedded_version(data: bytes) -> int:
    """Return the version that something was written in, as far as we know it."""
    if len(data) < 2:
        raise ProtocolFault("a consumer's message without version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise ProtocolFault(f"a consumer's message of version {version}")
    return min(version, _VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read what a member subscribes to and has."""
    message, _ = decode_prefix(ConsumerProtocolSubscription, embedded_version(data), data, 2)
    return message


def read_assignment(data: bytes, topics: Topics) -> Partitions:
    """Read what a member was given, of topics that are there; nothing was given by no bytes."""
    if not data:
        return NO_PARTITIONS
    message, _ = decode_prefix(ConsumerProtocolAssignment, embedded_version(data), data, 2)
    return by_id(((each.topic, each.partitions) for each in message.assigned_partitions), topics)


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: Topics) -> Partitions:
    """Return what a member says it reads, of topics that are there."""
    return by_id(((each.topic, each.partitions) for each in subscription.owned_partitions), topics)


def by_id(named: Iterable[tuple[str, list[int]]], topics: Topics) -> Partitions:
    """Return partitions that are given by name."""
    found: dict[Uuid, frozenset[int]] = {}
    for name, numbers in named:
        topic_id = topics.ids.get(name)
        if topic_id is not None and numbers:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(numbers)
    return found


def write_assignment(partitions: Partitions, topics: Topics, version: int) -> bytes:
    """Write what a member is given; topics that are gone are left out."""
    named = sorted(
        (topic.name, sorted(partitions[topic.id]))
        for topic in map(topics.by_id.get, partitions)
        if topic is not None
    )
    assigned = [AssignmentTopicPartition(name, numbers) for name, numbers in named]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return version.to_bytes(2, "big") + encode(message, version)
