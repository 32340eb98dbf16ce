"""Answers of the administrative APIs, compared with those of Apache Kafka 4.2 without security."""

from collections.abc import Iterator

import pytest
from one_node import OneNode, ask, one_node, settings

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.types import Uuid
from ottla.runtime.ports import Address

NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    loaded = settings(tmp_path_factory.mktemp("node"), "auto.create.topics.enable=false")
    with one_node(loaded) as running:
        assert ask(running, CreateTopicsRequest([CreatableTopic("t", 1, 1)])).topics[0].name == "t"
        yield running


# -- ACLs without an authorizer ------------------------------------------------------

DISABLED = ErrorCode.SECURITY_DISABLED


def acl_errors(node: OneNode, at: Address | None) -> list[list[tuple[int, bool]]]:
    creations = [AclCreation(2, name, 3, "User:a", "*", 3, 3) for name in "ab"]
    created = ask(node, CreateAclsRequest(creations), at=at).results
    filters = [DeleteAclsFilter(2, "a", 3, None, None, 1, 1) for _ in range(3)]
    deleted = ask(node, DeleteAclsRequest(filters), at=at).filter_results
    assert all(result.matching_acls == [] for result in deleted)
    return [[(r.error_code, bool(r.error_message)) for r in rows] for rows in (created, deleted)]


def test_acl_changes_without_an_authorizer_are_rejected(node: OneNode) -> None:
    for at in (None, node.node.controller_addr):
        assert acl_errors(node, at) == [[(DISABLED, True)] * 2, [(DISABLED, True)] * 3]
    assert dict(node.node.image.acls) == {}


