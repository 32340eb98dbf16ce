"""Opaque tokens: requests, replies, cache and bounds of introspection (RFC 7662)."""

import asyncio
import base64
import http.server
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError
from ottla.node.security.oauth import build_oauth_validator
from ottla.protocol.types import Millis
from ottla.security.http_fetch import FetchFailed
from ottla.security.introspection import (
    ASKED_MAX,
    CACHE_ENTRIES_MAX,
    WAITING_MAX,
    IntrospectionServer,
    TokenIntrospection,
    check_reply,
    introspection_request,
)
from ottla.security.jwt_claims import BadToken, JwtClaims, JwtRules

NOW_S = 1_800_000_000
RULES = JwtRules(
    issuer="https://idp", audiences=("kafka",), required_scopes=("read", "write"), clock_skew_s=0
)
GOOD: dict[str, Any] = {
    "active": True,
    "sub": "alice",
    "exp": NOW_S + 60,
    "iss": "https://idp",
    "aud": ["kafka", "other"],
    "scope": "read write more",
}


class HandClock:
    ms = NOW_S * 1000

    def now(self) -> Millis:
        return Millis(self.ms)

    def monotonic(self) -> Millis:
        return Millis(self.ms)


def reply(**changes: object) -> bytes:
    return json.dumps({k: v for k, v in (GOOD | changes).items() if v is not None}).encode()


def test_active_token_names_subject_expiry_and_scopes() -> None:
    claims = check_reply(reply(), RULES, Millis(NOW_S * 1000))
    scopes = frozenset({"read", "write", "more"})
    assert claims == JwtClaims("alice", Millis((NOW_S + 60) * 1000), scopes)


@pytest.mark.parametrize(
    "changes",
    [
        {"active": False},
        {"active": None},
        {"active": "true"},
        {"active": 1},
        {"exp": NOW_S},
        {"exp": None},
        {"nbf": NOW_S + 5},
        {"sub": None},
        {"sub": " "},
        {"iss": "https://other"},
        {"aud": "other"},
        {"aud": None},
        {"scope": "read"},
        {"scope": None},
    ],
    ids=str,
)
def test_reply_with_a_wrong_claim_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadToken):
        check_reply(reply(**changes), RULES, Millis(NOW_S * 1000))


@pytest.mark.parametrize("document", [b"", b"[]", b"true", b"\xff", b'{"active": true'])
def test_reply_that_is_no_object_is_refused(document: bytes) -> None:
    with pytest.raises(BadToken):
        check_reply(document, RULES, Millis(NOW_S * 1000))


def test_request_has_the_credentials_in_its_header_and_the_token_in_its_body() -> None:
    server = IntrospectionServer(url="https://idp/x", client_id="a b", client_secret="p:w")
    request = introspection_request(server, "opaque+token")
    assert request.body == b"token=opaque%2Btoken&token_type_hint=access_token"
    expected = base64.b64encode(b"a%20b:p%3Aw").decode()
    assert request.headers["Authorization"] == f"Basic {expected}"
    assert "p:w" not in repr(server) and "token" not in repr(request)


def play(
    scenario: Callable[[TokenIntrospection, "Issuer", HandClock], Awaitable[None]],
    cache_ms: int = 30_000,
) -> None:
    async def main() -> None:
        issuer, clock = Issuer(), HandClock()
        await scenario(TokenIntrospection(issuer.ask, RULES, clock, cache_ms), issuer, clock)

    asyncio.run(main())


class Issuer:
    """Answers at once, or when ``gate`` opens."""

    def __init__(self) -> None:
        self.asked = self.at_once = self.at_once_max = 0
        self.answer: bytes | Exception = reply()
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, token: str) -> bytes:
        self.asked += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await self.gate.wait()
        self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def verify(tokens: TokenIntrospection, token: str) -> JwtClaims:
    found = tokens.validate(token)
    return found if isinstance(found, JwtClaims) else await found


def test_verified_token_is_not_asked_for_again_until_the_cache_ends() -> None:
    async def scenario(tokens: TokenIntrospection, issuer: Issuer, clock: HandClock) -> None:
        for _ in range(3):
            assert (await verify(tokens, "t")).subject == "alice"
        assert issuer.asked == 1
        clock.ms += 30_000
        issuer.answer = reply(active=False)  # revoked
        with pytest.raises(BadToken):
            await verify(tokens, "t")
        assert issuer.asked == 2

    play(scenario)


