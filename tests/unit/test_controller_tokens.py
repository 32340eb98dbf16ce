"""Delegation tokens, rule by rule. Times are in ms."""

import hashlib
import hmac
from typing import Any

import pytest
from controller_images import after, image_of

from ottla.api.surface.replies import finish
from ottla.config.values import Password
from ottla.controller import token_index, tokens
from ottla.controller.decision import Decision
from ottla.controller.token_index import TokenIndex
from ottla.controller.tokens import (
    TOKENS_PER_OWNER_MAX,
    TokenContext,
    decide_create_delegation_token,
    decide_expire_delegation_token,
    decide_renew_delegation_token,
    decide_sweep_delegation_tokens,
    describe_delegation_tokens,
)
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.protocol.types import Millis, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.security.principal import Principal, parse_principal

IMAGE = image_of()
SECRET = Password("shared secret")
LIFETIME, RENEWAL = 1000, 100
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
TOKEN_ID = Uuid(b"0123456789abcdef")
OLD = image_of(version=MetadataVersion.IBP_3_6_IV1)


def context(
    now: int = 0, requester: Principal = ALICE, secret: Password | None = SECRET
) -> TokenContext:
    return TokenContext(requester, Millis(now), secret, LIFETIME, RENEWAL, TokenIndex())


def create(
    image: Image = IMAGE,
    request: CreateDelegationTokenRequest | None = None,
    within: TokenContext | None = None,
    token_id: Uuid = TOKEN_ID,
) -> Decision[CreateDelegationTokenResponse]:
    return decide_create_delegation_token(
        image, request or CreateDelegationTokenRequest(), token_id, within or context()
    )


def renew(
    image: Image, password: bytes, within: TokenContext, period: int = -1
) -> Decision[RenewDelegationTokenResponse]:
    return decide_renew_delegation_token(
        image, RenewDelegationTokenRequest(password, period), within
    )


def expire(
    image: Image, password: bytes, within: TokenContext, period: int = -1
) -> Decision[ExpireDelegationTokenResponse]:
    return decide_expire_delegation_token(
        image, ExpireDelegationTokenRequest(password, period), within
    )


def describe(*arguments: Any) -> DescribeDelegationTokenResponse:
    return finish(describe_delegation_tokens(*arguments))


RENEWERS = [CreatableRenewers("User", "bob")]
MADE = create(request=CreateDelegationTokenRequest(renewers=RENEWERS))
WITH = after(IMAGE, MADE)
PASSWORD = MADE.reply.hmac


def expiration(image: Image) -> int:
    return image.delegation_tokens[uuid_text(TOKEN_ID)].expiration_timestamp


# -- create --------------------------------------------------------------------------------------


def test_token_is_created_for_the_requester() -> None:
    reply = MADE.reply
    assert reply.error_code == 0
    assert (reply.principal_type, reply.principal_name) == ALICE
    assert (reply.issue_timestamp_ms, reply.expiry_timestamp_ms) == (0, RENEWAL)
    assert reply.max_timestamp_ms == LIFETIME
    assert reply.token_id == uuid_text(TOKEN_ID)
    token = WITH.delegation_tokens[reply.token_id]
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:alice",
        ("User:bob",),
    )


def test_token_password_is_the_hmac_of_its_id() -> None:
    key = b"shared secret"
    expected = hmac.new(key, uuid_text(TOKEN_ID).encode(), hashlib.sha512).digest()
    assert expected == PASSWORD


def test_token_is_created_for_another_owner() -> None:
    request = CreateDelegationTokenRequest("User", "bob")
    decision = create(request=request)
    assert decision.reply.principal_name == "bob"
    assert decision.reply.token_requester_principal_name == "alice"
    assert after(IMAGE, decision) != WITH
    token = after(IMAGE, decision).delegation_tokens[uuid_text(TOKEN_ID)]
    assert (token.owner, token.requester) == ("User:bob", "User:alice")


@pytest.mark.parametrize(("asked", "given"), [(-1, 1000), (0, 1000), (70, 70), (5000, 1000)])
def test_token_lifetime_is_bounded_by_the_cluster(asked: int, given: int) -> None:
    reply = create(request=CreateDelegationTokenRequest(max_lifetime_ms=asked)).reply
    assert reply.max_timestamp_ms == given
    assert reply.expiry_timestamp_ms == min(given, RENEWAL)


