"""Admin requests about the metadata quorum and the features of a cluster, one per function.

As in `ottla.client.admin`, a request that changes something is sent once.
"""

import enum
from collections.abc import Mapping, Sequence

import msgspec

from ottla.client.cluster import Cluster
from ottla.client.failures import check
from ottla.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.protocol.types import Uuid
from ottla.runtime.ports import Address

_METADATA = "__cluster_metadata"


class DescribedQuorum(msgspec.Struct, frozen=True):
    """The quorum, and the addresses of its voters where the node tells them (Kafka 3.9)."""

    state: ResponsePartitionData
    addresses: Mapping[int, Sequence[Address]]

    @property
    def has_leader(self) -> bool:
        """Whether the answer comes from a leader."""
        return self.state.leader_id >= 0


class FeatureRange(msgspec.Struct, frozen=True):
    """A feature: the levels that the answering broker supports, and the one in use."""

    lowest: int
    highest: int
    finalized: int


class FeatureChange(enum.IntEnum):
    """What an update of a feature may do, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


async def describe_quorum(cluster: Cluster) -> DescribedQuorum:
    """Return the leader, voters and observers of the quorum and their offsets. Raises `Refused`."""
    metadata = RequestTopicData(_METADATA, [RequestPartitionData(0)])
    response = await cluster.send_any(DescribeQuorumRequest([metadata]), DescribeQuorumResponse)
    check(response.error_code, "quorum", response.error_message)
    state = response.topics[0].partitions[0]
    check(state.error_code, "quorum", state.error_message)
    addresses = {
        node.node_id: [Address(each.host, each.port) for each in node.listeners]
        for node in response.nodes
    }
    return DescribedQuorum(state, addresses)


async def add_voter(
    cluster: Cluster,
    cluster_id: str,
    node_id: int,
    directory_id: Uuid,
    listeners: Mapping[str, Address],
) -> None:
    """Add a voter, and wait until that is committed. Raises `Refused`."""
    request = AddRaftVoterRequest(
        cluster_id,
        cluster.options.timeout_ms,
        node_id,
        directory_id,
        [Listener(name, address.host, address.port) for name, address in listeners.items()],
    )
    response = await cluster.send_any(request, AddRaftVoterResponse, may_repeat=False)
    check(response.error_code, f"voter {node_id}", response.error_message)


async def remove_voter(cluster: Cluster, cluster_id: str, node_id: int, directory_id: Uuid) -> None:
    """Remove a voter, and wait until that is committed. Raises `Refused`."""
    request = RemoveRaftVoterRequest(cluster_id, node_id, directory_id)
    response = await cluster.send_any(request, RemoveRaftVoterResponse, may_repeat=False)
    check(response.error_code, f"voter {node_id}", response.error_message)


async def describe_features(cluster: Cluster) -> dict[str, FeatureRange]:
    """Return the features of the cluster, by name. Raises `Refused`."""
    connection = cluster.options.connection
    request = ApiVersionsRequest(connection.software_name, connection.software_version)
    response = await cluster.send_any(request, ApiVersionsResponse)
    check(response.error_code, "features")
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return {
        each.name: FeatureRange(each.min_version, each.max_version, finalized.get(each.name, 0))
        for each in sorted(response.supported_features, key=lambda each: each.name)
    }


async def update_features(
    cluster: Cluster, levels: Mapping[str, int], change: FeatureChange, *, is_dry_run: bool = False
) -> None:
    """Finalize other levels, all of them or none. Raises `Refused`."""
    updates = [FeatureUpdateKey(name, level, False, change) for name, level in levels.items()]
    request = UpdateFeaturesRequest(cluster.options.timeout_ms, updates, is_dry_run)
    response = await cluster.send_any(request, UpdateFeaturesResponse, may_repeat=False)
    check(response.error_code, ", ".join(levels), response.error_message)
    for result in response.results:
        check(result.error_code, result.feature, result.error_message)
