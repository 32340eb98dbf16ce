"""Keys of an identity provider: odd key sets, rotation, and a provider that fails."""
# ruff: noqa: ASYNC110 - waits for a condition of a service without events

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from ottla.runtime.clock import SystemClock
from ottla.security.http_fetch import FetchFailed, HttpRequest, fetch
from ottla.security.jwks import BadKeySet, JwksKeys, JwksTiming, parse_key_set
from ottla.security.jwt_claims import BadToken, JwtRules

SECONDS_MAX = 20


def made(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid}, auto_kid=False)


ONE, TWO = made("one"), made("two")


def public(*keys: RSAKey) -> list[Any]:
    return [key.as_dict(private=False) for key in keys]


def token(key: RSAKey) -> str:
    claims = {"sub": "alice", "exp": int(SystemClock().now() / 1000) + 300}
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "EC", "crv": "P-999", "x": "a", "y": "b", "kid": "q"},
        {"kty": "RSA", "kid": "q"},
        {"kty": "RSA", "n": "!!", "e": "AQAB"},
        {"kty": "OKP", "crv": "X999", "x": "AA"},
        {"kty": "later", "kid": "q"},
        {"kty": 7},
        None,
        "text",
    ],
    ids=str,
)
def test_key_that_cannot_be_read_is_left_out(odd: object) -> None:
    document = {"keys": [odd, *public(ONE)], "issuer": "https://idp"}
    assert [key.kid for key in parse_key_set(json.dumps(document).encode()).keys] == ["one"]
    with pytest.raises(BadKeySet):
        parse_key_set(json.dumps({"keys": [odd]}).encode())


@pytest.mark.parametrize("document", [b"", b"[]", b'{"keys":{}}', b'{"keys":' + b"[" * 100_000])
def test_document_that_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(BadKeySet):
        parse_key_set(document)


class Provider:
    """A key set that changes, or fails, and counts how often it is fetched."""

    def __init__(self) -> None:
        self.keys = public(ONE)
        self.fetched = 0
        self.is_down = False

    async def fetch(self) -> bytes:
        self.fetched += 1
        if self.is_down:
            raise FetchFailed("down")
        return json.dumps({"keys": self.keys}).encode()


async def settled(provider: Provider, count: int) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while provider.fetched < count:
            await asyncio.sleep(0.01)


def test_rotated_key_is_fetched_once_for_a_storm_of_tokens_and_the_old_one_goes() -> None:
    async def scenario() -> None:
        provider = Provider()
        keys = JwksKeys(provider.fetch, JwtRules(), SystemClock(), JwksTiming())
        running = asyncio.create_task(keys.run(lambda: None))
        await settled(provider, 1)
        assert keys.validate(token(ONE)).subject == "alice"
        provider.keys = public(TWO)
        for _ in range(100):
            with pytest.raises(BadToken):
                keys.validate(token(TWO))
        await settled(provider, 2)
        async with asyncio.timeout(SECONDS_MAX):
            while keys._keys is None or keys._keys.keys[0].kid != "two":
                await asyncio.sleep(0.01)
        assert keys.validate(token(TWO)).subject == "alice"
        for _ in range(100):
            with pytest.raises(BadToken):
                keys.validate(token(ONE))
        await asyncio.sleep(0)
        assert provider.fetched == 2, "forged key ids cannot flood the provider"
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())


def test_last_keys_serve_while_the_provider_is_down_but_not_for_ever() -> None:
    async def scenario() -> None:
        provider = Provider()
        timing = JwksTiming(refresh_ms=20, retry_ms=10, retry_ms_max=20, max_age_ms=500)
        keys = JwksKeys(provider.fetch, JwtRules(), SystemClock(), timing)
        running = asyncio.create_task(keys.run(lambda: None))
        await settled(provider, 1)
        keys.validate(token(ONE))
        provider.is_down = True
        await settled(provider, provider.fetched + 2)
        fetched_at = keys.fetched_at
        assert fetched_at is not None
        async with asyncio.timeout(SECONDS_MAX):
            while SystemClock().monotonic() - fetched_at <= 550:
                await asyncio.sleep(0.01)
        with pytest.raises(BadToken):
            keys.validate(token(ONE))
        provider.is_down = False
        await settled(provider, provider.fetched + 2)
        assert keys.validate(token(ONE)).subject == "alice"
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())


@pytest.fixture
def broken(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that answers with given bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(request.param)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "broken",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n",
        b"",
    ],
    indirect=True,
    ids=["no status line", "bad chunk", "many headers", "nothing"],
)
def test_broken_answer_is_a_failed_fetch(broken: str) -> None:
    with pytest.raises(FetchFailed):
        fetch(HttpRequest(url=broken), None)
