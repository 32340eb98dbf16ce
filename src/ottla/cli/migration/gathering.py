"""Asks a running cluster for everything that the rules of a migration need. Read-only."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ottla.cli.connecting.missing_rights import find_missing_right
from ottla.cli.migration.cluster_facts import (
    ClusterFacts,
    DiskFacts,
    NodeFacts,
    PartitionFacts,
    Software,
)
from ottla.cli.migration.software import OWN_KEYS, software_of
from ottla.client.admin import ConfigSource, Resource, describe_cluster
from ottla.client.admin_groups import list_groups
from ottla.client.admin_replicas import describe_log_dirs, list_reassignments
from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, name_of_code
from ottla.protocol.faults import Fault
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.types import NodeId, TopicPartition
from ottla.runtime.ports import Address

TOPICS_PER_REQUEST: Final = 200
VOTER_SILENT_MS: Final = 10_000
"""A voter fetches at least every half second; one that has not for so long is gone."""
_MIN_ISR: Final = "min.insync.replicas"
_FAILURES: Final = (Refused, NoBroker, Fault, OSError)


async def gather_status(cluster: Cluster) -> ClusterFacts:
    """Return what `roll_status.decide` needs: nodes, partitions, reassignments. Raises Refused."""
    described = await describe_cluster(cluster)
    quorum = await _quorum(cluster)
    response = await cluster.metadata(None)
    topics = [each for each in response.topics if each.error_code == ErrorCode.NONE]
    nodes = _nodes(described.brokers, quorum)
    nodes = list(await asyncio.gather(*(_ask_node(cluster, each) for each in nodes)))
    minimums = await _min_isr(cluster, [each.name or "" for each in topics])
    state = quorum.topics[0].partitions[0]
    return ClusterFacts(
        cluster_id=described.cluster_id,
        nodes=nodes,
        partitions=_partitions(topics, minimums),
        reassignments=sorted(await list_reassignments(cluster)),
        has_quorum_leader=state.leader_id >= 0,
        finalized=await _finalized(cluster),
    )


async def gather_all(cluster: Cluster) -> ClusterFacts:
    """Return what `cluster_check.check_cluster` needs. Raises Refused."""
    facts = await gather_status(cluster)
    names = sorted({each.name.topic for each in facts.partitions})
    kinds: dict[str, int] = {}
    for group in await list_groups(cluster):
        kinds[group.type] = kinds.get(group.type, 0) + 1
    disks: list[DiskFacts] = []
    for node in facts.nodes:
        if node.is_broker and not node.is_fenced and not node.problem:
            disks += await _disks(cluster, node.node_id)
    return replace(
        facts, topic_configs=await _topic_configs(cluster, names), groups=kinds, disks=disks
    )


# -- nodes ---------------------------------------------------------------------


async def _quorum(cluster: Cluster) -> DescribeQuorumResponse:
    asked = RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])
    response = await cluster.send_any(DescribeQuorumRequest([asked]), DescribeQuorumResponse)
    if response.error_code != ErrorCode.NONE:
        raise Refused(response.error_code, "quorum", response.error_message)
    return response


def _nodes(
    brokers: Sequence[DescribeClusterBroker], quorum: DescribeQuorumResponse
) -> list[NodeFacts]:
    """Join the brokers of the cluster and the voters and observers of the quorum."""
    state = quorum.topics[0].partitions[0]
    voters = {each.replica_id for each in state.current_voters}
    lags = metadata_lags(state)
    found: dict[int, NodeFacts] = {}
    for broker in brokers:
        found[broker.broker_id] = NodeFacts(
            node_id=broker.broker_id,
            address=f"{broker.host}:{broker.port}",
            is_fenced=broker.is_fenced,
        )
    for node_id in sorted(voters - found.keys()):
        at = next((n.listeners[0] for n in quorum.nodes if n.node_id == node_id), None)
        address = "" if at is None else f"{at.host}:{at.port}"
        found[node_id] = NodeFacts(node_id=node_id, address=address, is_broker=False)
    return [
        replace(
            node,
            is_voter=node_id in voters,
            is_active_controller=node_id == state.leader_id,
            metadata_lag=lags.get(node_id),
        )
        for node_id, node in sorted(found.items())
    ]


def metadata_lags(state: ResponsePartitionData) -> dict[int, int]:
    """Return how many records each replica of the quorum lacks; silent ones are left out. Pure."""
    replicas = [*state.current_voters, *state.observers]
    leader = next((each for each in replicas if each.replica_id == state.leader_id), None)
    if leader is None:
        return {}
    found = {}
    for each in replicas:
        silent_ms = leader.last_fetch_timestamp - each.last_fetch_timestamp
        is_silent = each.last_fetch_timestamp >= 0 and silent_ms > VOTER_SILENT_MS
        if each.log_end_offset >= 0 and not is_silent:
            found[each.replica_id] = max(leader.log_end_offset - each.log_end_offset, 0)
    return found


async def _ask_node(cluster: Cluster, node: NodeFacts) -> NodeFacts:
    """Ask a node for its features and software; what it does not answer is its problem."""
    if node.is_fenced:
        return replace(node, problem="fenced")
    try:
        async with asyncio.timeout(cluster.options.timeout_ms / 1000):
            if node.is_broker:
                connection = await cluster.connection(NodeId(node.node_id))
                return await _identify(connection, node)
            return await _ask_controller(cluster, node)
    except (*_FAILURES, TimeoutError) as error:
        return replace(node, problem=str(error) or type(error).__name__)


async def _ask_controller(cluster: Cluster, node: NodeFacts) -> NodeFacts:
    if not node.address:
        return replace(node, problem="the quorum does not say where it listens")
    host, _, port = node.address.rpartition(":")
    connection = await Connection.open(
        cluster.ports.network,
        Address(host, int(port)),
        client_id=cluster.options.client_id,
        options=cluster.options.connection,
    )
    try:
        return await _identify(connection, node)
    finally:
        await connection.close()


async def _identify(connection: Connection, node: NodeFacts) -> NodeFacts:
    versions = await connection.send(ApiVersionsRequest("ottla", "0"))
    assert isinstance(versions, ApiVersionsResponse)
    wanted = DescribeConfigsResource(Resource.BROKER, str(node.node_id), list(OWN_KEYS))
    configs = await connection.send(DescribeConfigsRequest([wanted]))
    assert isinstance(configs, DescribeConfigsResponse)
    result = configs.results[0]
    features = {
        each.name: (each.min_version, each.max_version) for each in versions.supported_features
    }
    if result.error_code != ErrorCode.NONE:
        refused = Refused(result.error_code, f"broker {node.node_id}")
        right = find_missing_right(refused, ApiKey.DESCRIBE_CONFIGS)
        hint = "" if right is None else right.text(None)
        reason = f"its software is unknown: {name_of_code(result.error_code)}{hint}"
        return replace(node, features=features, software=Software.UNKNOWN, problem=reason)
    software = software_of((each.name, each.config_source) for each in result.configs)
    return replace(node, features=features, software=software)


async def _finalized(cluster: Cluster) -> dict[str, int]:
    response = await cluster.send_any(ApiVersionsRequest("ottla", "0"), ApiVersionsResponse)
    return {each.name: each.max_version_level for each in response.finalized_features}


# -- partitions, topics, disks ---------------------------------------------------


def _partitions(
    topics: Sequence[MetadataResponseTopic], minimums: Mapping[str, int]
) -> list[PartitionFacts]:
    return [
        PartitionFacts(
            TopicPartition(topic.name or "", each.partition_index),
            each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            minimums.get(topic.name or "", 1),
        )
        for topic in sorted(topics, key=lambda one: one.name or "")
        for each in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]


async def _min_isr(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    found = await _describe(cluster, names, [_MIN_ISR])
    return {
        topic: int(value)
        for topic, rows in found.items()
        for key, value, _ in rows
        if key == _MIN_ISR and value is not None
    }


async def _topic_configs(cluster: Cluster, names: Sequence[str]) -> dict[str, dict[str, str]]:
    found = await _describe(cluster, names, None)
    own = {
        topic: {
            key: value
            for key, value, source in rows
            if source == ConfigSource.DYNAMIC_TOPIC_CONFIG and value is not None
        }
        for topic, rows in found.items()
    }
    return {topic: settings for topic, settings in own.items() if settings}


async def _describe(
    cluster: Cluster, names: Sequence[str], keys: Sequence[str] | None
) -> dict[str, list[tuple[str, str | None, int]]]:
    found = {}
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        wanted = [
            DescribeConfigsResource(Resource.TOPIC, name, None if keys is None else list(keys))
            for name in names[start : start + TOPICS_PER_REQUEST]
        ]
        response = await cluster.send_any(DescribeConfigsRequest(wanted), DescribeConfigsResponse)
        for result in response.results:
            if result.error_code == ErrorCode.NONE:
                found[result.resource_name] = [
                    (each.name, each.value, each.config_source) for each in result.configs
                ]
    return found


async def _disks(cluster: Cluster, node_id: int) -> list[DiskFacts]:
    return [
        DiskFacts(node_id, each.log_dir, each.usable_bytes, each.total_bytes, each.error_code)
        for each in await describe_log_dirs(cluster, node_id)
    ]
