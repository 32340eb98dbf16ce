"""The records of a share group."""

from collections.abc import Mapping
from typing import Final

from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.records import EpochRecords, record
from ottla.coordinators.groups.share.group import (
    KEYS,
    NO_PARTITIONS,
    Partitions,
    ShareGroup,
    ShareMember,
    by_topic,
    read_partitions,
)
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitionsInfo,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the epoch of a group, and the hash of the topics it is based on."""
    return record(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def initialized_record(
    group_id: str, initialized: Partitions, names: Mapping[Uuid, str]
) -> CoordinatorRecord:
    """Return the partitions whose state exists at the share coordinator."""
    topics = [
        TopicPartitionsInfo(topic_id, names.get(topic_id, ""), partitions)
        for topic_id, partitions in by_topic(initialized)
    ]
    value = ShareGroupStatePartitionMetadataValue(initialized_topics=topics)
    return record(ShareGroupStatePartitionMetadataKey(group_id), value)


class ShareRecords(EpochRecords[ShareGroup, ShareMember, Partitions]):
    """Writes and replays the records of share groups."""

    def new_group(self, group_id: str) -> ShareGroup:
        """Return a group without members."""
        return ShareGroup(group_id)

    def new_member(self, member_id: str) -> ShareMember:
        """Return a member without metadata and assignment."""
        return ShareMember(member_id)

    def target_value(self, target: Partitions) -> Message:
        """Return a target as the value of a record, in order."""
        topics = [TopicPartition(*each) for each in by_topic(target)]
        return ShareGroupTargetAssignmentMemberValue(topics)

    def read_target(self, value: ShareGroupTargetAssignmentMemberValue) -> Partitions:
        """Return the target in the value of a record."""
        return read_partitions(value.topic_partitions)

    def with_target_epoch(
        self, group: ShareGroup, value: ShareGroupTargetAssignmentMetadataValue | None
    ) -> ShareGroup:
        """Return the group with the epoch of its targets; a tombstone changes nothing."""
        return group if value is None else super().with_target_epoch(group, value)

    def with_assignment(
        self,
        group: ShareGroup,
        member_id: str,
        value: ShareGroupCurrentMemberAssignmentValue | None,
    ) -> ShareGroup:
        """Return the group with the assignment of a member.

        A tombstone changes nothing: the tombstone of its metadata removes the member.
        """
        member = group.members.get(member_id)
        if member is None or value is None:
            return group
        return group.with_member(member.with_assignment(value))

    def with_other(self, group: ShareGroup, key: Message, value: Message | None) -> ShareGroup:
        """Return the group after a record of the partitions whose state exists."""
        if not isinstance(value, ShareGroupStatePartitionMetadataValue):
            return replace(group, initialized=NO_PARTITIONS, topic_names=Map())
        topics = value.initialized_topics
        return replace(
            group,
            initialized=read_partitions(topics),
            topic_names=Map({topic.topic_id: topic.topic_name for topic in topics}),
        )


RECORDS: Final = ShareRecords(KEYS, ShareGroupTargetAssignmentMetadataValue)
