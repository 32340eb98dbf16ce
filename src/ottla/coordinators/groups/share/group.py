"""A share group (KIP-932): its members, what they shall read, and whose state exists.

Immutable: a record makes another group of it, so that a view of what is committed stays as it
is. Partitions are shared: a member may take its target at once, since nobody gives it up for it.

    epoch             rises when members, subscriptions or the topics themselves change
    assignment_epoch  the epoch that the targets were made for; never above ``epoch``
    member.epoch      the assignment epoch a member has come to
    initialized       share partitions whose state the share coordinator keeps: only they are read
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.kind import Committer, GroupType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Uuid

SHARE_PROTOCOL: Final = "share"

Places: TypeAlias = frozenset[tuple[Uuid, int]]
"""Partitions, by the ids of their topics."""

NO_PLACES: Final[Places] = frozenset()


class ShareMember(msgspec.Struct, frozen=True):
    """A member: what it said of itself, and how far it has come."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Places = NO_PLACES


class ShareGroup(msgspec.Struct, frozen=True):
    """One share group. ``initialized`` names its topics for when they are gone."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: Map[str, ShareMember] = msgspec.field(default_factory=Map)
    targets: Map[str, Places] = msgspec.field(default_factory=Map)
    initialized: Places = NO_PLACES
    topic_names: Map[Uuid, str] = msgspec.field(default_factory=Map)

    # -- as any group --------------------------------------------------------

    @property
    def type(self) -> GroupType:
        """A share group."""
        return GroupType.SHARE

    def state_name(self) -> str:
        """Return its state as Kafka prints it."""
        return "Stable" if self.members else "Empty"

    def protocol_type(self) -> str:
        """Return what ListGroups says of it."""
        return SHARE_PROTOCOL

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def check_offset_commit(self, committer: Committer) -> ErrorCode:
        """Refuse: the offsets of a share group are not committed by its members."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Allow it: there are no committed offsets to be found, as with an unknown group."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Refuse, as commits are."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_delete(self) -> ErrorCode:
        """Allow it to a group without members."""
        return ErrorCode.NONE if self.is_empty() else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return any(topic in member.topic_names for member in self.members.values())

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Never: there are no committed offsets."""
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, its members first."""
        group_id = self.group_id
        keys: list[Message] = []
        for member_id in sorted(self.members):
            keys += _member_keys(group_id, member_id)
        keys.append(ShareGroupStatePartitionMetadataKey(group_id))
        keys.append(ShareGroupTargetAssignmentMetadataKey(group_id))
        keys.append(ShareGroupMetadataKey(group_id))
        return [CoordinatorRecord(key, None) for key in keys]

    def subscribed(self) -> tuple[str, ...]:
        """Return all topics that some member reads."""
        return tuple(sorted({name for each in self.members.values() for name in each.topic_names}))


# -- records out ---------------------------------------------------------------------


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return what a member says of itself."""
    value = ShareGroupMemberMetadataValue(
        member.rack_id, member.client_id, member.client_host, list(member.topic_names)
    )
    return CoordinatorRecord(
        ShareGroupMemberMetadataKey(group_id, member.member_id), Versioned(value, 0)
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member."""
    return [CoordinatorRecord(key, None) for key in _member_keys(group_id, member_id)]


