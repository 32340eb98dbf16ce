"""Admin requests for replicas: reassignment, log directories, elections, unregistering nodes.

As in `admin.py`, each function is one request, and requests that change something are sent once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.client.cluster import Cluster, Refused
from ottla.client.failures import check, refusal_of
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from ottla.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ottla.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from ottla.protocol.types import NodeId, TopicPartition

Refusals = dict[TopicPartition, Refused | None]

_PREFERRED, _UNCLEAN = 0, 1
TIMEOUT_MS: Final = 60_000


async def alter_reassignments(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> Refusals:
    """Reassign partitions to other replicas; None cancels a reassignment. Raises `Refused`."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[
            ReassignableTopic(
                topic,
                [
                    ReassignablePartition(each.partition, _listed(wanted[each]))
                    for each in sorted(partitions)
                ],
            )
            for topic, partitions in _by_topic(wanted)
        ],
    )
    response = await cluster.send_any(
        request, AlterPartitionReassignmentsResponse, may_repeat=False
    )
    check(response.error_code, "reassignment", response.error_message)
    return {
        (name := TopicPartition(topic.name, row.partition_index)): refusal_of(
            row.error_code, name, row.error_message
        )
        for topic in response.responses
        for row in topic.partitions
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


async def list_reassignments(
    cluster: Cluster,
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Return the ongoing reassignments. Raises `Refused`."""
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    response = await cluster.send_any(request, ListPartitionReassignmentsResponse)
    check(response.error_code, "reassignments", response.error_message)
    return {
        TopicPartition(topic.name, row.partition_index): row
        for topic in response.topics
        for row in topic.partitions
    }


async def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, is_unclean: bool = False
) -> Refusals:
    """Elect the preferred replica, or any live one if unclean; None means all partitions.

    For all partitions, those that need no election are not in the result. Raises `Refused`.
    """
    named = None
    if partitions is not None:
        named = [
            TopicPartitions(topic, [each.partition for each in sorted(found)])
            for topic, found in _by_topic(partitions)
        ]
    request = ElectLeadersRequest(_UNCLEAN if is_unclean else _PREFERRED, named, TIMEOUT_MS)
    response = await cluster.send_any(request, ElectLeadersResponse, may_repeat=False)
    check(response.error_code, "election")
    return {
        (name := TopicPartition(topic.topic, row.partition_id)): refusal_of(
            row.error_code, name, row.error_message
        )
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


async def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Unregister a broker from the cluster. Raises `Refused`."""
    request = UnregisterBrokerRequest(broker_id)
    response = await cluster.send_any(request, UnregisterBrokerResponse, may_repeat=False)
    check(response.error_code, f"broker {broker_id}", response.error_message)


async def unregister_controller(cluster: Cluster, controller_id: int) -> None:
    """Unregister a controller that no longer votes, from Kafka 4.4 on. Raises `Refused`."""
    request = UnregisterControllerRequest(controller_id)
    response = await cluster.send_any(request, UnregisterControllerResponse, may_repeat=False)
    check(response.error_code, f"controller {controller_id}", response.error_message)


async def describe_log_dirs(
    cluster: Cluster, broker_id: int, partitions: Iterable[TopicPartition] | None = None
) -> list[DescribeLogDirsResult]:
    """Return a broker's log directories with their replicas, all or some. Raises `Refused`."""
    topics = (
        None
        if partitions is None
        else [
            DescribableLogDirTopic(topic, [each.partition for each in found])
            for topic, found in _by_topic(partitions)
        ]
    )
    request = DescribeLogDirsRequest(topics=topics)
    response = await cluster.send_to(NodeId(broker_id), request, DescribeLogDirsResponse)
    check(response.error_code, f"broker {broker_id}")
    return sorted(response.results, key=lambda each: each.log_dir)


async def alter_log_dirs(
    cluster: Cluster, broker_id: int, path: str, partitions: Iterable[TopicPartition]
) -> Refusals:
    """Move replicas of a broker to a log directory; returns once the move has started."""
    topics = [
        AlterReplicaLogDirTopic(topic, [each.partition for each in sorted(found)])
        for topic, found in _by_topic(partitions)
    ]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, topics)])
    response = await cluster.send_to(NodeId(broker_id), request, AlterReplicaLogDirsResponse)
    return {
        (name := TopicPartition(topic.topic_name, row.partition_index)): refusal_of(
            row.error_code, name, None
        )
        for topic in response.results
        for row in topic.partitions
    }


async def delete_records(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> Refusals:
    """Delete the records before an offset of each partition; return the error of each, or None."""
    by_leader: dict[NodeId, list[TopicPartition]] = {}
    for place in ends:
        leader = await cluster.leader_of(place)
        by_leader.setdefault(leader.node_id, []).append(place)
    refusals: Refusals = {}
    for leader_id, places in by_leader.items():
        topics = [
            DeleteRecordsTopic(
                topic, [DeleteRecordsPartition(each.partition, ends[each]) for each in partitions]
            )
            for topic, partitions in _by_topic(places)
        ]
        request = DeleteRecordsRequest(topics, TIMEOUT_MS)
        response = await cluster.send_to(leader_id, request, DeleteRecordsResponse)
        refusals |= {
            (name := TopicPartition(topic.name, row.partition_index)): refusal_of(
                row.error_code, name
            )
            for topic in response.topics
            for row in topic.partitions
        }
    return refusals


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    found: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return sorted(found.items())
