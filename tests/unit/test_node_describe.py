"""What brokers tell from the image: Metadata, DescribeCluster, Describe*."""

from typing import Any

import pytest

from ottla.api.cluster.describe_settings import DescribeHandlers
from ottla.api.cluster.metadata import BROKERS, CONTROLLERS, ClusterHandlers
from ottla.api.surface.replies import finish
from ottla.api.surface.routes import Caller
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    ControllerEndpoint,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Address

TOPIC_ID = Uuid(bytes(15) + b"\x42")
CLIENT = Caller("User:ANONYMOUS", "x", Address("127.0.0.1", 1), "PLAINTEXT")
CONTROL = Caller("User:ANONYMOUS", "x", Address("127.0.0.1", 1), "CONTROLLER")


def broker(node_id: int, *, fenced: bool = False, listener: str = "PLAINTEXT") -> Any:
    return RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=node_id,
        incarnation_id=Uuid(bytes(15) + bytes([node_id])),
        end_points=[BrokerEndpoint(listener, f"h{node_id}", 9092, 0)],
        fenced=fenced,
    )


def partition(number: int, leader: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=TOPIC_ID,
        replicas=[1, 2, 3],
        isr=[1, 3],
        leader=leader,
        leader_epoch=5,
        directories=[ZERO_UUID] * 3,
    )


IMAGE: Image = replay_all(
    EMPTY,
    [
        FeatureLevelRecord("metadata.version", 29),
        broker(1),
        broker(2, fenced=True),
        broker(3, listener="OTHER"),
        RegisterControllerRecord(
            controller_id=100, end_points=[ControllerEndpoint("CONTROLLER", "c", 9093, 0)]
        ),
        TopicRecord("t", TOPIC_ID),
        partition(0, 1),
        partition(1, 3),
        partition(2, -1),
        ConfigRecord(2, "t", "retention.ms", "7"),
        ConfigRecord(4, "", "log.retention.ms", "9"),
        ConfigRecord(16, "sub", "interval.ms", "5000"),
    ],
)


def cluster(kind: int = BROKERS, image: Image = IMAGE) -> ClusterHandlers:
    return ClusterHandlers("C", lambda: image, lambda: 1 if kind == BROKERS else 100, kind)


def test_metadata_lists_brokers_on_the_listener_of_the_client() -> None:
    reply = finish(cluster().metadata_steps(CLIENT, MetadataRequest(None), 13))
    assert [(b.node_id, b.host) for b in reply.brokers] == [(1, "h1")]
    assert (reply.cluster_id, reply.controller_id) == ("C", 1)
    assert [topic.name for topic in reply.topics] == ["t"]


def test_partition_without_a_reachable_leader_has_an_error() -> None:
    reply = finish(
        cluster().metadata_steps(CLIENT, MetadataRequest([MetadataRequestTopic(name="t")]), 13)
    )
    parts = reply.topics[0].partitions
    assert [(p.error_code, p.leader_id) for p in parts] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.LISTENER_NOT_FOUND, -1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
    ]
    assert parts[0].offline_replicas == [2, 3]
    assert parts[0].leader_epoch == 5


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (MetadataRequestTopic(name="nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MetadataRequestTopic(Uuid(bytes(15) + b"\x09"), None), ErrorCode.UNKNOWN_TOPIC_ID),
        (MetadataRequestTopic(TOPIC_ID, None), ErrorCode.NONE),
    ],
)
def test_topics_are_found_by_name_and_by_id(asked: MetadataRequestTopic, code: ErrorCode) -> None:
    reply = finish(cluster().metadata_steps(CLIENT, MetadataRequest([asked]), 13))
    assert reply.topics[0].error_code == code


def test_empty_topic_list_means_all_topics_in_version_0_and_none_later() -> None:
    assert len(finish(cluster().metadata_steps(CLIENT, MetadataRequest([]), 0)).topics) == 1
    assert finish(cluster().metadata_steps(CLIENT, MetadataRequest([]), 1)).topics == []


