"""ShareGroupDescribe: share groups as they are committed."""

from ottla.coordinators.groups.machine import GroupsView
from ottla.coordinators.groups.share.group import Places, ShareGroup, ShareMember, by_topic
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
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
        why = "not found" if group is None else "is not a share group"
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {why}.",
            group_id=group_id,
        )
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


def _assignment(places: Places, image: Image) -> Assignment:
    """Name the partitions; those of topics that are gone have no name and are left out."""
    topics = image.topics.by_id
    return Assignment(
        [
            TopicPartitions(topic_id, topics[topic_id].name, partitions)
            for topic_id, partitions in by_topic(places)
            if topic_id in topics
        ]
    )