def test_times_do_not_overflow() -> None:
    most = (1 << 63) - 1
    reply = create(within=context(now=most - 5)).reply
    assert reply.max_timestamp_ms == reply.expiry_timestamp_ms == most


def test_renewers_must_be_users() -> None:
    request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("Group", "g")])
    decision = create(request=request)
    assert decision.reply.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert decision.records == []
    assert decision.reply.hmac == b""


def test_tokens_are_disabled_without_a_secret() -> None:
    off = context(secret=None)
    expected = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    request = DescribeDelegationTokenRequest(None)
    assert create(within=off).reply.error_code == expected
    assert renew(WITH, PASSWORD, off).reply.error_code == expected
    assert expire(WITH, PASSWORD, off).reply.error_code == expected
    reply = describe(WITH, request, off, lambda _: True)
    assert (reply.error_code, reply.tokens) == (expected, [])


def test_tokens_require_a_metadata_version() -> None:
    expected = ErrorCode.UNSUPPORTED_VERSION
    assert create(OLD).reply.error_code == expected
    assert renew(OLD, PASSWORD, context()).reply.error_code == expected
    assert expire(OLD, PASSWORD, context()).reply.error_code == expected


# -- renew ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [ALICE, BOB])
def test_owner_and_renewers_may_renew(who: Principal) -> None:
    decision = renew(WITH, PASSWORD, context(50, who))
    assert (decision.reply.error_code, decision.reply.expiry_timestamp_ms) == (0, 150)
    assert expiration(after(WITH, decision)) == 150


@pytest.mark.parametrize(("period", "end"), [(0, 150), (20, 70), (500, 150)])
def test_renewal_period_is_bounded_by_the_cluster(period: int, end: int) -> None:
    assert renew(WITH, PASSWORD, context(50), period).reply.expiry_timestamp_ms == end


def test_token_is_not_renewed_beyond_its_maximum() -> None:
    image = WITH
    for now in range(90, 1000, 90):
        image = after(image, renew(image, PASSWORD, context(now)))
    assert expiration(image) == LIFETIME


