"""Authorization of every API over the wire, as an unprivileged user of one node with ACLs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from authorized_requests import GROUP, TOPIC, TRANSACTIONAL_ID, codes, texts
from authorized_session import ALL, ALLOW, DENY, Session, authorized_node, run
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)
from confluent_kafka.admin import AclOperation as RdOperation
from confluent_kafka.admin import ResourceType as RdResourceType
from secure_node import SecureNode
from tests.patience import SECONDS_MAX

from ottla.api.surface.row import Api, Check, Permission, Refusal
from ottla.api.surface.table import SURFACE
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.schema import Message
from ottla.security.acl import AclOperation, PatternType, PermissionType, ResourceType

ROOT = Path(__file__).parents[2]
REFUSED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
AUTHORIZATION_CODES = frozenset(REFUSED.values())
# Served by the listener's own login, or without any permission yet.
NOT_SENT = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
# Checks whose refusal has the code of another resource than the one of the last permission.
OTHER_CODES = {
    (ApiKey.FETCH, 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    (ApiKey.INIT_PRODUCER_ID, 1): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    (ApiKey.CREATE_TOPICS, 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    (ApiKey.DESCRIBE_LOG_DIRS, 0): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


_MEMBERS = "tests/wire/test_authorization_members.py"
_TOKENS = "tests/wire/test_delegation_tokens_wire.py"
# Checks that need more than one request, by (API, index of the check): the tests that make them.
PROVED_BY = {
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1): (_MEMBERS, "test_group_with_a_hidden_topic_is_not"),
    (ApiKey.STREAMS_GROUP_DESCRIBE, 1): (_MEMBERS, "test_group_with_a_hidden_topic_is_not"),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1): (_MEMBERS, "test_group_with_a_hidden_topic_is_not"),
    (ApiKey.SHARE_FETCH, 1): (_MEMBERS, "test_share_fetch_and_acknowledge"),
    (ApiKey.SHARE_ACKNOWLEDGE, 1): (_MEMBERS, "test_share_fetch_and_acknowledge"),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 1): (_MEMBERS, "test_share_offsets_of_a_topic"),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 1): (_MEMBERS, "test_share_offsets_of_a_topic"),
    (ApiKey.DESCRIBE_TRANSACTIONS, 1): (_MEMBERS, "test_transaction_is_described_without"),
    (ApiKey.STREAMS_GROUP_HEARTBEAT, 2): (_MEMBERS, "test_streams_group_does_not_create"),
    (ApiKey.LIST_GROUPS, 0): (__file__, "test_list_leaves_out"),
    (ApiKey.LIST_TRANSACTIONS, 0): (__file__, "test_list_leaves_out"),
    (ApiKey.DELETE_TOPICS, 1): (__file__, "test_deletion_by_id_hides_the_name"),
    (ApiKey.CREATE_DELEGATION_TOKEN, 0): (_TOKENS, "test_token_of_another_owner_needs_permission"),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 0): (_TOKENS, "test_client_sees_its_own_tokens"),
}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    found = authorized_node(tmp_path_factory.mktemp("authorized"))
    found.release_version = "4.4"  # a lower level does not list every API
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


def rows(kind: Listener) -> list[Api]:
    """The rows that a client can send to a listener, those that delete something last."""
    found = [
        row
        for row in SURFACE.values()
        if row.on(kind) is not None and row.key not in NOT_SENT and row.is_advertised
    ]
    return sorted(found, key=lambda row: row.key.name.startswith("DELETE"))


def checks_of(row: Api, kind: Listener) -> tuple[Check, ...]:
    rule = row.rule_on(kind)
    assert rule is not None
    return rule.checks


@pytest.mark.parametrize("kind", list(Listener))
def test_every_check_of_every_api_has_a_case(kind: Listener) -> None:
    """A row with a new check fails here, or below where its refusal is not seen."""
    checked = {
        (row.key, index): check
        for row in SURFACE.values()
        if row.on(kind) is not None
        for index, check in enumerate(checks_of(row, kind))
    }
    sent = {row.key for row in rows(kind)}
    left_out = {
        at
        for at, check in checked.items()
        if check.refusal is Refusal.LEFT_OUT and at not in OTHER_CODES
    }
    not_sent = {at for at in checked if at[0] not in sent}
    assert (left_out | not_sent) - set(PROVED_BY) == set()
    for file, name in PROVED_BY.values():
        assert f"def {name}" in (ROOT / file).read_text(), f"{file} has no {name}"


# -- every API -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Listener))
def test_every_api_refuses_a_client_that_lacks_one_permission(
    secure: SecureNode, kind: Listener
) -> None:
    async def test(session: Session) -> None:
        wrong: list[object] = []
        for row in rows(kind):
            for index, check in enumerate(checks_of(row, kind)):
                if (row.key, index) in PROVED_BY:
                    continue
                await session.set_acls(*ALL, *((each, DENY) for each in check.permissions))
                found = set(codes(await session.ask(kind, row.key, index)))
                code = REFUSED[check.permissions[-1].resource_type]
                if OTHER_CODES.get((row.key, index), code) not in found:
                    wrong.append((row.key.name, check.when or index, found))
        assert wrong == [], wrong

    run(secure, test)


@pytest.mark.parametrize("kind", list(Listener))
def test_every_api_serves_a_client_with_exactly_the_permissions_of_its_rule(
    secure: SecureNode, kind: Listener
) -> None:
    async def test(session: Session) -> None:
        wrong: list[object] = []
        for row in rows(kind):
            checks = checks_of(row, kind)
            if any(_is_for_nodes(check) for check in checks if not check.when):
                continue  # made for nodes; the node under test uses them
            most = max([len(check.permissions) for check in checks], default=1)
            for choice in range(most):
                await session.set_acls(
                    *(
                        (check.permissions[choice % len(check.permissions)], ALLOW)
                        for check in checks
                    )
                )
                for index in range(max(1, len(checks))):
                    found = set(codes(await session.ask(kind, row.key, index)))
                    if found & AUTHORIZATION_CODES:
                        wrong.append((row.key.name, choice, index, found))
        assert wrong == [], wrong

    run(secure, test)


def _is_for_nodes(check: Check) -> bool:
    return any(each.operation is AclOperation.CLUSTER_ACTION for each in check.permissions)


# -- filtered ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "name", "permission"),
    [
        (MetadataRequest(None), TOPIC, Permission(ResourceType.TOPIC, AclOperation.DESCRIBE)),
        (
            DescribeTopicPartitionsRequest(),
            TOPIC,
            Permission(ResourceType.TOPIC, AclOperation.DESCRIBE),
        ),
        (ListGroupsRequest(), GROUP, Permission(ResourceType.GROUP, AclOperation.DESCRIBE)),
        (
            ListTransactionsRequest(),
            TRANSACTIONAL_ID,
            Permission(ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE),
        ),
        (
            DescribeLogDirsRequest(None),
            TOPIC,
            Permission(ResourceType.CLUSTER, AclOperation.DESCRIBE),
        ),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)]),
            None,
            Permission(ResourceType.TOPIC, AclOperation.DESCRIBE),
        ),
    ],
)
def test_list_leaves_out_what_the_client_may_not_describe(
    secure: SecureNode, request_: Message, name: str | None, permission: Permission
) -> None:
    async def test(session: Session) -> None:
        group = (Permission(ResourceType.GROUP, AclOperation.DESCRIBE), ALLOW)
        grants = [group] if isinstance(request_, OffsetFetchRequest) else []

        async def is_listed() -> bool:
            reply: Any = await session.alice.send(request_)
            if name is None:
                return bool(reply.groups[0].topics)
            return name in set(texts(reply))

        await session.set_acls(*grants)
        assert not await is_listed()
        await session.set_acls(*grants, (permission, ALLOW))
        assert await is_listed()

    run(secure, test)


def test_topic_that_may_not_be_described_has_no_name_by_its_id(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        wanted = MetadataRequest([MetadataRequestTopic(session.topic_id, None)])
        reply: Any = await session.alice.send(wanted)
        (topic,) = reply.topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert topic.name is None and not topic.partitions

    run(secure, test)


def test_deletion_by_id_hides_the_name_from_a_client_that_may_not_describe(
    secure: SecureNode,
) -> None:
    async def test(session: Session) -> None:
        wanted = DeleteTopicsRequest([], [DeleteTopicState(None, session.topic_id)], 9000)
        for grants, name in (
            ([], None),
            ([(Permission(ResourceType.TOPIC, AclOperation.DESCRIBE), ALLOW)], TOPIC),
        ):
            await session.set_acls(*grants)
            reply: Any = await session.alice.send(wanted)
            (result,) = reply.responses
            assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert result.name == name

    run(secure, test)


@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.CLUSTER])
def test_client_that_may_describe_a_name_learns_that_no_topic_has_it(
    secure: SecureNode, kind: ResourceType
) -> None:
    async def test(session: Session) -> None:
        wanted = DeleteTopicsRequest([], [DeleteTopicState("nowhere")], 9000)
        reply: Any = await session.alice.send(wanted)
        assert reply.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        operation = {ResourceType.TOPIC: AclOperation.DESCRIBE}.get(kind, AclOperation.DELETE)
        await session.set_acls((Permission(kind, operation), ALLOW))
        reply = await session.alice.send(wanted)
        assert reply.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(secure, test)


# -- entries -------------------------------------------------------------------------


def entry(
    name: str,
    *,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    permission: PermissionType = ALLOW,
    principal: str = "User:alice",
) -> AclCreation:
    return AclCreation(
        ResourceType.TOPIC, name, pattern, principal, host, AclOperation.CREATE, permission
    )


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        ([], False),
        ([entry("of-alice")], True),
        ([entry("of-bob")], False),
        ([entry("*")], True),
        ([entry("of-", pattern=PatternType.PREFIXED)], True),
        ([entry("off", pattern=PatternType.PREFIXED)], False),
        ([entry("of-alice", principal="User:*")], True),
        ([entry("of-alice", principal="User:bob")], False),
        ([entry("of-alice", host="127.0.0.1")], True),
        ([entry("of-alice", host="192.0.2.1")], False),
        ([entry("of-alice"), entry("*", permission=DENY)], False),
        ([entry("of-alice"), entry("of-alice", host="192.0.2.1", permission=DENY)], True),
    ],
)
def test_forwarded_create_topics_is_authorized_by_the_entries_of_its_client(
    secure: SecureNode, entries: list[AclCreation], is_allowed: bool
) -> None:
    async def test(session: Session) -> None:
        if entries:
            await session.create_acls(*entries)
        topic = CreatableTopic("of-alice", 1, 1)
        reply: Any = await session.alice.send(CreateTopicsRequest([topic], 9000, True))
        wanted = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert reply.topics[0].error_code == wanted
        everything = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
        await session.admin.send(DeleteAclsRequest([everything]))

    run(secure, test)


def test_envelope_is_refused_from_a_client(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        await session.set_acls(
            *ALL, (Permission(ResourceType.CLUSTER, AclOperation.CLUSTER_ACTION), DENY)
        )
        reply: Any = await session.controller.send(EnvelopeRequest(b"", b"", b""))
        assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(secure, test)


def test_change_of_acls_takes_effect_at_once_on_an_open_connection(secure: SecureNode) -> None:
    """The third request in a row takes the fast path, which a denial closes."""

    async def test(session: Session) -> None:
        write = Permission(ResourceType.TOPIC, AclOperation.WRITE)

        async def produce() -> ErrorCode:
            reply: Any = await session.ask(Listener.BROKER, ApiKey.PRODUCE, 1)
            return ErrorCode(reply.responses[0].partition_responses[0].error_code)

        for _ in range(2):
            await session.set_acls((write, ALLOW))
            assert [await produce() for _ in range(3)] == [ErrorCode.NONE] * 3
            await session.set_acls()
            assert await produce() is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run(secure, test)


def test_authorized_operations_are_those_that_the_entries_allow(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        wanted = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
        wanted.include_topic_authorized_operations = True
        cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
        await session.set_acls(
            (Permission(ResourceType.TOPIC, AclOperation.READ), ALLOW),
            (Permission(ResourceType.CLUSTER, AclOperation.ALTER_CONFIGS), ALLOW),
        )
        reply: Any = await session.alice.send(wanted)
        expected = {AclOperation.READ, AclOperation.DESCRIBE}
        assert reply.topics[0].topic_authorized_operations == _bits(expected)
        reply = await session.alice.send(cluster)
        assert reply.cluster_authorized_operations == 0, "the cluster may not be described"
        await session.set_acls((Permission(ResourceType.CLUSTER, AclOperation.ALTER), ALLOW))
        reply = await session.alice.send(cluster)
        expected = {AclOperation.ALTER, AclOperation.DESCRIBE}
        assert reply.cluster_authorized_operations == _bits(expected)

    run(secure, test)


def _bits(operations: set[AclOperation]) -> int:
    return sum(1 << each for each in operations)


def test_admin_client_creates_describes_and_deletes_acls(secure: SecureNode) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": secure.bootstrap("LOGIN"),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "node",
            "sasl.password": "node-secret",
            "log_level": 0,
        }
    )
    of = (RdResourceType.TOPIC, "round-trip", ResourcePatternType.PREFIXED)
    binding = AclBinding(*of, "User:carol", "*", RdOperation.WRITE, AclPermissionType.ALLOW)
    wanted = AclBindingFilter(*of, None, None, RdOperation.ANY, AclPermissionType.ANY)
    for future in admin.create_acls([binding], request_timeout=SECONDS_MAX).values():
        future.result(SECONDS_MAX)
    assert admin.describe_acls(wanted, request_timeout=SECONDS_MAX).result(SECONDS_MAX) == [binding]
    (deleted,) = admin.delete_acls([wanted], request_timeout=SECONDS_MAX).values()
    assert deleted.result(SECONDS_MAX) == [binding]
    assert admin.describe_acls(wanted, request_timeout=SECONDS_MAX).result(SECONDS_MAX) == []


def test_controllers_are_described_to_administrators_alone(secure: SecureNode) -> None:
    """Unlike brokers, whose description needs no permission; Kafka's rule."""
    controllers = DescribeClusterRequest(endpoint_type=2)

    async def test(session: Session) -> None:
        refused: Any = await session.controller.send(controllers)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert refused.brokers == []
        brokers: Any = await session.alice.send(DescribeClusterRequest())
        assert brokers.error_code == ErrorCode.NONE and brokers.brokers
        alter = Permission(ResourceType.CLUSTER, AclOperation.ALTER)
        await session.set_acls((alter, ALLOW))
        described: Any = await session.controller.send(controllers)
        assert described.error_code == ErrorCode.NONE and described.brokers

    run(secure, test)
