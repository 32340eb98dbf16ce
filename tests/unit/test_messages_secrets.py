"""Secrets do not reach a log by way of a message that is printed."""

import pytest

from ottla.protocol.internal.metadata_security import UserScramCredentialRecord
from ottla.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.schema import Message

SECRET = b"\x00a secret\x00"


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(auth_bytes=SECRET),
        SaslAuthenticateResponse(auth_bytes=SECRET),
        ScramCredentialUpsertion(name="ann", salted_password=SECRET),
        CreateDelegationTokenResponse(hmac=SECRET),
        RenewDelegationTokenRequest(hmac=SECRET),
        UserScramCredentialRecord(name="ann", stored_key=SECRET, server_key=SECRET),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_secret_is_not_printed(message: Message) -> None:
    for text in (repr(message), str(message), f"{[message]}"):
        assert "a secret" not in text
        assert "[hidden]" in text


def test_everything_else_is() -> None:
    shown = repr(ScramCredentialUpsertion(name="ann", iterations=4096))
    assert "name='ann'" in shown and "iterations=4096" in shown