def _member_keys(group_id: str, member_id: str) -> list[Message]:
    return [
        ShareGroupCurrentMemberAssignmentKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupMemberMetadataKey(group_id, member_id),
    ]


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the epoch of a group."""
    value = ShareGroupMetadataValue(epoch, metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id), Versioned(value, 0))


def target_records(
    group_id: str, epoch: int, targets: Mapping[str, Places]
) -> list[CoordinatorRecord]:
    """Return new targets and, last, the epoch they were made for."""
    records = []
    for member_id in sorted(targets):
        topics = [TopicPartition(*each) for each in by_topic(targets[member_id])]
        key = ShareGroupTargetAssignmentMemberKey(group_id, member_id)
        value = ShareGroupTargetAssignmentMemberValue(topics)
        records.append(CoordinatorRecord(key, Versioned(value, 0)))
    done = ShareGroupTargetAssignmentMetadataValue(epoch)
    key_done = ShareGroupTargetAssignmentMetadataKey(group_id)
    return [*records, CoordinatorRecord(key_done, Versioned(done, 0))]


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return how far a member has come."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=[TopicPartitions(*each) for each in by_topic(member.assigned)],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return CoordinatorRecord(key, Versioned(value, 0))


def initialized_record(
    group_id: str, initialized: Places, names: Mapping[Uuid, str]
) -> CoordinatorRecord:
    """Return whose state exists."""
    topics = [
        TopicPartitionsInfo(topic_id, names.get(topic_id, ""), partitions)
        for topic_id, partitions in by_topic(initialized)
    ]
    value = ShareGroupStatePartitionMetadataValue(initialized_topics=topics)
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id), Versioned(value, 0))


def by_topic(places: Iterable[tuple[Uuid, int]]) -> list[tuple[Uuid, list[int]]]:
    """Return partitions by topic, in order."""
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return list(found.items())


# -- records in ------------------------------------------------------------------------


def replayed(group: ShareGroup, key: Message, value: Message | None) -> ShareGroup | None:
    """Return the group with a record taken in; None where the record ends it."""
    changed: ShareGroup | None = group
    match key, value:
        case ShareGroupMetadataKey(), None:
            changed = None
        case ShareGroupMetadataKey(), ShareGroupMetadataValue() as epochs:
            changed = replace(group, epoch=epochs.epoch, metadata_hash=epochs.metadata_hash)
        case (
            ShareGroupTargetAssignmentMetadataKey(),
            ShareGroupTargetAssignmentMetadataValue() as v,
        ):
            changed = replace(group, assignment_epoch=v.assignment_epoch)
        case ShareGroupStatePartitionMetadataKey(), _:
            changed = _with_state(group, value)
        case ShareGroupMemberMetadataKey(member_id=member_id), _:
            changed = _with_member(group, member_id, value)
        case ShareGroupTargetAssignmentMemberKey(member_id=member_id), _:
            changed = _with_target(group, member_id, value)
        case ShareGroupCurrentMemberAssignmentKey(member_id=member_id), _:
            changed = _with_current(group, member_id, value)
    return changed


def _with_state(group: ShareGroup, value: Message | None) -> ShareGroup:
    if not isinstance(value, ShareGroupStatePartitionMetadataValue):
        return replace(group, initialized=NO_PLACES, topic_names=Map())
    topics = value.initialized_topics
    return replace(
        group,
        initialized=_places(topics),
        topic_names=Map({topic.topic_id: topic.topic_name for topic in topics}),
    )


def _with_member(group: ShareGroup, member_id: str, value: Message | None) -> ShareGroup:
    if not isinstance(value, ShareGroupMemberMetadataValue):
        if member_id not in group.members:
            return group
        return replace(group, members=group.members.delete(member_id))
    member = replace(
        group.members.get(member_id) or ShareMember(member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
    )
    return replace(group, members=group.members.set(member_id, member))


def _with_target(group: ShareGroup, member_id: str, value: Message | None) -> ShareGroup:
    if isinstance(value, ShareGroupTargetAssignmentMemberValue):
        places = _places(value.topic_partitions)
        return replace(group, targets=group.targets.set(member_id, places))
    if member_id not in group.targets:
        return group
    return replace(group, targets=group.targets.delete(member_id))


def _with_current(group: ShareGroup, member_id: str, value: Message | None) -> ShareGroup:
    member = group.members.get(member_id)
    if member is None or not isinstance(value, ShareGroupCurrentMemberAssignmentValue):
        return group  # a member that goes is ended by the tombstone of what it said of itself
    member = replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=_places(value.assigned_partitions),
    )
    return replace(group, members=group.members.set(member_id, member))


def _places(
    topics: Iterable[TopicPartition | TopicPartitions | TopicPartitionsInfo],
) -> Places:
    return frozenset((each.topic_id, index) for each in topics for index in each.partitions)
