"""Admin requests: topics, configurations and cluster. Each function is one request.

Requests that change something are sent once: if the connection is lost, their outcome is unknown,
and the error is raised to the caller instead of a retry.
"""

import enum
from collections.abc import Mapping, Sequence

import msgspec

from ottla.client.cluster import Cluster, Refused
from ottla.client.failures import check
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.types import NodeId

DEFAULT = -1
"""The cluster's default number of partitions or replicas."""


class Resource(enum.IntEnum):
    """The type of a configuration resource."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """The source of a value; numbers of later Kafka versions are UNKNOWN."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class ConfigChange(enum.IntEnum):
    """The operation on a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)


class Change(msgspec.Struct, frozen=True):
    """The change of one configuration key."""

    name: str
    value: str | None = None
    operation: ConfigChange = ConfigChange.SET


async def list_topics(cluster: Cluster) -> list[MetadataResponseTopic]:
    """Return all topics that this client is authorized to describe, by name."""
    response = await cluster.metadata(None)
    return sorted(response.topics, key=lambda each: each.name or "")


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[MetadataResponseTopic]:
    """Return these topics, in this order.

    Raises:
        Refused: a topic does not exist, or access is denied.
    """
    response = await cluster.metadata(names)
    found = {each.name: each for each in response.topics}
    for name in names:
        check(found[name].error_code, name)
    return [found[name] for name in names]


async def create_topic(
    cluster: Cluster, topic: NewTopic, *, timeout_ms: int = 30_000, is_dry_run: bool = False
) -> CreatableTopicResult:
    """Create a topic. Raises `Refused`."""
    wanted = CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )
    request = CreateTopicsRequest([wanted], timeout_ms, is_dry_run)
    response = await cluster.send_any(request, CreateTopicsResponse, may_repeat=False)
    result = response.topics[0]
    check(result.error_code, topic.name, result.error_message)
    return result


async def delete_topics(
    cluster: Cluster, names: Sequence[str], *, timeout_ms: int = 30_000
) -> dict[str, Refused | None]:
    """Delete topics; return the error of each, or None."""
    request = DeleteTopicsRequest(
        topic_names=list(names),
        topics=[DeleteTopicState(name) for name in names],
        timeout_ms=timeout_ms,
    )
    response = await cluster.send_any(request, DeleteTopicsResponse, may_repeat=False)
    found: dict[str, Refused | None] = {}
    for each in response.responses:
        name = each.name or ""
        code = each.error_code
        found[name] = Refused(code, name, each.error_message) if code else None
        cluster.forget(name)
    return found


async def add_partitions(
    cluster: Cluster, topic: str, count: int, *, timeout_ms: int = 30_000
) -> None:
    """Increase the partitions of a topic to ``count`` in total. Raises `Refused`."""
    wanted = CreatePartitionsTopic(topic, count, None)
    request = CreatePartitionsRequest([wanted], timeout_ms)
    response = await cluster.send_any(request, CreatePartitionsResponse, may_repeat=False)
    result = response.results[0]
    check(result.error_code, topic, result.error_message)
    cluster.forget(topic)


async def describe_configs(
    cluster: Cluster,
    kind: Resource,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    with_documentation: bool = False,
) -> list[DescribeConfigsResourceResult]:
    """Return the configuration of one resource, by key. Raises `Refused`.

    The configuration of a broker is requested from that broker: only it knows its file.
    """
    wanted = DescribeConfigsResource(kind, name, None if keys is None else list(keys))
    request = DescribeConfigsRequest([wanted], include_documentation=with_documentation)
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER) and name:
        response = await cluster.send_to(NodeId(int(name)), request, DescribeConfigsResponse)
    else:
        response = await cluster.send_any(request, DescribeConfigsResponse)
    result = response.results[0]
    check(result.error_code, f"{kind.name.lower()} {name}", result.error_message)
    return sorted(result.configs, key=lambda each: each.name)


async def topics_with(cluster: Cluster, key: str, value: str) -> list[MetadataResponseTopic]:
    """Return the topics whose setting ``key`` is ``value``, by name."""
    topics = await list_topics(cluster)
    settings = await topic_settings(cluster, [topic.name or "" for topic in topics], [key])
    return [topic for topic in topics if settings.get(topic.name or "", {}).get(key) == value]


async def topic_settings(
    cluster: Cluster, names: Sequence[str], keys: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Return some settings of topics. Keys that the broker does not have are left out."""
    resources = [DescribeConfigsResource(Resource.TOPIC, name, list(keys)) for name in names]
    response = await cluster.send_any(DescribeConfigsRequest(resources), DescribeConfigsResponse)
    return {
        result.resource_name: {config.name: config.value for config in result.configs}
        for result in response.results
    }


async def list_config_resources(cluster: Cluster, kind: Resource) -> list[str]:
    """Return the names of the resources of one type that have a configuration. Raises `Refused`."""
    request = ListConfigResourcesRequest([kind])
    response = await cluster.send_any(request, ListConfigResourcesResponse)
    check(response.error_code, kind.name.lower())
    return [each.resource_name for each in response.config_resources]


async def alter_configs(
    cluster: Cluster, kind: Resource, name: str, changes: Sequence[Change]
) -> None:
    """Change some keys of one resource and leave the others. Raises `Refused`.

    Changes of a broker are sent to that broker, which validates them.
    """
    wanted = AlterConfigsResource(
        kind, name, [AlterableConfig(each.name, each.operation, each.value) for each in changes]
    )
    request = IncrementalAlterConfigsRequest([wanted])
    reply = IncrementalAlterConfigsResponse
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER) and name:
        response = await cluster.send_to(NodeId(int(name)), request, reply)
    else:
        response = await cluster.send_any(request, reply, may_repeat=False)
    result = response.responses[0]
    check(result.error_code, f"{kind.name.lower()} {name}", result.error_message)


async def describe_cluster(cluster: Cluster) -> DescribeClusterResponse:
    """Return the cluster's id, controller and brokers, including fenced ones if supported."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = await cluster.send_any(request, DescribeClusterResponse)
    check(response.error_code, "cluster", response.error_message)
    return response
