"""AlterUserScramCredentials and DescribeUserScramCredentials, rule by rule."""

import base64

import pytest
from controller_images import after, image_of

from ottla.controller import scram
from ottla.controller.decision import Decision
from ottla.controller.scram import (
    decide_alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from ottla.metadata.access import ScramUser
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.security.sasl.scram import ScramMechanism, salted_password

Change = ScramCredentialDeletion | ScramCredentialUpsertion
IMAGE = image_of()


def upsert(name: str = "alice", mechanism: int = 1, iterations: int = 4096) -> Change:
    return ScramCredentialUpsertion(name, mechanism, iterations, b"hushsalt", b"hushword")


def delete(name: str = "alice", mechanism: int = 1) -> Change:
    return ScramCredentialDeletion(name, mechanism)


def alter(image: Image, *changes: Change) -> Decision[AlterUserScramCredentialsResponse]:
    request = AlterUserScramCredentialsRequest(
        deletions=[c for c in changes if isinstance(c, ScramCredentialDeletion)],
        upsertions=[c for c in changes if isinstance(c, ScramCredentialUpsertion)],
    )
    return decide_alter_user_scram_credentials(image, request)


def codes(decision: Decision[AlterUserScramCredentialsResponse]) -> dict[str, int]:
    assert len({r.user for r in decision.reply.results}) == len(decision.reply.results)
    return {result.user: result.error_code for result in decision.reply.results}


def test_scram_keys_match_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, "pencil", salt, 4096)
    decision = alter(IMAGE, ScramCredentialUpsertion("user", 1, 4096, salt, salted))
    credential = after(IMAGE, decision).scram[ScramUser(1, "user")]
    # Computed from password and salt of the RFC's example; its server signature follows.
    assert credential.stored_key == base64.b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=")
    assert credential.server_key == base64.b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")
    assert (credential.salt, credential.iterations) == (salt, 4096)


def test_sha_512_has_longer_keys() -> None:
    image = after(IMAGE, alter(IMAGE, upsert(mechanism=2)))
    assert len(image.scram[ScramUser(2, "alice")].stored_key) == 64


def test_credential_is_set_replaced_and_removed() -> None:
    image = after(IMAGE, alter(IMAGE, upsert()))
    image = after(image, alter(image, upsert(iterations=8192)))
    assert image.scram[ScramUser(1, "alice")].iterations == 8192
    decision = alter(image, delete())
    assert codes(decision) == {"alice": 0}
    assert not after(image, decision).scram


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (upsert(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=16384), ErrorCode.NONE),
        (ScramCredentialUpsertion("a", 1, 4096, b"s", b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (delete(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (delete(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (delete(), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_alterations_are_validated(change: Change, expected: ErrorCode) -> None:
    decision = alter(IMAGE, change)
    assert codes(decision) == {change.name: expected}
    assert bool(decision.records) == (expected is ErrorCode.NONE)


@pytest.mark.parametrize(
    "changes",
    [
        (upsert(), upsert()),
        (upsert(mechanism=1), upsert(mechanism=2)),
        (delete(), upsert()),
        (delete(), delete()),
        (upsert(), upsert(), upsert()),
    ],
)
def test_user_altered_twice_in_a_request_is_rejected(changes: tuple[Change, ...]) -> None:
    image = after(IMAGE, alter(IMAGE, upsert()))
    decision = alter(image, *changes, upsert("bob"))
    assert codes(decision) == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": 0}
    assert len(decision.records) == 1


def test_scram_requires_a_metadata_version() -> None:
    image = image_of(version=MetadataVersion.IBP_3_5_IV1)
    decision = alter(image, upsert(), delete("bob"))
    assert set(codes(decision).values()) == {ErrorCode.UNSUPPORTED_VERSION}


def test_request_with_too_many_users_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "RECORDS_MAX", 1)
    decision = alter(IMAGE, upsert("a"), upsert("b"))
    assert set(codes(decision).values()) == {ErrorCode.POLICY_VIOLATION}
    assert decision.records == []


def test_replies_and_errors_contain_no_secret() -> None:
    changes = [upsert(), upsert("b", 9), upsert("c", iterations=1), upsert("d"), upsert("d")]
    decision = alter(IMAGE, *changes)
    assert len(decision.records) == 1
    credential = after(IMAGE, decision).scram[ScramUser(1, "alice")]
    for secret in (credential.stored_key, credential.server_key, b"hush"):
        assert repr(secret)[2:-1] not in repr(decision)


# -- describe ------------------------------------------------------------------------------------


def describe(image: Image, *names: str) -> DescribeUserScramCredentialsResponse:
    users = [UserName(name) for name in names] if names else None
    return describe_user_scram_credentials(image, DescribeUserScramCredentialsRequest(users))


def test_describe_without_users_returns_all() -> None:
    image = after(IMAGE, alter(IMAGE, upsert("bob"), upsert("alice", 2, 5000)))
    image = after(image, alter(image, upsert("alice", 1)))
    reply = describe(image)
    found = {
        r.user: [(i.mechanism, i.iterations) for i in r.credential_infos] for r in reply.results
    }
    assert found == {"alice": [(1, 4096), (2, 5000)], "bob": [(1, 4096)]}
    request = DescribeUserScramCredentialsRequest([])
    assert describe_user_scram_credentials(image, request) == reply


def test_describe_rejects_unknown_and_repeated_users() -> None:
    image = after(IMAGE, alter(IMAGE, upsert("bob")))
    reply = describe(image, "bob", "eve", "bob")
    assert [(r.user, r.error_code, r.error_message) for r in reply.results] == [
        (
            "bob",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: bob",
        ),
        (
            "eve",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: eve",
        ),
    ], "Kafka's tests compare these texts"