def test_describe_acls_without_an_authorizer_is_rejected(node: OneNode) -> None:
    reply = ask(node, DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    assert (reply.error_code, reply.resources) == (DISABLED, [])
    assert reply.error_message
    at_controller = ask(
        node, DescribeAclsRequest(1, None, 1, None, None, 1, 1), at=node.node.controller_addr
    )
    assert at_controller == reply
    odd_type = ask(node, DescribeAclsRequest(99, None, 1, None, None, 1, 1))
    assert odd_type.error_code == DISABLED
    unknown_type = ask(node, DescribeAclsRequest(0, None, 1, None, None, 1, 1))
    assert unknown_type.error_code == ErrorCode.INVALID_REQUEST


# -- authorized operations -----------------------------------------------------------


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_returns_authorized_operations_of_topics_on_request(
    node: OneNode, version: int
) -> None:
    for asks, wanted in ((True, TOPIC_OPERATIONS), (False, NOT_ASKED)):
        topics = [MetadataRequestTopic(name=name) for name in ("t", "missing")]
        reply = ask(node, MetadataRequest(topics, False, False, asks), version)
        assert [t.topic_authorized_operations for t in reply.topics] == [wanted] * 2
    everything = ask(node, MetadataRequest(None, False, False, True), version)
    assert {t.topic_authorized_operations for t in everything.topics} == {TOPIC_OPERATIONS}


@pytest.mark.parametrize("version", range(8, 11))
def test_metadata_returns_authorized_operations_of_the_cluster_on_request(
    node: OneNode, version: int
) -> None:
    for asks, wanted in ((True, CLUSTER_OPERATIONS), (False, NOT_ASKED)):
        reply = ask(node, MetadataRequest([], False, asks), version)
        assert reply.cluster_authorized_operations == wanted


def test_describe_cluster_returns_authorized_operations_on_request(node: OneNode) -> None:
    for at, kind in ((None, 1), (node.node.controller_addr, 2)):
        for asks, wanted in ((True, CLUSTER_OPERATIONS), (False, NOT_ASKED)):
            reply = ask(node, DescribeClusterRequest(asks, kind), at=at)
            assert reply.cluster_authorized_operations == wanted


def test_describe_cluster_on_the_wrong_kind_of_listener_is_rejected(node: OneNode) -> None:
    for version, code in ((0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.MISMATCHED_ENDPOINT_TYPE)):
        at = node.node.controller_addr
        assert ask(node, DescribeClusterRequest(), version, at=at).error_code == code


def test_controller_advertises_what_kafka_does(node: OneNode) -> None:
    reply = ask(node, ApiVersionsRequest("test", "1"), at=node.node.controller_addr)
    found = {each.api_key: each.max_version for each in reply.api_keys}
    # As Kafka 4.3 does, at every metadata.version.
    assert found[ApiKey.BROKER_HEARTBEAT] == 2
    listed = {ApiKey.DESCRIBE_ACLS: 3, ApiKey.DESCRIBE_DELEGATION_TOKEN: 3}
    assert found.items() >= {**listed, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0}.items()


def test_describe_topic_partitions_always_returns_authorized_operations(node: OneNode) -> None:
    reply = ask(node, DescribeTopicPartitionsRequest([TopicRequest("t"), TopicRequest("missing")]))
    assert [t.topic_authorized_operations for t in reply.topics] == [TOPIC_OPERATIONS] * 2


# -- topics --------------------------------------------------------------------------


def test_create_topics_returns_configs_as_sent(node: OneNode) -> None:
    sent = {"retention.ms": " 5 ", "segment.bytes": "+2000000", "preallocate": "TRUE"}
    configs = [CreatableTopicConfig(name, value) for name, value in sent.items()]
    (made,) = ask(node, CreateTopicsRequest([CreatableTopic("raw", 1, 1, configs=configs)])).topics
    assert made.error_code == ErrorCode.NONE
    replies = {each.name: (each.value, each.config_source) for each in made.configs}
    assert {name: replies[name] for name in sent} == {name: (sent[name], 1) for name in sent}
    assert "internal.segment.bytes" not in replies
    assert list(replies) == sorted(replies)


def test_internal_config_is_returned_where_it_is_set(node: OneNode) -> None:
    configs = [CreatableTopicConfig("internal.segment.bytes", "4096")]
    (made,) = ask(
        node, CreateTopicsRequest([CreatableTopic("small", 1, 1, configs=configs)])
    ).topics
    replies = {each.name: (each.value, each.config_source) for each in made.configs}
    assert replies["internal.segment.bytes"] == ("4096", 1)


def test_topic_deleted_twice_in_one_request_has_one_result(node: OneNode) -> None:
    topic_id = node.node.image.topics.ids["t"]
    by_name, by_id = DeleteTopicState("t"), DeleteTopicState(topic_id=topic_id)
    for items in ([by_name] * 2, [by_id] * 2, [by_name, by_id], [by_id, by_name]):
        replies = ask(node, DeleteTopicsRequest(topics=items)).responses
        assert [each.error_code for each in replies] == [ErrorCode.INVALID_REQUEST]
        names = {(each.name, each.topic_id) for each in replies}
        zero = Uuid(bytes(16))
        assert names <= {("t", zero), (None, topic_id), ("t", topic_id)}
        assert (("t", topic_id) in names) == (items[0] is not items[1])
    assert "t" in node.node.image.topics.ids


def test_partition_listed_twice_in_delete_records_has_one_result(node: OneNode) -> None:
    partitions = [DeleteRecordsPartition(0, 5), DeleteRecordsPartition(0, 0)]
    topics = [DeleteRecordsTopic("t", partitions), DeleteRecordsTopic("t", partitions[:1])]
    topics.append(DeleteRecordsTopic("t", partitions[1:]))
    (topic,) = ask(node, DeleteRecordsRequest(topics, 1000)).topics
    (result,) = topic.partitions
    # The last offset counts: 5 is beyond the end and would be refused.
    assert (result.partition_index, result.error_code) == (0, ErrorCode.NONE)


def test_topic_without_partitions_in_delete_records_has_no_result(node: OneNode) -> None:
    assert ask(node, DeleteRecordsRequest([DeleteRecordsTopic("t", [])], 1000)).topics == []


@pytest.mark.parametrize("kind", [2, -1])
def test_unknown_election_type_is_rejected_for_each_partition(node: OneNode, kind: int) -> None:
    asked = [TopicPartitions("t", [0]), TopicPartitions("missing", [0, 1])]
    reply = ask(node, ElectLeadersRequest(kind, asked, 1000))
    codes = [p.error_code for t in reply.replica_election_results for p in t.partition_result]
    assert codes == [ErrorCode.INVALID_REQUEST] * 3


def test_alter_replica_log_dirs_of_an_unknown_partition(node: OneNode) -> None:
    path = str(node.node._context.log_directories[0].path)
    topics = [AlterReplicaLogDirTopic("missing", [0]), AlterReplicaLogDirTopic("t", [0, 9])]
    reply = ask(node, AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, topics)]))
    codes = {t.topic_name: [p.error_code for p in t.partitions] for t in reply.results}
    assert codes == {"missing": [3], "t": [0, 3]}
    twice = [AlterReplicaLogDir(path, topics), AlterReplicaLogDir("/nowhere", topics[1:])]
    reply = ask(node, AlterReplicaLogDirsRequest(twice))
    codes = {t.topic_name: [p.error_code for p in t.partitions] for t in reply.results}
    not_found = ErrorCode.LOG_DIR_NOT_FOUND
    assert codes == {"missing": [3], "t": [not_found, not_found]}


