"""ShareGroupDescribe, from the committed view."""

from ottla.coordinators.groups.epoch_group.describe import describe_not_found
from ottla.coordinators.groups.machine import GroupsView
from ottla.coordinators.groups.share.group import Partitions, ShareGroup, ShareMember, by_topic
from ottla.metadata.image import Image
from ottla.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

ASSIGNOR = "simple"


def describe_share_group(view: GroupsView, group_id: str, image: Image) -> DescribedGroup:
    """Describe a share group; one of another kind is not found."""
    group = view.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return describe_not_found(DescribedGroup, "share", group_id, group)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(group.members[each], image) for each in sorted(group.members)],
    )


def _member(member: ShareMember, image: Image) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=_assignment(member.assigned, image),
    )


def _assignment(partitions: Partitions, image: Image) -> Assignment:
    """Return partitions with topic names; those of deleted topics are left out."""
    topics = image.topics.by_id
    return Assignment(
        [
            TopicPartitions(topic_id, topics[topic_id].name, numbers)
            for topic_id, numbers in by_topic(partitions)
            if topic_id in topics
        ]
    )
