"""The records of a consumer group."""

from typing import Final

from msgspec.structs import replace

from ottla.coordinators.groups.consumer.assignors.spec import Partitions
from ottla.coordinators.groups.consumer.group import KEYS, ConsumerGroup, ResolvedRegex
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.epoch_group.records import ExclusiveRecords, record
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the epoch of a group, and the hash of the topics it is based on."""
    value = ConsumerGroupMetadataValue(epoch, metadata_hash)
    return record(ConsumerGroupMetadataKey(group_id), value)


def regex_record(group_id: str, expression: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Return the topics that an expression matched."""
    key = ConsumerGroupRegularExpressionKey(group_id, expression)
    value = ConsumerGroupRegularExpressionValue(
        sorted(resolved.topics), resolved.version, resolved.timestamp
    )
    return record(key, value)


class ConsumerRecords(ExclusiveRecords[ConsumerGroup, ConsumerMember, Partitions]):
    """Writes and replays the records of consumer groups."""

    def new_group(self, group_id: str) -> ConsumerGroup:
        """Return a group without members."""
        return ConsumerGroup(group_id)

    def new_member(self, member_id: str) -> ConsumerMember:
        """Return a member without metadata and assignment."""
        return ConsumerMember(member_id)

    def target_value(self, target: Partitions) -> Message:
        """Return a target as the value of a record, in order."""
        topics = [TopicPartition(each, sorted(target[each])) for each in sorted(target)]
        return ConsumerGroupTargetAssignmentMemberValue(topics)

    def read_target(self, value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
        """Return the target in the value of a record."""
        topics = value.topic_partitions
        return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}

    def with_other(
        self, group: ConsumerGroup, key: Message, value: Message | None
    ) -> ConsumerGroup:
        """Return the group after a record about a regular expression."""
        assert isinstance(key, ConsumerGroupRegularExpressionKey)
        expression = key.regular_expression
        if value is not None:
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            topics, when = frozenset(value.topics), Millis(value.timestamp)
            resolved = ResolvedRegex(topics, value.version, when)
            return replace(group, regexes=group.regexes.set(expression, resolved))
        if expression in group.regexes:
            return replace(group, regexes=group.regexes.delete(expression))
        return group


RECORDS: Final = ConsumerRecords(KEYS, ConsumerGroupTargetAssignmentMetadataValue)
