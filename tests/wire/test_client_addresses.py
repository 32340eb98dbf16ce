"""ACLs for hosts on dual-stack listeners of brokers and controllers, and unknown addresses."""

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from authorized_session import authorized_node, logged_in
from loopback import run as run_on
from loopback import wait_until
from secure_node import LISTENERS, SecureNode
from serving import Running, Scripted, find, running

from ottla.client.connection import Connection, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.schema import Message
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.acl import AclOperation, PatternType, PermissionType, ResourceType
from ottla.security.sasl.client import password_credentials
from ottla.server.admission import Admission, AdmissionLimits
from ottla.server.listener import SharedResources

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
CLUSTER, TOPIC = ResourceType.CLUSTER, ResourceType.TOPIC
LOOPBACK_4, LOOPBACK_6 = "127.0.0.1", "0:0:0:0:0:0:0:1"


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node with ACLs whose listeners are ``NAME://:port``: one socket for IPv4 and IPv6."""
    secure = authorized_node(tmp_path_factory.mktemp("dual"))
    names = (*LISTENERS, "CONTROLLER")
    at = {name: secure.ports[name] for name in names}
    secure.extra += (
        "listeners=" + ",".join(f"{name}://:{port}" for name, port in at.items()),
        "advertised.listeners="
        + ",".join(f"{name}://localhost:{port}" for name, port in at.items()),
    )
    node = secure.start()
    yield secure
    node.stop()


@contextlib.asynccontextmanager
async def alice_from(secure: SecureNode, host: str, listener: str) -> AsyncIterator[Connection]:
    mechanism = "PLAIN" if listener == "CONTROLLER" else "SCRAM-SHA-256"
    login = password_credentials(mechanism, "alice", "alice-secret", SystemRandom())
    tls = None
    if listener == "CONTROLLER":
        context = ssl.create_default_context(cafile=str(secure.ca_file))
        context.check_hostname = False  # the certificate names no IPv6 address
        tls = lambda: context  # noqa: E731
    connection = await Connection.open(
        TcpNetwork(),
        Address(host, secure.ports[listener]),
        client_id="alice",
        options=Options(login=login, tls=tls),
    )
    try:
        yield connection
    finally:
        await connection.close()


async def set_acls(admin: Connection, *entries: tuple[ResourceType, str, PermissionType]) -> None:
    """Replace alice's entries, each ALL on resources of a type from a host."""
    await admin.send(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, "User:alice", None, 1, 1)]))
    creations = [
        AclCreation(
            kind,
            "kafka-cluster" if kind is CLUSTER else "*",
            PatternType.LITERAL,
            "User:alice",
            host,
            AclOperation.ALL,
            permission,
        )
        for kind, host, permission in entries
    ]
    reply: Any = await admin.send(CreateAclsRequest(creations))
    assert [result.error_code for result in reply.results] == [0] * len(creations)


DESCRIBE = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
# Forwarded to the controller, which authorizes it by the address inside the Envelope.
CREATE = CreateTopicsRequest([CreatableTopic("never-created", 1, 1)], 9000, True)


async def code(connection: Connection, request: Message) -> ErrorCode:
    reply: Any = await connection.send(request)
    return ErrorCode(reply.topics[0].error_code if request is CREATE else reply.error_code)


@pytest.mark.parametrize(
    ("client", "spellings", "other"),
    [
        ("127.0.0.1", ("127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1"), LOOPBACK_6),
        ("::1", ("::1", LOOPBACK_6, "0000::0001"), LOOPBACK_4),
    ],
    ids=["ipv4", "ipv6"],
)
@pytest.mark.parametrize("listener", ["LOGIN", "CONTROLLER"])
def test_host_acl_holds_for_clients_of_a_dual_stack_listener(
    dual: SecureNode, listener: str, client: str, spellings: tuple[str, ...], other: str
) -> None:
    requests = [(CLUSTER, DESCRIBE), (TOPIC, CREATE)]

    async def scenario() -> None:
        async with (
            logged_in(dual, "node") as admin,
            alice_from(dual, client, listener) as alice,
        ):
            for host in spellings:
                for kind, request in requests:
                    await set_acls(admin, (kind, host, ALLOW))
                    assert await code(alice, request) is ErrorCode.NONE, (host, request)
                    await set_acls(admin, (kind, other, ALLOW))
                    assert await code(alice, request) in REFUSALS, (host, request)
                    await set_acls(admin, (kind, "*", ALLOW), (kind, host, DENY))
                    assert await code(alice, request) in REFUSALS, (host, request)
                    await set_acls(admin, (kind, "*", ALLOW), (kind, other, DENY))
                    assert await code(alice, request) is ErrorCode.NONE, (host, request)

    asyncio.run(scenario())


REFUSALS = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_audit_names_the_address_as_kafka_does(
    dual: SecureNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with logged_in(dual, "node") as admin:
            await set_acls(admin)
            for client in ("127.0.0.1", "::1"):
                async with alice_from(dual, client, "LOGIN") as alice:
                    assert await code(alice, DESCRIBE) in REFUSALS
                    assert await code(alice, CREATE) in REFUSALS

    def hosts() -> set[str]:
        return {
            record.getMessage().partition("host=")[2].split()[0]
            for record in list(caplog.records)
            if record.name == "ottla.authorizer" and "alice" in record.getMessage()
        }

    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        asyncio.run(scenario())
        # The node writes its audit lines every tenth of a second.
        asyncio.run(wait_until(lambda: len(hosts()) == 2))
    assert hosts() == {LOOPBACK_4, LOOPBACK_6}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_request_of_a_connection_that_was_reset_before_it_was_accepted_is_not_served(
    loop: str,
) -> None:
    """Such a socket has no peer address any more, but its bytes can still be read."""
    admission = Admission(AdmissionLimits())

    async def scenario() -> None:
        scripted = Scripted()
        async with running(
            TcpNetwork(), SystemClock(), scripted, shared=SharedResources(admission=admission)
        ) as server:
            for _ in range(20):
                _send_and_reset(server)  # blocks the loop, so nothing is accepted meanwhile
            await _served(server, scripted)
            assert len(scripted.seen) == 1, "only the request of the open connection"
            await wait_until(lambda: admission.describe() == {"total": 0})

    run_on(loop, scenario())


def _send_and_reset(server: Running) -> None:
    with socket.create_connection((server.address.host, server.address.port)) as sock:
        sock.sendall(find(1))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _served(server: Running, scripted: Scripted) -> None:
    """Wait for the reply to a request on a connection accepted after all others."""
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(find(2))
    scripted_reply = await reader.readexactly(4)
    assert scripted_reply
    writer.close()
