"""The embedded protocol of classic consumers, which a consumer group reads and writes for them.

    int16  version   then a ConsumerProtocolSubscription or ConsumerProtocolAssignment in it

A newer version is read as the newest known one: versions only append fields. All of it is sent by
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
    """Return the version of encoded data, at most the newest known one."""
    if len(data) < 2:
        raise ProtocolFault("a consumer's message without version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise ProtocolFault(f"a consumer's message of version {version}")
    return min(version, _VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read the subscription and owned partitions of a member."""
    message, _ = decode_prefix(ConsumerProtocolSubscription, embedded_version(data), data, 2)
    return message


def read_assignment(data: bytes, topics: Topics) -> Partitions:
    """Read the assignment of a member, for topics that exist; no bytes mean no assignment."""
    if not data:
        return NO_PARTITIONS
    assigned = _assignment(data).assigned_partitions
    return by_id(((each.topic, each.partitions) for each in assigned), topics)


def carries_user_data(data: bytes) -> bool:
    """Say whether a custom assignor has sent a member more than its partitions."""
    return bool(data) and bool(_assignment(data).user_data)


def _assignment(data: bytes) -> ConsumerProtocolAssignment:
    message, _ = decode_prefix(ConsumerProtocolAssignment, embedded_version(data), data, 2)
    return message


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: Topics) -> Partitions:
    """Return the partitions that a member says it owns, for topics that exist."""
    return by_id(((each.topic, each.partitions) for each in subscription.owned_partitions), topics)


def by_id(named: Iterable[tuple[str, list[int]]], topics: Topics) -> Partitions:
    """Return partitions given by topic name, by topic id."""
    found: dict[Uuid, frozenset[int]] = {}
    for name, numbers in named:
        topic_id = topics.ids.get(name)
        if topic_id is not None and numbers:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(numbers)
    return found


def write_assignment(partitions: Partitions, topics: Topics, version: int) -> bytes:
    """Write the assignment of a member; deleted topics are left out."""
    named = sorted(
        (topic.name, sorted(partitions[topic.id]))
        for topic in map(topics.by_id.get, partitions)
        if topic is not None
    )
    assigned = [AssignmentTopicPartition(name, numbers) for name, numbers in named]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return version.to_bytes(2, "big") + encode(message, version)
