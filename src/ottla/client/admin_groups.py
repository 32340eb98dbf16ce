"""Admin requests for groups: members, assignments, committed offsets, and changing them.

All types of groups are described in one form. Requests that change something are retried only if
the coordinator replied that it did nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ottla.client import requests
from ottla.client.cluster import Cluster, Refused
from ottla.client.coordinators import (
    COORDINATOR_MOVED_OR_LOADING,
    CoordinatorType,
    ask_coordinator,
)
from ottla.client.failures import check, refusal_of
from ottla.client.group_members import (
    GroupMember,
    classic_members,
    consumer_members,
    share_members,
    streams_members,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId, Offset, TopicPartition, Uuid

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"


class GroupListing(msgspec.Struct, frozen=True):
    """A group as its coordinator lists it; ``type`` is empty if the broker does not return it."""

    group_id: str
    type: str
    protocol: str
    state: str
    coordinator: NodeId


class GroupDescription(msgspec.Struct, frozen=True):
    """A group and its members. A classic group has no epochs (None)."""

    group_id: str
    type: str
    state: str
    coordinator: NodeId
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]


# -- groups and members --------------------------------------------------------------


async def list_groups(
    cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Return the groups of all brokers, by id. Raises `Refused`, NoBroker."""
    await cluster.metadata([])
    request = ListGroupsRequest(list(states), list(types))
    found = await asyncio.gather(*(_listed_at(cluster, each, request) for each in cluster.nodes))
    return sorted((each for listed in found for each in listed), key=lambda each: each.group_id)


async def _listed_at(
    cluster: Cluster, node_id: NodeId, request: ListGroupsRequest
) -> list[GroupListing]:
    for attempt in range(_LOADS_MAX):
        response = await cluster.send_to(node_id, request, ListGroupsResponse)
        if response.error_code not in COORDINATOR_MOVED_OR_LOADING or attempt + 1 == _LOADS_MAX:
            break
        await cluster.pause(attempt)
    check(response.error_code, f"broker {node_id}")
    return [_listing(each, node_id) for each in response.groups]


_LOADS_MAX: Final = 8


def _listing(group: ListedGroup, node_id: NodeId) -> GroupListing:
    return GroupListing(
        group.group_id,
        group.group_type.lower(),
        group.protocol_type,
        group.group_state,
        node_id,
    )


async def find_group(cluster: Cluster, group_id: str) -> GroupListing:
    """Return the listing of one group by its coordinator. Raises `Refused` if there is none."""
    node_id = await cluster.coordinator_of(CoordinatorType.GROUP, group_id)
    for each in await _listed_at(cluster, node_id, ListGroupsRequest()):
        if each.group_id == group_id:
            return each
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, group_id)


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Describe a group of any type. Raises `Refused`."""
    listed = await find_group(cluster, group_id)

    async def ask(node_id: NodeId) -> GroupDescription:
        if listed.type in _KINDS:
            return await _with_epochs(cluster, node_id, group_id, listed.type)
        return await _classic(cluster, node_id, group_id)

    return await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)


async def _classic(cluster: Cluster, node_id: NodeId, group_id: str) -> GroupDescription:
    request = DescribeGroupsRequest([group_id])
    response = await cluster.send_to(node_id, request, DescribeGroupsResponse)
    (found,) = response.groups
    check(found.error_code, group_id, found.error_message)
    return GroupDescription(
        group_id,
        CLASSIC,
        found.group_state,
        node_id,
        found.protocol_data,
        None,
        None,
        classic_members(found),
    )


class _Kind(msgspec.Struct, frozen=True):
    """The messages to describe a type of group that has epochs."""

    request: Callable[[list[str]], Message]
    reply: type[Any]
    members: Callable[[Any], tuple[GroupMember, ...]]
    assignor: Callable[[Any], str] = lambda found: found.assignor_name


_KINDS: Final = {
    CONSUMER: _Kind(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, consumer_members),
    SHARE: _Kind(ShareGroupDescribeRequest, ShareGroupDescribeResponse, share_members),
    STREAMS: _Kind(
        StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, streams_members, lambda _: ""
    ),
}


async def _with_epochs(
    cluster: Cluster, node_id: NodeId, group_id: str, kind: str
) -> GroupDescription:
    how = _KINDS[kind]
    response = await cluster.send_to(node_id, how.request([group_id]), how.reply)
    (found,) = response.groups
    check(found.error_code, group_id, found.error_message)
    return GroupDescription(
        group_id,
        kind,
        found.group_state,
        node_id,
        how.assignor(found),
        found.group_epoch,
        found.assignment_epoch,
        how.members(found),
    )


# -- committed offsets -----------------------------------------------------------------


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, Offset]:
    """Return the committed offsets of a group for existing topics. Raises `Refused`."""
    request = OffsetFetchRequest(
        group_id=group_id, topics=None, groups=[OffsetFetchRequestGroup(group_id, topics=None)]
    )

    names = await _names(cluster)

    async def ask(node_id: NodeId) -> dict[TopicPartition, int]:
        response = await cluster.send_to(node_id, request, OffsetFetchResponse)
        return requests.read_committed_offsets(response, group_id, names)

    offsets = await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)
    return {partition: Offset(offset) for partition, offset in sorted(offsets.items())}


async def _names(cluster: Cluster) -> dict[Uuid, str]:
    response = await cluster.metadata(None)
    return {topic.topic_id: topic.name for topic in response.topics if topic.name is not None}


_OF_WHOLE_GROUP: Final = COORDINATOR_MOVED_OR_LOADING | {ErrorCode.GROUP_AUTHORIZATION_FAILED}
"""Errors of a partition that are about the group."""


class Member(msgspec.Struct, frozen=True):
    """A member as the coordinator knows it."""

    member_id: str = ""
    epoch: int = -1


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    member: Member | None = None,
) -> dict[TopicPartition, Refused | None]:
    """Commit offsets for a member, or without one for a group without members. Raises `Refused`."""
    sender = member or Member()
    topics = {each.topic for each in offsets}
    ids = {name: (await cluster.topic(name)).topic_id for name in topics}
    names = {topic_id: name for name, topic_id in ids.items()}
    request = requests.offset_commit(group_id, offsets, ids, (sender.member_id, sender.epoch))

    async def ask(node_id: NodeId) -> dict[TopicPartition, Refused | None]:
        response = await cluster.send_to(node_id, request, OffsetCommitResponse)
        found: dict[TopicPartition, Refused | None] = {}
        for topic in response.topics:
            for each in topic.partitions:
                name = topic.name or names.get(topic.topic_id, "")
                partition = TopicPartition(name, each.partition_index)
                if each.error_code in _OF_WHOLE_GROUP:
                    raise Refused(each.error_code, group_id)
                found[partition] = refusal_of(each.error_code, str(partition))
        return found

    return await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)


# -- deletion ----------------------------------------------------------------------------


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, Refused | None]:
    """Delete groups and their offsets; return the error of each, or None."""
    found: dict[str, Refused | None] = {}
    for group_id in group_ids:
        try:
            await _delete(cluster, group_id)
        except Refused as refused:
            found[group_id] = refused
        else:
            found[group_id] = None
    return found


async def _delete(cluster: Cluster, group_id: str) -> None:
    async def ask(node_id: NodeId) -> None:
        request = DeleteGroupsRequest([group_id])
        response = await cluster.send_to(node_id, request, DeleteGroupsResponse)
        check(response.results[0].error_code, group_id)

    await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)
