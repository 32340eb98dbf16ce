"""Delegation tokens against a whole node: create, log in, renew, describe, expire."""

import asyncio
import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from one_node import OneNode
from secure_node import SecureNode
from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection, ConnectionLost, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.client import password_credentials
from ottla.security.sasl.credentials import Credentials, LoginFailed

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:node",
)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    root: Path = tmp_path_factory.mktemp("tokens")
    secure = SecureNode(root, ("delegation.token.secret.key=deep-secret", *AUTHORIZER))
    running: OneNode = secure.start()
    yield secure
    running.stop()


def user(name: str) -> Credentials:
    return password_credentials("SCRAM-SHA-256", name, f"{name}-secret", SystemRandom())


def token(made: CreateDelegationTokenResponse) -> Credentials:
    password = base64.b64encode(made.hmac).decode()
    return password_credentials(
        "SCRAM-SHA-512", made.token_id, password, SystemRandom(), is_token=True
    )


async def connect(
    secure: SecureNode, login: Credentials | None, name: str = "SECURE"
) -> Connection:
    tls = ssl.create_default_context(cafile=str(secure.ca_file))
    if name == "MUTUAL":
        tls.load_cert_chain(secure.client_cert, secure.client_key)
    is_tls = name not in ("OPEN", "LOGIN")
    return await Connection.open(
        TcpNetwork(),
        Address("localhost", secure.ports[name]),
        options=Options(tls=(lambda: tls) if is_tls else None, login=login),
    )


def ask(
    secure: SecureNode, login: Credentials | None, request: Message, name: str = "SECURE"
) -> Any:
    """Log in, send one request, and return its reply."""

    async def main() -> Message:
        connection = await connect(secure, login, name)
        try:
            return await connection.send(request)
        finally:
            await connection.close()

    return asyncio.run(main())


def create(secure: SecureNode, *renewers: str, lifetime_ms: int = -1) -> Any:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers("User", each) for each in renewers],
        max_lifetime_ms=lifetime_ms,
    )
    made = ask(secure, user("alice"), request)
    assert made.error_code == 0 and (made.principal_type, made.principal_name) == ("User", "alice")
    return made


def described(secure: SecureNode, who: str, *owners: str) -> list[str]:
    named = [DescribeDelegationTokenOwner("User", each) for each in owners]
    reply = ask(secure, user(who), DescribeDelegationTokenRequest(named or None))
    assert reply.error_code == 0
    return [each.token_id for each in reply.tokens]


def test_token_logs_its_owner_in_until_it_is_expired(secure: SecureNode) -> None:
    made = create(secure)
    assert ask(secure, token(made), MetadataRequest()).brokers
    # A token must not create another one, and not even show those of its owner.
    assert ask(secure, token(made), CreateDelegationTokenRequest()).error_code == NOT_ALLOWED
    assert ask(secure, token(made), DescribeDelegationTokenRequest(None)).error_code == NOT_ALLOWED
    renewed = ask(secure, user("alice"), RenewDelegationTokenRequest(made.hmac, 60_000))
    assert renewed.error_code == 0
    assert renewed.expiry_timestamp_ms < made.expiry_timestamp_ms  # a minute from now, not a day
    expired = ask(secure, user("alice"), ExpireDelegationTokenRequest(made.hmac, -1))
    assert expired.error_code == 0
    with pytest.raises(LoginFailed):
        ask(secure, token(made), MetadataRequest())
    again = ask(secure, user("alice"), RenewDelegationTokenRequest(made.hmac, 60_000))
    assert again.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_wrong_password_of_a_token_is_refused(secure: SecureNode) -> None:
    made = create(secure)
    made.hmac = bytes(len(made.hmac))
    with pytest.raises(LoginFailed):
        ask(secure, token(made), MetadataRequest())


def test_only_owner_and_renewers_renew_and_expire_a_token(secure: SecureNode) -> None:
    own, shared = create(secure), create(secure, "node")
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for request in (
        RenewDelegationTokenRequest(own.hmac, -1),
        ExpireDelegationTokenRequest(own.hmac, -1),
    ):
        assert ask(secure, user("node"), request).error_code == mismatch
    renewal = RenewDelegationTokenRequest(shared.hmac, -1)
    assert ask(secure, user("node"), renewal).error_code == 0


def test_token_of_another_owner_needs_permission(secure: SecureNode) -> None:
    for_node = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="node"
    )
    refused = ask(secure, user("alice"), for_node)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    for_alice = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice"
    )
    made = ask(secure, user("node"), for_alice)  # a super user
    assert made.error_code == 0 and made.principal_name == "alice"
    assert made.token_requester_principal_name == "node"
    assert made.token_id in described(secure, "alice")


def test_client_sees_its_own_tokens_and_a_super_user_all(secure: SecureNode) -> None:
    made = create(secure)
    of_node = ask(secure, user("node"), CreateDelegationTokenRequest())
    assert made.token_id in described(secure, "alice")
    assert of_node.token_id not in described(secure, "alice")
    assert of_node.token_id not in described(secure, "alice", "node")
    assert {made.token_id, of_node.token_id} <= set(described(secure, "node"))
    nobody = ask(secure, user("alice"), DescribeDelegationTokenRequest([]))
    assert nobody.error_code == 0 and nobody.tokens == []


@pytest.mark.parametrize("listener", ["OPEN", "TLS"])
def test_tokens_are_refused_to_unknown_clients(secure: SecureNode, listener: str) -> None:
    requests: tuple[Message, ...] = (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(b"x", -1),
        ExpireDelegationTokenRequest(b"x", -1),
        DescribeDelegationTokenRequest(None),
    )
    for request in requests:
        assert ask(secure, None, request, listener).error_code == NOT_ALLOWED


def test_client_with_a_certificate_gets_a_token(secure: SecureNode) -> None:
    made = ask(secure, None, CreateDelegationTokenRequest(), "MUTUAL")
    assert made.error_code == 0 and made.principal_name == "carol"


def test_session_ends_with_its_token(secure: SecureNode) -> None:
    made = create(secure, lifetime_ms=1500)

    async def main() -> None:
        connection = await connect(secure, token(made))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:  # until the client has to log in again, for which it is too late
                    await connection.send(MetadataRequest())
        finally:
            await connection.close()

    with pytest.raises((LoginFailed, ConnectionLost)):
        asyncio.run(main())


def test_tokens_are_disabled_without_a_secret(tmp_path: Path) -> None:
    secure = SecureNode(tmp_path)
    running = secure.start()
    try:
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        for request in (CreateDelegationTokenRequest(), DescribeDelegationTokenRequest(None)):
            assert ask(secure, user("alice"), request).error_code == disabled
    finally:
        running.stop()
