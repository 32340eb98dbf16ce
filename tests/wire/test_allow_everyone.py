"""``allow.everyone.if.no.acl.found=true`` over the wire: which resources have "no ACL".

As in Kafka's StandardAuthorizer, an entry of a resource is one with its name, a prefix of its name,
or ``*``, whatever its principal, host, operation and permission. One such entry, and the resource
is closed to everybody whom no entry allows.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from authorized_requests import TOPIC
from authorized_session import ALLOW, DENY, Session, authorized_node, run
from secure_node import SecureNode

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_acls import AclCreation
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.security.acl import AclOperation, PatternType, PermissionType, ResourceType

READ, WRITE = AclOperation.READ, AclOperation.WRITE
DESCRIBE, CREATE = AclOperation.DESCRIBE, AclOperation.CREATE
GROUP_TYPE, CLUSTER = ResourceType.GROUP, ResourceType.CLUSTER
PREFIXED = PatternType.PREFIXED
OTHER_HOST = "192.0.2.1"
NO_BROKER = 99


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    setting = "allow.everyone.if.no.acl.found=true"
    found = authorized_node(tmp_path_factory.mktemp("everyone"), setting)
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: PermissionType = ALLOW,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:bob",
    host: str = "*",
) -> AclCreation:
    return AclCreation(kind, name, pattern, principal, host, operation, permission)


def of_cluster(operation: AclOperation, permission: PermissionType = ALLOW) -> AclCreation:
    return acl("kafka-cluster", operation, permission, kind=CLUSTER)


async def with_entries(session: Session, entries: list[AclCreation]) -> None:
    """Replace all entries, whatever their principal."""
    await session.admin.send(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]))
    if entries:
        await session.create_acls(*entries)


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        pytest.param([], True, id="none"),
        pytest.param([acl(TOPIC)], False, id="for another principal"),
        pytest.param([acl(TOPIC, permission=DENY)], False, id="denies another principal"),
        pytest.param([acl(TOPIC, host=OTHER_HOST, principal="User:*")], False, id="another host"),
        pytest.param(
            [acl(TOPIC, permission=DENY, host=OTHER_HOST, principal="User:*")],
            False,
            id="denies another host",
        ),
        pytest.param([acl(TOPIC, CREATE, principal="User:alice")], False, id="another operation"),
        pytest.param(
            [acl(TOPIC, READ, DENY, principal="User:alice")], False, id="denies another operation"
        ),
        pytest.param([acl(TOPIC, principal="User:alice")], True, id="allows"),
        pytest.param([acl(TOPIC[:-1], pattern=PREFIXED)], False, id="prefix"),
        pytest.param([acl(TOPIC, pattern=PREFIXED)], False, id="whole name as prefix"),
        pytest.param([acl(f"{TOPIC}x", pattern=PREFIXED)], True, id="longer prefix"),
        pytest.param([acl(TOPIC[:-1])], True, id="literal name that is a prefix"),
        pytest.param([acl("*")], False, id="wildcard"),
        pytest.param([acl("*", pattern=PREFIXED)], True, id="asterisk as prefix"),
        pytest.param([acl(TOPIC, kind=GROUP_TYPE)], True, id="another type of resource"),
        pytest.param([of_cluster(DESCRIBE, DENY)], True, id="cluster"),
    ],
)
def test_topic_is_open_to_everybody_until_any_entry_matches_its_name(
    secure: SecureNode, entries: list[AclCreation], is_allowed: bool
) -> None:
    async def test(session: Session) -> None:
        await with_entries(session, entries)
        reply: Any = await session.alice.send(MetadataRequest([MetadataRequestTopic(name=TOPIC)]))
        expected = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert reply.topics[0].error_code == expected

    run(secure, test)


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        pytest.param([], True, id="none"),
        pytest.param([acl("*", WRITE, DENY, principal="User:*")], True, id="cluster is open"),
        pytest.param([of_cluster(DESCRIBE)], True, id="topics are open"),
        pytest.param([of_cluster(DESCRIBE), acl(TOPIC, WRITE)], True, id="other topics are open"),
        pytest.param([of_cluster(DESCRIBE), acl("*", WRITE)], False, id="every topic has one"),
        pytest.param(
            [of_cluster(DESCRIBE), acl("*"), acl("t", WRITE, principal="User:alice")],
            True,
            id="one topic is allowed",
        ),
    ],
)
def test_producer_id_needs_the_cluster_or_some_topic_to_be_open(
    secure: SecureNode, entries: list[AclCreation], is_allowed: bool
) -> None:
    async def test(session: Session) -> None:
        await with_entries(session, entries)
        reply: Any = await session.alice.send(InitProducerIdRequest(None, 10_000))
        expected = ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert reply.error_code == expected

    run(secure, test)


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        pytest.param([], True, id="none"),
        pytest.param([acl("*", AclOperation.ALL, DENY, principal="User:*")], True, id="topics"),
        pytest.param([of_cluster(DESCRIBE)], False, id="for another principal"),
        pytest.param([of_cluster(AclOperation.ALL, DENY)], False, id="denies another principal"),
    ],
)
def test_actions_of_nodes_are_open_to_everybody_until_the_cluster_has_an_entry(
    secure: SecureNode, entries: list[AclCreation], is_allowed: bool
) -> None:
    async def test(session: Session) -> None:
        await with_entries(session, entries)
        heartbeat = BrokerHeartbeatRequest(NO_BROKER)
        reply: Any = await session.controller.send(heartbeat)
        is_refused = reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert reply.error_code != ErrorCode.NONE and is_refused is not is_allowed

    run(secure, test)


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        pytest.param([acl("new", CREATE, DENY, principal="User:*")], True, id="cluster is open"),
        pytest.param([of_cluster(DESCRIBE)], True, id="topic is open"),
        pytest.param([of_cluster(DESCRIBE), acl("new")], False, id="neither is open"),
    ],
)
def test_forwarded_creation_follows_the_setting_on_the_controller(
    secure: SecureNode, entries: list[AclCreation], is_allowed: bool
) -> None:
    async def test(session: Session) -> None:
        await with_entries(session, entries)
        request = CreateTopicsRequest([CreatableTopic("new", 1, 1)], 9000, True)
        reply: Any = await session.alice.send(request)
        expected = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert reply.topics[0].error_code == expected

    run(secure, test)
