"""Find problems of a cluster in its metadata and quorum state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.protocol.messages.describe_cluster import DescribeClusterBroker
from ottla.protocol.messages.describe_quorum import ResponsePartitionData
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.types import Millis

# A voter fetches at least every half second; after this time without a fetch it has failed or is
# partitioned.
VOTER_SILENT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and the resource that has it."""

    subject: str
    problem: str


def find_problems(
    brokers: Sequence[DescribeClusterBroker],
    topics: Sequence[MetadataResponseTopic],
    quorum: ResponsePartitionData,
    now: Millis,
) -> list[Problem]:
    """Return all problems: brokers first, then the quorum, then partitions."""
    found = [
        Problem(f"broker {each.broker_id}", "is fenced: it does not serve clients")
        for each in sorted(brokers, key=lambda each: each.broker_id)
        if each.is_fenced
    ]
    found += _check_quorum(quorum, now)
    for topic in topics:
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            subject = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                found.append(Problem(subject, "has no leader: clients cannot read or write it"))
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                late = sorted(set(partition.replica_nodes) - set(partition.isr_nodes))
                brokers_late = ", ".join(map(str, late))
                found.append(Problem(subject, f"is under-replicated: {brokers_late} not in sync"))
    return found


def _check_quorum(quorum: ResponsePartitionData, now: Millis) -> list[Problem]:
    if quorum.leader_id < 0:
        return [Problem("quorum", "has no leader: metadata cannot be changed")]
    return [
        Problem(f"controller {each.replica_id}", "has not fetched metadata for a while")
        for each in quorum.current_voters
        if each.replica_id != quorum.leader_id
        and each.last_fetch_timestamp >= 0
        and now - each.last_fetch_timestamp > VOTER_SILENT_MS
    ]