def test_alter_replica_log_dirs_rejects_a_too_long_name_first(node: OneNode) -> None:
    topics = [AlterReplicaLogDirTopic("x" * 300, [0])]
    reply = ask(node, AlterReplicaLogDirsRequest([AlterReplicaLogDir("/no/such", topics)]))
    assert reply.results[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- quotas --------------------------------------------------------------------------


def quota(user: str, **limits: float) -> RequestEntryData:
    parts = [RequestEntityData("user", user), RequestEntityData("client-id", "c")]
    return RequestEntryData(parts, [OpData(key, value) for key, value in limits.items()])


def described_keys(node: OneNode, user: str) -> list[str]:
    reply = ask(node, DescribeClientQuotasRequest())
    (found,) = (e for e in reply.entries if user in [part.entity_name for part in e.entity])
    assert [part.entity_type for part in found.entity] == ["client-id", "user"]
    return [value.key for value in found.values]


def test_client_quotas_are_listed_in_the_order_of_kafka(node: OneNode) -> None:
    two = quota("two", producer_byte_rate=1.0, request_percentage=2.0)
    (entry,) = ask(node, AlterClientQuotasRequest([two])).entries
    assert [part.entity_type for part in entry.entity] == ["client-id", "user"]
    assert described_keys(node, "two") == ["request_percentage", "producer_byte_rate"]
    four = quota(
        "four",
        request_percentage=1.0,
        controller_mutation_rate=1.0,
        consumer_byte_rate=1.0,
        producer_byte_rate=1.0,
    )
    ask(node, AlterClientQuotasRequest([four]))
    assert described_keys(node, "four") == [
        "producer_byte_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
        "request_percentage",
    ]


def test_rejected_quota_of_user_and_address_names_the_user_first(node: OneNode) -> None:
    parts = [RequestEntityData("ip", "192.0.2.1"), RequestEntityData("user", "u")]
    entry = RequestEntryData(parts, [OpData("producer_byte_rate", 1.0)])
    (reply,) = ask(node, AlterClientQuotasRequest([entry])).entries
    assert [part.entity_type for part in reply.entity] == ["user", "ip"]


def test_quota_entity_listed_twice_has_one_result(node: OneNode) -> None:
    twice = [quota("twice", consumer_byte_rate=1.0), quota("twice", consumer_byte_rate=2.0)]
    reply = ask(node, AlterClientQuotasRequest(twice))
    assert [each.error_code for each in reply.entries] == [ErrorCode.INVALID_REQUEST]


# -- features that are not configured -------------------------------------------------

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_sasl_on_a_listener_without_it_is_rejected(node: OneNode) -> None:
    for at in (None, node.node.controller_addr):
        for version in (0, 1):
            reply = ask(node, SaslHandshakeRequest("PLAIN"), version, at=at)
            assert (reply.error_code, reply.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        for version in (0, 1, 2):
            reply = ask(node, SaslAuthenticateRequest(b"token"), version, at=at)
            assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_delegation_tokens_are_rejected_on_a_plaintext_listener(node: OneNode) -> None:
    requests = (
        CreateDelegationTokenRequest(None, None, [], -1),
        RenewDelegationTokenRequest(b"hmac", -1),
        ExpireDelegationTokenRequest(b"hmac", -1),
    )
    for at in (None, node.node.controller_addr):
        for request in requests:
            reply = ask(node, request, at=at)
            assert (reply.error_code, reply.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
    created = ask(node, requests[0])
    assert (created.principal_type, created.principal_name) == ("User", "ANONYMOUS")
    described = ask(node, DescribeDelegationTokenRequest(None))
    assert (described.error_code, described.tokens) == (NOT_ALLOWED, [])


def test_telemetry_subscribes_to_no_metric(node: OneNode) -> None:
    got = ask(node, GetTelemetrySubscriptionsRequest())
    assert (got.error_code, got.requested_metrics) == (ErrorCode.NONE, [])
    assert (got.push_interval_ms, got.telemetry_max_bytes) == (300_000, 1_048_576)
    assert got.accepted_compression_types == [4, 3, 1, 2]
    instance, known = got.client_instance_id, got.subscription_id
    assert ask(node, GetTelemetrySubscriptionsRequest(instance)).subscription_id == known

    def push(instance: Uuid, subscription_id: int, codec: int = 0) -> int:
        request = PushTelemetryRequest(instance, subscription_id, False, codec, b"metrics")
        return int(ask(node, request).error_code)

    assert push(instance, known) == ErrorCode.NONE
    assert push(instance, known ^ 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(instance, known, 9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(Uuid(bytes(16)), 0) == ErrorCode.INVALID_REQUEST


def test_api_versions_lists_sasl_and_tokens_but_not_telemetry(node: OneNode) -> None:
    reply = ask(node, ApiVersionsRequest("test", "1"))
    replies = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
    assert replies[ApiKey.SASL_HANDSHAKE] == (0, 1)
    assert replies[ApiKey.SASL_AUTHENTICATE] == (0, 2)
    assert replies[ApiKey.DESCRIBE_DELEGATION_TOKEN] == (1, 3)
    assert not {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} & set(replies)