def test_describe_cluster_lists_fenced_brokers_only_on_request() -> None:
    plain = cluster().on_describe_cluster(CLIENT, DescribeClusterRequest(), 2)
    assert [b.broker_id for b in plain.brokers] == [1]
    request = DescribeClusterRequest(include_fenced_brokers=True)
    reply = cluster().on_describe_cluster(CLIENT, request, 2)
    assert [(b.broker_id, b.is_fenced) for b in reply.brokers] == [(1, False), (2, True)]


def test_describe_cluster_on_a_controller_listener_lists_controllers() -> None:
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    reply = cluster(CONTROLLERS).on_describe_cluster(CONTROL, request, 1)
    assert [(b.broker_id, b.port) for b in reply.brokers] == [(100, 9093)]
    assert (reply.controller_id, reply.endpoint_type) == (100, CONTROLLERS)


@pytest.mark.parametrize(
    ("level", "code"), [(14, ErrorCode.UNSUPPORTED_VERSION), (15, ErrorCode.NONE)]
)
def test_controllers_are_described_once_they_register(level: int, code: ErrorCode) -> None:
    image = replay_all(EMPTY, [FeatureLevelRecord("metadata.version", level)])
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    reply = cluster(CONTROLLERS, image).on_describe_cluster(CONTROL, request, 1)
    assert reply.error_code == code


@pytest.mark.parametrize(
    ("asked", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_wrong_endpoint_type_is_rejected(asked: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(endpoint_type=asked)
    assert cluster().on_describe_cluster(CLIENT, request, 1).error_code == code


def describe(kind: int, name: str, *keys: str) -> Any:
    handlers = DescribeHandlers(1, lambda: IMAGE, {"log.retention.ms": "8", "num.partitions": "4"})
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    request = DescribeConfigsRequest([resource], include_synonyms=True)
    return finish(handlers.describe_configs_steps(CLIENT, request, 4)).results[0]


def test_described_topic_config_has_the_source_of_each_value() -> None:
    reply = describe(2, "t", "retention.ms")
    assert [(c.name, c.value, c.config_source) for c in reply.configs] == [("retention.ms", "7", 1)]
    assert [(s.value, s.source) for s in reply.configs[0].synonyms[:3]] == [
        ("7", 1),
        ("9", 3),
        ("8", 4),
    ]


def test_configs_of_this_broker_and_the_cluster_default_are_described() -> None:
    own = describe(4, "1", "num.partitions")
    assert [(c.value, c.config_source) for c in own.configs] == [("4", 4)]
    everyone = describe(4, "")
    assert [(c.name, c.value) for c in everyone.configs] == [("log.retention.ms", "9")]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (4, "-1", ErrorCode.INVALID_REQUEST),
        (4, " 1", ErrorCode.INVALID_REQUEST),
        (4, "x", ErrorCode.INVALID_REQUEST),
        (4, "\u0661", ErrorCode.INVALID_REQUEST),
        (4, "9" * 5000, ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
        (8, "x", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
        (-1, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_config_resource_that_cannot_be_described_has_an_error(
    kind: int, name: str, code: ErrorCode
) -> None:
    reply = describe(kind, name)
    assert reply.error_code == code and reply.error_message and reply.configs == []


@pytest.mark.parametrize("name", ["01", "+1", "0000001"])
def test_broker_id_is_read_as_a_number(name: str) -> None:
    reply = describe(4, name, "num.partitions")
    assert (reply.error_code, reply.resource_name) == (ErrorCode.NONE, name)
    assert [(c.value, c.config_source) for c in reply.configs] == [("4", 4)]


def test_successful_description_has_the_empty_message_of_kafka() -> None:
    assert describe(2, "t").error_message == ""


def test_client_metrics_are_described_with_defaults_types_and_synonyms() -> None:
    reply = describe(16, "sub")
    assert [
        (c.name, c.value, c.config_source, c.config_type, c.read_only, c.is_sensitive)
        for c in reply.configs
    ] == [
        ("interval.ms", "5000", 7, 3, False, False),
        ("match", "", 5, 7, False, False),
        ("metrics", "", 5, 7, False, False),
    ]
    synonyms = [[(s.name, s.value, s.source) for s in c.synonyms] for c in reply.configs]
    assert synonyms == [[("interval.ms", "5000", 7)], [], []]
    never_altered = describe(16, "other", "interval.ms")
    assert [(c.value, c.config_source) for c in never_altered.configs] == [("300000", 5)]
