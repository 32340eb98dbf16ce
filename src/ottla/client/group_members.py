"""Members of the four types of groups, in one form. Pure."""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.protocol.codec import decode_prefix
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.messages import consumer_group_describe as consumer
from ottla.protocol.messages import describe_groups as classic
from ottla.protocol.messages import share_group_describe as share
from ottla.protocol.messages import streams_group_describe as streams
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.schema import Message

Embedded = TypeVar("Embedded", bound=Message)

CONSUMER_PROTOCOL: Final = "consumer"
_EMBEDDED_VERSION_MAX: Final = 3


class GroupMember(msgspec.Struct, frozen=True):
    """A member. ``assigned`` and ``target`` are partitions by topic; in a streams group, tasks by
    subtopology. ``target`` is None if the group has no target assignment. ``epoch`` is None in a
    classic group.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    epoch: int | None = None
    subscription: tuple[str, ...] = ()
    assigned: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    target: dict[str, tuple[int, ...]] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the current assignment is the target assignment."""
        return self.target is None or self.assigned == self.target


def classic_members(group: classic.DescribedGroup) -> tuple[GroupMember, ...]:
    """Return the members of a classic group; only consumers have a readable assignment."""
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL
    return tuple(_classic_member(each, is_consumer) for each in _by_id(group.members))


def _classic_member(member: classic.DescribedGroupMember, is_consumer: bool) -> GroupMember:
    subscription: tuple[str, ...] = ()
    assigned: dict[str, tuple[int, ...]] = {}
    if is_consumer:
        said = _embedded(ConsumerProtocolSubscription, member.member_metadata)
        given = _embedded(ConsumerProtocolAssignment, member.member_assignment)
        if said is not None:
            subscription = tuple(sorted(said.topics))
        if given is not None:
            assigned = {
                each.topic: tuple(sorted(each.partitions))
                for each in sorted(given.assigned_partitions, key=lambda each: each.topic)
            }
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        subscription=subscription,
        assigned=assigned,
    )


def _embedded(kind: type[Embedded], data: bytes) -> Embedded | None:
    """Decode an embedded consumer protocol message; None if it is empty or unknown."""
    if len(data) < 2:
        return None
    version = min(int.from_bytes(data[:2], "big", signed=True), _EMBEDDED_VERSION_MAX)
    try:
        return decode_prefix(kind, version, data, 2)[0] if version >= 0 else None
    except ProtocolFault:
        return None


def consumer_members(group: consumer.DescribedGroup) -> tuple[GroupMember, ...]:
    """Return the members of a consumer group (KIP-848)."""
    return tuple(
        GroupMember(
            each.member_id,
            each.client_id,
            each.client_host,
            each.instance_id,
            each.member_epoch,
            _subscription(each.subscribed_topic_names, each.subscribed_topic_regex),
            _by_topic(each.assignment.topic_partitions),
            _by_topic(each.target_assignment.topic_partitions),
        )
        for each in _by_id(group.members)
    )


def share_members(group: share.DescribedGroup) -> tuple[GroupMember, ...]:
    """Return the members of a share group (KIP-932)."""
    return tuple(
        GroupMember(
            each.member_id,
            each.client_id,
            each.client_host,
            None,
            each.member_epoch,
            _subscription(each.subscribed_topic_names, None),
            _by_topic(each.assignment.topic_partitions),
        )
        for each in _by_id(group.members)
    )


def streams_members(group: streams.DescribedGroup) -> tuple[GroupMember, ...]:
    """Return the members of a streams group (KIP-1071), with their active tasks."""
    sources = [] if group.topology is None else group.topology.subtopologies or []
    topics = sorted({name for each in sources for name in each.source_topics})
    return tuple(
        GroupMember(
            each.member_id,
            each.client_id,
            each.client_host,
            each.instance_id,
            each.member_epoch,
            tuple(topics),
            _by_subtopology(each.assignment.active_tasks),
            _by_subtopology(each.target_assignment.active_tasks),
        )
        for each in _by_id(group.members)
    )


def _subscription(names: Iterable[str], regex: str | None) -> tuple[str, ...]:
    """Return topics by name; a regular expression is written between slashes."""
    return (*sorted(names), *([f"/{regex}/"] if regex else ()))


class _Named(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> list[int]: ...


def _by_topic(topics: Iterable[_Named]) -> dict[str, tuple[int, ...]]:
    return {
        each.topic_name: tuple(sorted(each.partitions))
        for each in sorted(topics, key=lambda each: each.topic_name)
        if each.partitions
    }


def _by_subtopology(tasks: Iterable[streams.TaskIds]) -> dict[str, tuple[int, ...]]:
    return {
        each.subtopology_id: tuple(sorted(each.partitions))
        for each in sorted(tasks, key=lambda each: each.subtopology_id)
        if each.partitions
    }


class _Identified(Protocol):
    @property
    def member_id(self) -> str: ...


Member = TypeVar("Member", bound=_Identified)


def _by_id(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda each: each.member_id)
