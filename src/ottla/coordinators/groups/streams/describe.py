"""StreamsGroupDescribe, from the committed view."""

from collections.abc import Callable
from typing import Final

from ottla.coordinators.groups.epoch_group.describe import describe_not_found
from ottla.coordinators.groups.errors import InvalidTopology
from ottla.coordinators.groups.machine import GroupsView
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.tasks import TaskRoles, Tasks, by_subtopology
from ottla.coordinators.groups.streams.topics import configure
from ottla.coordinators.groups.streams.topology import InternalTopic
from ottla.coordinators.groups.streams.topology import Topology as GroupTopology
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

STICKY: Final = "sticky"
"""The assignor of streams groups: the only one."""


def describe_streams_group(
    view: GroupsView, group_id: str, count_of: Callable[[str], int | None]
) -> DescribedGroup:
    """Describe a streams group; one of another kind is not found."""
    group = view.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return describe_not_found(DescribedGroup, "streams", group_id, group)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if group.topology is None else _topology(group.topology, count_of),
        members=[_member(group, group.members[each]) for each in sorted(group.members)],
        assignor_name=STICKY,
    )


def _topology(topology: GroupTopology, count_of: Callable[[str], int | None]) -> Topology:
    """Return the topology, with the partition counts of its topics once they all exist."""
    internal = {}
    try:
        configured = configure(topology, count_of)
        if configured.is_ready():
            internal = dict(configured.internal)
    except InvalidTopology:
        pass  # another coordinator accepted it: describe it as stored

    def infos(topics: tuple[InternalTopic, ...]) -> list[TopicInfo]:
        return [_info(internal.get(each.name, each)) for each in sorted(topics, key=_name)]

    return Topology(
        topology.epoch,
        [
            Subtopology(
                each.subtopology_id,
                sorted(each.source_topics),
                sorted(each.repartition_sink_topics),
                infos(each.state_changelog_topics),
                infos(each.repartition_source_topics),
            )
            for each in topology.subtopologies
        ],
    )


def _name(topic: InternalTopic) -> str:
    return topic.name


def _info(topic: InternalTopic) -> TopicInfo:
    configs = [KeyValue(key, value) for key, value in topic.configs]
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else Endpoint(*member.endpoint),
        client_tags=[KeyValue(key, value) for key, value in member.tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.target_of(member.member_id)),
    )


def _assignment(tasks: TaskRoles) -> Assignment:
    return Assignment(_listed(tasks.active), _listed(tasks.standby), _listed(tasks.warmup))


def _listed(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(*each) for each in by_subtopology(tasks)]