def test_cache_ends_with_the_token_and_refusals_are_not_cached() -> None:
    async def scenario(tokens: TokenIntrospection, issuer: Issuer, clock: HandClock) -> None:
        issuer.answer = reply(active=False)
        with pytest.raises(BadToken):
            await verify(tokens, "t")
        issuer.answer = reply(exp=NOW_S + 10)
        await verify(tokens, "t")
        clock.ms += 10_000
        with pytest.raises(BadToken, match="expired"):
            await verify(tokens, "t")
        assert issuer.asked == 3

    play(scenario)


def test_cache_is_bounded() -> None:
    async def scenario(tokens: TokenIntrospection, issuer: Issuer, clock: HandClock) -> None:
        for number in range(CACHE_ENTRIES_MAX + 5):
            await verify(tokens, str(number))
        assert len(tokens._cache) == CACHE_ENTRIES_MAX

    play(scenario)


def test_cache_of_zero_asks_at_every_login() -> None:
    async def scenario(tokens: TokenIntrospection, issuer: Issuer, clock: HandClock) -> None:
        await verify(tokens, "t")
        await verify(tokens, "t")
        assert issuer.asked == 2

    play(scenario, cache_ms=0)


def test_requests_under_way_and_waiting_logins_are_bounded() -> None:
    async def scenario(tokens: TokenIntrospection, issuer: Issuer, clock: HandClock) -> None:
        issuer.gate.clear()
        count = ASKED_MAX + WAITING_MAX
        logins = [asyncio.ensure_future(verify(tokens, str(n))) for n in range(count)]
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(BadToken, match="too many"):
            await verify(tokens, "one more")
        issuer.gate.set()
        await asyncio.gather(*logins)
        assert issuer.at_once_max == ASKED_MAX
        assert (await verify(tokens, "one more")).subject == "alice"

    play(scenario)


def test_issuer_that_is_down_refuses_tokens_without_showing_them() -> None:
    async def scenario(tokens: TokenIntrospection, issuer: Issuer, clock: HandClock) -> None:
        issuer.answer = FetchFailed("idp: refused")
        with pytest.raises(BadToken, match="could not be verified") as refused:
            await verify(tokens, "the-token")
        assert "the-token" not in str(refused.value)

    play(scenario)


# -- settings and a real endpoint ----------------------------------------------------


def settings(*lines: str) -> Loaded:
    return load(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs=x\n"
        "listeners=CLIENTS://localhost:1,CONTROLLER://localhost:2\n"
        "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=CLIENTS\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@localhost:2\n" + "\n".join(lines)
    )


URL = "ottla.oauthbearer.introspection.endpoint.url"
CLIENT = (
    "ottla.oauthbearer.introspection.client.id=node",
    "ottla.oauthbearer.introspection.client.secret=node-secret",
)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((f"{URL}=https://idp/x",), "client.id"),
        ((f"{URL}=http://idp.example/x", *CLIENT), "must be https"),
        ((f"{URL}=file:///etc/passwd", *CLIENT), "must be https"),
        ((f"{URL}=https://a:b@idp/x", *CLIENT), "credentials"),
        (
            (f"{URL}=https://idp/x", *CLIENT, "ottla.oauthbearer.allowed.urls=https://idp/y"),
            "not among ottla.oauthbearer.allowed.urls",
        ),
        (
            (f"{URL}=https://idp/x", *CLIENT, "sasl.oauthbearer.jwks.endpoint.url=https://idp/k"),
            "must not be set together",
        ),
        (
            (
                "sasl.oauthbearer.jwks.endpoint.url=https://idp/k",
                "ottla.oauthbearer.allowed.urls=https://idp/y",
            ),
            "not among ottla.oauthbearer.allowed.urls",
        ),
        ((), "must be set for OAUTHBEARER"),
    ],
)
def test_bad_settings_keep_the_node_from_starting(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        build_oauth_validator(settings(*lines), "CLIENTS", HandClock())
    assert "node-secret" not in str(refused.value)


def test_endpoint_is_asked_over_https_with_the_trust_of_the_listener(tmp_path: Path) -> None:
    authority, seen = trustme.CA(), []

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply())

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with http.server.HTTPServer(("localhost", 0), Endpoint) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            loaded = settings(
                *(f"{URL}=https://localhost:{server.server_port}/introspect", *CLIENT),
                *("ssl.truststore.type=PEM", f"ssl.truststore.location={tmp_path / 'ca.pem'}"),
            )
            validate, _ = build_oauth_validator(loaded, "CLIENTS", HandClock())

            async def log_in() -> JwtClaims:
                found = validate("opaque")
                assert isinstance(found, Awaitable)
                return await found

            assert asyncio.run(log_in()).subject == "alice"
        finally:
            server.shutdown()
            thread.join()
    expected = "Basic " + base64.b64encode(b"node:node-secret").decode()
    assert seen == [(expected, b"token=opaque&token_type_hint=access_token")]
