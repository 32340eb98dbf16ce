"""The records of a consumer group, and how each makes another group of one.

`replayed` is the only way a group changes: a decision applies its records to its draft as the
shard will apply them to the state, and loading a log applies them once more.
"""

from typing import Final

from msgspec.structs import replace

from ottla.coordinators.groups.consumer.assignors.spec import Partitions
from ottla.coordinators.groups.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis

VALUE_VERSION: Final = 0


def _record(key: Message, value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(key, Versioned(value, VALUE_VERSION))


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch, and the topics it was made for."""
    value = ConsumerGroupMetadataValue(epoch, metadata_hash)
    return _record(ConsumerGroupMetadataKey(group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """What a member said of itself."""
    key = ConsumerGroupMemberMetadataKey(group_id, member.member_id)
    return _record(key, member.description())


def placement_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """A member's epoch and partitions."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return _record(key, member.placement())


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    """What a member shall have."""
    topics = [TopicPartition(each, sorted(target[each])) for each in sorted(target)]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return _record(key, ConsumerGroupTargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """The epoch that all targets were made for."""
    value = ConsumerGroupTargetAssignmentMetadataValue(epoch)
    return _record(ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def regex_record(group_id: str, expression: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """The topics that an expression matched."""
    key = ConsumerGroupRegularExpressionKey(group_id, expression)
    value = ConsumerGroupRegularExpressionValue(
        sorted(resolved.topics), resolved.version, resolved.timestamp
    )
    return _record(key, value)


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member, the member itself last."""
    keys = (
        ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupMemberMetadataKey(group_id, member_id),
    )
    return [CoordinatorRecord(key, None) for key in keys]


# -- replay ------------------------------------------------------------------------------


def replayed(group: ConsumerGroup, key: Message, value: Message | None) -> ConsumerGroup | None:
    """Return the group that a record makes of this one; None: there is no such group any more."""
    match key:
        case ConsumerGroupMetadataKey():
            return _epoch(group, value)
        case ConsumerGroupTargetAssignmentMetadataKey():
            changed = _target_epoch(group, value)
        case ConsumerGroupMemberMetadataKey():
            changed = _member(group, key.member_id, value)
        case ConsumerGroupCurrentMemberAssignmentKey():
            changed = _placement(group, key.member_id, value)
        case ConsumerGroupTargetAssignmentMemberKey():
            changed = _target(group, key.member_id, value)
        case ConsumerGroupRegularExpressionKey():
            changed = _regex(group, key.regular_expression, value)
        case _:
            changed = group
    return changed


def _epoch(group: ConsumerGroup, value: Message | None) -> ConsumerGroup | None:
    if value is None:
        return None
    assert isinstance(value, ConsumerGroupMetadataValue)
    return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _target_epoch(group: ConsumerGroup, value: Message | None) -> ConsumerGroup:
    if value is None:
        return replace(group, assignment_epoch=-1)
    assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
    return replace(group, assignment_epoch=value.assignment_epoch)


def _member(group: ConsumerGroup, member_id: str, value: Message | None) -> ConsumerGroup:
    if value is None:
        return group.without_member(member_id)
    assert isinstance(value, ConsumerGroupMemberMetadataValue)
    member = group.members.get(member_id) or ConsumerMember(member_id)
    return group.with_member(member.described_by(value))


def _placement(group: ConsumerGroup, member_id: str, value: Message | None) -> ConsumerGroup:
    member = group.members.get(member_id)
    if value is None:
        return group if member is None else group.with_member(member.displaced())
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    return group.with_member((member or ConsumerMember(member_id)).placed_by(value))


def _target(group: ConsumerGroup, member_id: str, value: Message | None) -> ConsumerGroup:
    if value is not None:
        assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
        topics = value.topic_partitions
        target = {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}
        return replace(group, targets=group.targets.set(member_id, target))
    if member_id in group.targets:
        return replace(group, targets=group.targets.delete(member_id))
    return group


def _regex(group: ConsumerGroup, expression: str, value: Message | None) -> ConsumerGroup:
    if value is not None:
        assert isinstance(value, ConsumerGroupRegularExpressionValue)
        topics, when = frozenset(value.topics), Millis(value.timestamp)
        resolved = ResolvedRegex(topics, value.version, when)
        return replace(group, regexes=group.regexes.set(expression, resolved))
    if expression in group.regexes:
        return replace(group, regexes=group.regexes.delete(expression))
    return group