@pytest.mark.parametrize(
    ("password", "who", "now", "expected"),
    [
        (b"wrong", ALICE, 0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (PASSWORD, EVE, 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (PASSWORD, ALICE, 101, ErrorCode.DELEGATION_TOKEN_EXPIRED),
        (PASSWORD, ALICE, 100, ErrorCode.NONE),
    ],
)
def test_renewals_are_validated(
    password: bytes, who: Principal, now: int, expected: ErrorCode
) -> None:
    decision = renew(WITH, password, context(now, who))
    assert decision.reply.error_code == expected
    assert bool(decision.records) == (expected is ErrorCode.NONE)


# -- expire --------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [50, 5000])
def test_negative_period_expires_a_token_at_once(now: int) -> None:
    decision = expire(WITH, PASSWORD, context(now, BOB))
    assert (decision.reply.error_code, decision.reply.expiry_timestamp_ms) == (0, now)
    assert not after(WITH, decision).delegation_tokens


def test_expire_sets_the_expiry_time() -> None:
    assert expiration(after(WITH, expire(WITH, PASSWORD, context(50), 200))) == 250
    assert expiration(after(WITH, expire(WITH, PASSWORD, context(50), 2000))) == LIFETIME


@pytest.mark.parametrize(
    ("password", "who", "now", "expected"),
    [
        (b"wrong", ALICE, 0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (PASSWORD, EVE, 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (PASSWORD, ALICE, 101, ErrorCode.DELEGATION_TOKEN_EXPIRED),
    ],
)
def test_invalid_expiries_are_rejected(
    password: bytes, who: Principal, now: int, expected: ErrorCode
) -> None:
    decision = expire(WITH, password, context(now, who), period=10)
    assert decision.reply.error_code == expected
    assert decision.records == []


def test_only_owner_and_renewers_may_expire() -> None:
    assert expire(WITH, PASSWORD, context(0, EVE)).records == []


def test_expired_tokens_are_removed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    image = IMAGE
    for number in range(3):
        token_id = Uuid((1 << 100 | number).to_bytes(16))
        image = after(image, create(image, token_id=token_id))
    assert decide_sweep_delegation_tokens(image, Millis(100)).records == []
    monkeypatch.setattr(tokens, "EXPIRED_MAX", 2)
    image = after(image, decide_sweep_delegation_tokens(image, Millis(101)))
    assert len(image.delegation_tokens) == 1
    image = after(image, decide_sweep_delegation_tokens(image, Millis(101)))
    assert not image.delegation_tokens


# -- describe ------------------------------------------------------------------------------------


def described(who: Principal, *owners: Principal, may: bool = False) -> int:
    named = [DescribeDelegationTokenOwner(*owner) for owner in owners] if owners else None
    request = DescribeDelegationTokenRequest(named)
    reply = describe(WITH, request, context(0, who), lambda _: may)
    for token in reply.tokens:
        assert token.hmac == PASSWORD
        assert [(r.principal_type, r.principal_name) for r in token.renewers] == [BOB]
        assert (token.principal_name, token.max_timestamp) == ("alice", LIFETIME)
    return len(reply.tokens)


def test_describe_shows_own_tokens_and_others_by_permission() -> None:
    assert described(ALICE) == described(BOB) == 1
    assert described(EVE) == 0
    assert described(EVE, may=True) == 1


def test_describe_filters_by_owner() -> None:
    assert described(ALICE, ALICE) == described(ALICE, BOB) == 1
    assert described(ALICE, EVE) == 0
    request = DescribeDelegationTokenRequest([])
    assert describe(WITH, request, context(), lambda _: True).tokens == []


def test_principal_name_may_contain_colons() -> None:
    assert parse_principal("User:a:b") == Principal("User", "a:b")


def test_secret_is_not_shown() -> None:
    assert "shared" not in repr(context())
    assert "shared" not in repr(MADE)


# -- many tokens ---------------------------------------------------------------------------------


def with_tokens(count: int) -> tuple[Image, list[bytes]]:
    """Return an image with tokens of alice, and their passwords."""
    image, passwords = IMAGE, []
    for number in range(count):
        made = create(image, token_id=Uuid(number.to_bytes(16, "big")))
        image = after(image, made)
        passwords.append(bytes(made.reply.hmac))
    return image, passwords


def test_password_of_a_token_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    image, passwords = with_tokens(50)
    computed: list[str] = []
    real = token_index.token_hmac

    def counting(secret: Password, token_id: str) -> bytes:
        computed.append(token_id)
        return real(secret, token_id)

    monkeypatch.setattr(token_index, "token_hmac", counting)
    within = context()
    for password in passwords:
        decision = renew(image, password, within)
        assert decision.reply.error_code == 0
        image = after(image, decision)
    assert sorted(computed) == sorted(image.delegation_tokens)


def test_index_follows_removed_and_new_tokens() -> None:
    image, passwords = with_tokens(3)
    within = context()
    gone = after(image, expire(image, passwords[0], within))
    assert renew(gone, passwords[0], within).reply.error_code == (
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )
    assert renew(gone, passwords[1], within).reply.error_code == 0
    assert renew(image, passwords[0], within).reply.error_code == 0
    other = context(secret=Password("another secret"))._replace(token_index=within.token_index)
    assert renew(image, passwords[1], other).reply.error_code == (
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )


def test_tokens_of_an_owner_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENS_PER_OWNER_MAX", 3)
    image, passwords = with_tokens(3)
    within, token_id = context(), Uuid(bytes(15) + b"x")
    refused = create(image, within=within, token_id=token_id)
    assert refused.reply.error_code == ErrorCode.POLICY_VIOLATION
    assert not refused.records
    assert create(image, within=context(requester=BOB), token_id=token_id).reply.error_code == 0
    image = after(image, expire(image, passwords[0], within))
    assert create(image, within=within, token_id=token_id).reply.error_code == 0
    assert TOKENS_PER_OWNER_MAX >= 100, "enough for a job with a token per task"
