"""A share group (KIP-932): its members, their targets, and the initialized partitions.

Immutable: a record creates another group from it, so that committed views do not change. Partitions
are shared: a member gets its target at once, since no other member has to revoke.

    epoch             rises when members, subscriptions or the topics themselves change
    assignment_epoch  the epoch that the targets were computed for; never above ``epoch``
    member.epoch      the assignment epoch that a member has reached
    initialized       partitions with state at the share coordinator: only these are read
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.group import EpochGroup
from ottla.coordinators.groups.epoch_group.record_keys import RecordKeys, tombstones
from ottla.coordinators.groups.kind import Committer, GroupType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from ottla.protocol.types import Millis, TopicIdPartition, Uuid

SHARE_PROTOCOL: Final = "share"

Partitions: TypeAlias = frozenset[TopicIdPartition]

NO_PARTITIONS: Final[Partitions] = frozenset()

KEYS: Final = RecordKeys(
    group=ShareGroupMetadataKey,
    member=ShareGroupMemberMetadataKey,
    target_epoch=ShareGroupTargetAssignmentMetadataKey,
    target=ShareGroupTargetAssignmentMemberKey,
    assignment=ShareGroupCurrentMemberAssignmentKey,
    other=(ShareGroupStatePartitionMetadataKey,),
)


class ShareMember(msgspec.Struct, frozen=True):
    """A member: its metadata, its epoch and its assignment."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> "ShareMember":
        """Return the member with the metadata of a record."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(value.subscribed_topic_names),
        )

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """Return its metadata as the value of a record."""
        return ShareGroupMemberMetadataValue(
            self.rack_id, self.client_id, self.client_host, list(self.topic_names)
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> "ShareMember":
        """Return the member with the epoch and partitions of a record."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=read_partitions(value.assigned_partitions),
        )

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        """Return its epoch and partitions as the value of a record."""
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            assigned_partitions=[TopicPartitions(*each) for each in by_topic(self.assigned)],
        )


class ShareGroup(EpochGroup[ShareMember, Partitions], frozen=True):
    """One share group. ``topic_names`` are those of ``initialized``, for topics deleted since."""

    initialized: Partitions = NO_PARTITIONS
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
        """Return its protocol type for ListGroups."""
        return SHARE_PROTOCOL

    def check_offset_commit(self, committer: Committer) -> ErrorCode:
        """Reject it: members of a share group do not commit offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Allow it: there are no committed offsets, as for an unknown group."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Reject it, like commits."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return any(topic in member.topic_names for member in self.members.values())

    def may_expire(self) -> bool:
        """Never: its position is in the share state, and would be lost with it (as in Kafka)."""
        return False

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Never: there are no committed offsets."""
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, its members first."""
        group_id = self.group_id
        found: list[CoordinatorRecord] = []
        for member_id in sorted(self.members):
            found += KEYS.member_removal(group_id, member_id)
        return found + tombstones(
            [
                ShareGroupStatePartitionMetadataKey(group_id),
                ShareGroupTargetAssignmentMetadataKey(group_id),
                ShareGroupMetadataKey(group_id),
            ]
        )

    def subscribed(self) -> tuple[str, ...]:
        """Return all topics that members read."""
        return tuple(sorted({name for each in self.members.values() for name in each.topic_names}))


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[Uuid, list[int]]]:
    """Return partitions by topic, in order."""
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return list(found.items())


def read_partitions(
    topics: Iterable[TopicPartition | TopicPartitions | TopicPartitionsInfo],
) -> Partitions:
    """Return the single partitions of what a record lists by topic."""
    return frozenset(
        TopicIdPartition(each.topic_id, index) for each in topics for index in each.partitions
    )
