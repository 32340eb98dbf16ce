"""Admin requests for share groups (KIP-932): the start offset of each partition, and changing it.

As in `admin_groups.py`, requests go to the coordinator of the group.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ottla.client.cluster import Cluster, Refused
from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.client.failures import check, refusal_of
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.types import NodeId, TopicPartition


class ShareOffset(msgspec.Struct, frozen=True):
    """The position of a group in a partition; None if not initialized, or if the lag is unknown."""

    start: int | None
    lag: int | None
    leader_epoch: int


async def share_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, ShareOffset]:
    """Return the offsets of a share group in all its partitions. Raises `Refused`."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id, None)
    request = DescribeShareGroupOffsetsRequest([asked])

    async def ask(node_id: NodeId) -> dict[TopicPartition, ShareOffset]:
        response = await cluster.send_to(node_id, request, DescribeShareGroupOffsetsResponse)
        (group,) = response.groups
        check(group.error_code, group_id, group.error_message)
        found: dict[TopicPartition, ShareOffset] = {}
        for topic in group.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic_name, each.partition_index)
                check(each.error_code, f"{group_id}: {partition}", each.error_message)
                found[partition] = ShareOffset(
                    _known(each.start_offset), _known(each.lag), each.leader_epoch
                )
        return dict(sorted(found.items()))

    return await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)


async def alter_share_offsets(
    cluster: Cluster, group_id: str, starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Refused | None]:
    """Set the start offsets of a group without members. Raises `Refused`."""
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for partition, start in starts.items():
        topic = topics.setdefault(
            partition.topic, AlterShareGroupOffsetsRequestTopic(partition.topic)
        )
        topic.partitions.append(AlterShareGroupOffsetsRequestPartition(partition.partition, start))
    request = AlterShareGroupOffsetsRequest(group_id, list(topics.values()))

    async def ask(node_id: NodeId) -> dict[TopicPartition, Refused | None]:
        response = await cluster.send_to(node_id, request, AlterShareGroupOffsetsResponse)
        check(response.error_code, group_id, response.error_message)
        return {
            (partition := TopicPartition(topic.topic_name, each.partition_index)): refusal_of(
                each.error_code, str(partition), each.error_message
            )
            for topic in response.responses
            for each in topic.partitions
        }

    return await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)


async def delete_share_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str]
) -> dict[str, Refused | None]:
    """Delete the offsets of a group without members for topics. Raises `Refused`."""
    asked = [DeleteShareGroupOffsetsRequestTopic(name) for name in topics]
    request = DeleteShareGroupOffsetsRequest(group_id, asked)

    async def ask(node_id: NodeId) -> dict[str, Refused | None]:
        response = await cluster.send_to(node_id, request, DeleteShareGroupOffsetsResponse)
        check(response.error_code, group_id, response.error_message)
        return {
            each.topic_name: refusal_of(each.error_code, each.topic_name, each.error_message)
            for each in response.responses
        }

    return await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)


def _known(number: int) -> int | None:
    return None if number < 0 else number
