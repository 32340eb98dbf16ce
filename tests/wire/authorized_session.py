"""A node with ACLs, and connections of an unprivileged user and of an administrator to it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from authorized_requests import GROUP, TOPIC, TRANSACTIONAL_ID, codes, special
from secure_node import PLAIN_MODULE, SecureNode
from tests.patience import SECONDS_MAX

from ottla.api.surface.row import Permission
from ottla.client.connection import Connection, Options
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.acl import AclOperation, PatternType, PermissionType, ResourceType
from ottla.security.sasl.client import password_credentials

AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY


def authorized_node(directory: Path, *extra: str) -> SecureNode:
    """Return a node with more settings whose super user is ``node``; ``alice`` has no rights."""
    return SecureNode(
        directory,
        (
            AUTHORIZER,
            "super.users=User:node",
            f'listener.name.controller.plain.sasl.jaas.config={PLAIN_MODULE} username="node" '
            'password="node-secret" user_node="node-secret" user_alice="alice-secret";',
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "share.coordinator.state.topic.num.partitions=1",
            *extra,
        ),
    )


@contextlib.asynccontextmanager
async def logged_in(
    secure: SecureNode, user: str, listener: str = "LOGIN"
) -> AsyncIterator[Connection]:
    mechanism = "PLAIN" if listener == "CONTROLLER" else "SCRAM-SHA-256"
    login = password_credentials(mechanism, user, f"{user}-secret", SystemRandom())
    tls = None
    if listener == "CONTROLLER":
        context = ssl.create_default_context(cafile=str(secure.ca_file))
        tls = lambda: context  # noqa: E731
    address = Address("localhost", secure.ports[listener])
    connection = await Connection.open(
        TcpNetwork(), address, client_id=user, options=Options(login=login, tls=tls)
    )
    try:
        yield connection
    finally:
        await connection.close()


class Session:
    """Connections of alice to both kinds of listener, and of an administrator."""

    def __init__(self, alice: Connection, controller: Connection, admin: Connection) -> None:
        self.alice = alice
        self.controller = controller
        self.admin = admin
        self.topic_id = ZERO_UUID

    async def set_acls(self, *entries: tuple[Permission, PermissionType]) -> None:
        """Replace alice's entries, each for all resources of the type."""
        everything = DeleteAclsFilter(1, None, 1, "User:alice", None, 1, 1)
        await self.admin.send(DeleteAclsRequest([everything]))
        if entries:
            await self.create_acls(
                *(
                    AclCreation(
                        each.resource_type,
                        "kafka-cluster" if each.resource_type is ResourceType.CLUSTER else "*",
                        PatternType.LITERAL,
                        "User:alice",
                        "*",
                        each.operation,
                        permission,
                    )
                    for each, permission in entries
                )
            )

    async def create_acls(self, *creations: AclCreation) -> None:
        reply: Any = await self.admin.send(CreateAclsRequest(list(creations)))
        assert [each.error_code for each in reply.results] == [0] * len(creations)

    async def find_coordinators(self) -> None:
        """Wait until the coordinators of the group and the transactional id serve requests."""
        init = InitProducerIdRequest(TRANSACTIONAL_ID, 10_000)
        commit = OffsetCommitRequest(
            GROUP, topics=[OffsetCommitRequestTopic(partitions=[OffsetCommitRequestPartition()])]
        )
        commit.topics[0].topic_id, commit.topics[0].name = self.topic_id, TOPIC
        group = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        transaction = FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID])
        deadline = asyncio.get_running_loop().time() + SECONDS_MAX
        for request in (group, transaction, init, commit):
            while set(codes(await self.admin.send(request))) != {ErrorCode.NONE}:
                assert asyncio.get_running_loop().time() < deadline, request
                await asyncio.sleep(0.05)

    def connection(self, kind: Listener) -> Connection:
        return self.alice if kind is Listener.BROKER else self.controller

    async def ask(self, kind: Listener, key: ApiKey, index: int) -> Message:
        connection = self.connection(kind)
        request, version = special(key, index, connection.version_for(key), self.topic_id)
        return await connection.send(request, version=version)


def run(secure: SecureNode, test: Callable[[Session], Awaitable[None]]) -> None:
    async def body() -> None:
        async with (
            logged_in(secure, "alice") as alice,
            logged_in(secure, "alice", "CONTROLLER") as controller,
            logged_in(secure, "node") as admin,
        ):
            session = Session(alice, controller, admin)
            await session.set_acls()
            reply: Any = await admin.send(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], 9000))
            assert reply.topics[0].error_code in (
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            )
            reply = await admin.send(MetadataRequest([MetadataRequestTopic(name=TOPIC)]))
            session.topic_id = Uuid(reply.topics[0].topic_id)
            await session.find_coordinators()
            await test(session)

    asyncio.run(body())


ALL = [
    (Permission(kind, AclOperation.ALL), ALLOW)
    for kind in (
        ResourceType.TOPIC,
        ResourceType.GROUP,
        ResourceType.CLUSTER,
        ResourceType.TRANSACTIONAL_ID,
    )
]
