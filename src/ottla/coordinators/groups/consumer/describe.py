"""ConsumerGroupDescribe, from the committed view."""

from ottla.coordinators.groups.consumer.assignors.spec import Partitions
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.epoch_group.describe import describe_not_found
from ottla.coordinators.groups.machine import GroupsView
from ottla.metadata.image import Image
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe_consumer_group(
    view: GroupsView, group_id: str, image: Image, default_assignor: str
) -> DescribedGroup:
    """Describe a consumer group; one of another kind is not found."""
    group = view.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return describe_not_found(DescribedGroup, "consumer", group_id, group)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, group.members[each], image) for each in sorted(group.members)],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: Image) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.assigned, image),
        target_assignment=_assignment(group.target_of(member.member_id), image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, image: Image) -> Assignment:
    """Return partitions with topic names; those of deleted topics are left out."""
    return Assignment(
        [
            TopicPartitions(topic.id, topic.name, sorted(partitions[topic.id]))
            for topic in map(image.topics.by_id.get, sorted(partitions))
            if topic is not None
        ]
    )
