"""OAUTHBEARER: tokens of every wrong kind, and the exchange around them."""

import base64
import hmac
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt as other_jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from ottla.config.loading import load
from ottla.config.problems import ConfigError
from ottla.node.security.oauth import UNSECURED_CLASS, build_oauth_validator
from ottla.protocol.types import Millis
from ottla.security.jwt import validate
from ottla.security.jwt_claims import BadToken, JwtClaims, JwtRules, UnknownKey
from ottla.security.principal import Principal
from ottla.security.sasl.exchange import Challenge, Login, Rejection
from ottla.security.sasl.oauthbearer import (
    INVALID_TOKEN,
    OAuthBearerExchange,
    Validator,
    client_first,
)

KEY = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
EC = ECKey.generate_key("P-256", {"kid": "two"}, auto_kid=False)
STRANGER = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
KEYS = KeySet.import_key_set({"keys": [KEY.as_dict(private=False), EC.as_dict(private=False)]})
NOW = Millis(1_800_000_000_000)
SECONDS = NOW // 1000
RULES = JwtRules(issuer="https://idp", audiences=("kafka", "other"))
GOOD = {"sub": "alice", "iss": "https://idp", "aud": "kafka", "exp": SECONDS + 60, "scope": "a b"}


def signed(
    changes: dict[str, Any] | None = None, key: Any = KEY, alg: str = "RS256", kid: Any = "one"
) -> str:
    claims = {**GOOD, **(changes or {})}
    claims = {name: value for name, value in claims.items() if value is not None}
    header = {"alg": alg} if kid is None else {"alg": alg, "kid": kid}
    return other_jwt.encode(header, claims, key, algorithms=[alg])


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_good_token_names_subject_expiry_and_scopes() -> None:
    assert validate(signed(), KEYS, RULES, NOW) == JwtClaims(
        "alice", Millis((SECONDS + 60) * 1000), frozenset({"a", "b"})
    )
    assert validate(signed(key=EC, alg="ES256", kid="two"), KEYS, RULES, NOW).subject == "alice"
    assert validate(signed({"aud": ["x", "other"]}), KEYS, RULES, NOW).subject == "alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": SECONDS - 31},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"nbf": SECONDS + 31},
        {"iat": SECONDS + 31},
        {"iss": "https://evil"},
        {"iss": None},
        {"aud": "else"},
        {"aud": None},
        {"aud": {"kafka": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
    ],
    ids=str,
)
def test_token_with_a_wrong_claim_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadToken):
        validate(signed(changes), KEYS, RULES, NOW)


def test_clock_skew_is_tolerated() -> None:
    assert validate(signed({"exp": SECONDS - 29, "nbf": SECONDS + 29}), KEYS, RULES, NOW)


def test_unsigned_token_is_refused() -> None:
    for algorithm in ("none", "None", "NONE"):
        token = f"{part({'alg': algorithm})}.{part(GOOD)}."
        with pytest.raises(BadToken):
            validate(token, KEYS, RULES, NOW)


def unsigned_validator(*lines: str) -> Validator:
    loaded = load(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs=x\n"
        "listeners=CLIENTS://localhost:1,CONTROLLER://localhost:2\n"
        "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=CLIENTS\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@localhost:2\n" + "\n".join(lines)
    )
    clock: Any = SimpleNamespace(now=lambda: NOW)
    return build_oauth_validator(loaded, "CLIENTS", clock)[0]


def test_unsigned_token_is_accepted_only_where_the_handler_for_it_is_named() -> None:
    key = "listener.name.clients.oauthbearer.sasl.server.callback.handler.class"
    accept = unsigned_validator(f"{key}={UNSECURED_CLASS}")
    claims = accept(f"{part({'alg': 'none'})}.{part(GOOD)}.")
    assert isinstance(claims, JwtClaims)
    assert claims.subject == GOOD["sub"]
    for token in (signed(), f"{part({'alg': 'none'})}.{part(GOOD | {'exp': SECONDS - 99})}."):
        with pytest.raises(BadToken):
            accept(token)
    with pytest.raises(ConfigError, match="must be set for OAUTHBEARER"):
        unsigned_validator()
    with pytest.raises(ConfigError):
        unsigned_validator(f"{key}=com.example.AcceptAll")


def test_hmac_with_the_public_key_as_secret_is_refused() -> None:
    content = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(GOOD)}"
    mac = hmac.digest(KEY.as_pem(private=False), content.encode(), "sha256")
    signature = base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
    with pytest.raises(BadToken, match="not accepted"):
        validate(f"{content}.{signature}", KEYS, RULES, NOW)


def test_token_signed_by_another_key_is_refused() -> None:
    with pytest.raises(BadToken, match="signature"):
        validate(signed(key=STRANGER), KEYS, RULES, NOW)


def test_changed_claims_are_refused() -> None:
    head, _, signature = signed().split(".")
    with pytest.raises(BadToken):
        validate(f"{head}.{part({**GOOD, 'sub': 'root'})}.{signature}", KEYS, RULES, NOW)


@pytest.mark.parametrize("kid", ["three", "../../etc/passwd", "x' OR 1=1"])
def test_unknown_key_id_is_distinguished(kid: str) -> None:
    with pytest.raises(UnknownKey):
        validate(signed(kid=kid), KEYS, RULES, NOW)
    with pytest.raises(UnknownKey):
        validate(signed(), None, RULES, NOW)


def test_missing_or_absurd_key_ids_are_refused() -> None:
    for token in (signed(kid=None), signed(kid="k" * 300)):
        with pytest.raises(BadToken):
            validate(token, KEYS, RULES, NOW)


@pytest.mark.parametrize("token", ["", ".", "a.b.c", "x" * 1_000_000, "é.b.c", signed() + ".x"])
def test_garbage_is_refused(token: str) -> None:
    with pytest.raises(BadToken):
        validate(token, KEYS, RULES, NOW)


def exchange(now: Millis = NOW) -> OAuthBearerExchange:
    return OAuthBearerExchange(lambda token: validate(token, KEYS, RULES, now))


def test_exchange_logs_in_the_subject_until_the_token_expires() -> None:
    step = exchange().step(client_first(signed(), {"traceId": "1"}))
    expires = Millis((SECONDS + 60) * 1000)
    assert step == Login(Principal("User", "alice"), b"", expires)


def test_bad_token_is_answered_and_then_rejected() -> None:
    one = exchange(Millis(NOW + 1_000_000))
    assert one.step(client_first(signed())) == Challenge(INVALID_TOKEN)
    step = one.step(b"\x01")
    assert isinstance(step, Rejection) and "expired" in step.reason
    assert "expired" not in step.message


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        client_first("x") + b"z",
    ],
)
def test_malformed_first_message_is_rejected(first: bytes) -> None:
    assert isinstance(exchange().step(first), Rejection)


def test_authorization_id_must_be_the_subject() -> None:
    first = client_first(signed())
    assert isinstance(exchange().step(first.replace(b"n,,", b"n,a=alice,", 1)), Login)
    assert isinstance(exchange().step(first.replace(b"n,,", b"n,a=root,", 1)), Rejection)


@given(st.binary(max_size=300))
def test_exchange_survives_any_bytes(data: bytes) -> None:
    assert not isinstance(exchange().step(data), Login)
