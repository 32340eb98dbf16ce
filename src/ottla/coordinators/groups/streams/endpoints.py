"""The endpoints of an application for interactive queries (KIP-1071).

A member with an endpoint is listed with the partitions of all topics that its tasks read; a task
whose number a topic with fewer partitions does not have reads nothing of that topic.
"""

from collections.abc import Callable

from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.tasks import Tasks, by_subtopology
from ottla.coordinators.groups.streams.topology import Topology
from ottla.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    ResponseEndpoint,
    TopicPartition,
)


def endpoints_of(
    group: StreamsGroup, topology: Topology, count_of: Callable[[str], int | None]
) -> list[EndpointToPartitions]:
    """Return the endpoints of a group with the partitions each can be queried for, by member id."""
    return [
        EndpointToPartitions(
            ResponseEndpoint(*member.endpoint),
            _partitions(member.assigned.active, topology, count_of),
            _partitions(member.assigned.standby, topology, count_of),
        )
        for _, member in sorted(group.members.items())
        if member.endpoint is not None
    ]


def _partitions(
    tasks: Tasks, topology: Topology, count_of: Callable[[str], int | None]
) -> list[TopicPartition]:
    reads = {each.subtopology_id: sorted(set(each.reads())) for each in topology.subtopologies}
    found: list[TopicPartition] = []
    for subtopology_id, partitions in by_subtopology(tasks):
        for topic in reads.get(subtopology_id, ()):
            count = count_of(topic) or 0
            found.append(TopicPartition(topic, [each for each in partitions if each < count]))
    return found
