"""Keys of an identity provider: refreshed, asked for on demand, and kept while it is down."""

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from joserfc import jwt as other_jwt
from joserfc.jwk import OctKey, RSAKey

from ottla.protocol.types import Millis
from ottla.security.http_fetch import BadUrl, FetchFailed, HttpRequest, check_url, fetch
from ottla.security.jwks import BadKeySet, JwksKeys, JwksTiming, parse_key_set
from ottla.security.jwt_claims import JwtRules, UnknownKey

OLD = RSAKey.generate_key(2048, {"kid": "old"}, auto_kid=False)
NEW = RSAKey.generate_key(2048, {"kid": "new"}, auto_kid=False)
NOW_S = 1_800_000_000


def document(*keys: RSAKey, **others: object) -> bytes:
    return json.dumps({"keys": [{**key.as_dict(private=False), **others} for key in keys]}).encode()


def token(key: RSAKey) -> str:
    claims = {"sub": "alice", "exp": NOW_S + 60}
    return other_jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


class HandClock:
    ms = 5_000

    def now(self) -> Millis:
        return Millis(NOW_S * 1000)

    def monotonic(self) -> Millis:
        return Millis(self.ms)


class Provider:
    """Answers one fetch per `answer`; the keys' service waits in between."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._reply: asyncio.Future[bytes] | None = None
        self.count = 0

    async def fetch(self) -> bytes:
        self.count += 1
        self._reply = asyncio.get_running_loop().create_future()
        self.asked.set()
        return await self._reply

    async def answer(self, reply: bytes | Exception) -> None:
        await asyncio.wait_for(self.asked.wait(), 30)
        self.asked.clear()
        assert self._reply is not None
        if isinstance(reply, Exception):
            self._reply.set_exception(reply)
        else:
            self._reply.set_result(reply)
        for _ in range(5):  # the service takes the answer before the test goes on
            await asyncio.sleep(0)


async def play(timing: JwksTiming) -> None:
    provider, clock = Provider(), HandClock()
    keys = JwksKeys(provider.fetch, JwtRules(), clock, timing)
    service = asyncio.ensure_future(keys.run(lambda: None))
    try:
        with pytest.raises(UnknownKey):
            keys.validate(token(OLD))
        await provider.answer(document(OLD))
        assert keys.validate(token(OLD)).subject == "alice"

        # A token of a new key asks for a fetch: once within the pause.
        clock.ms += timing.on_demand_pause_ms
        for _ in range(3):
            with pytest.raises(UnknownKey):
                keys.validate(token(NEW))
        await provider.answer(document(OLD, NEW))
        assert keys.validate(token(NEW)).subject == "alice"
        asked = provider.count

        # Forged key ids within the pause ask for nothing.
        stranger = RSAKey.generate_key(2048, {"kid": "x"}, auto_kid=False)
        with pytest.raises(UnknownKey):
            keys.validate(token(stranger))
        await asyncio.sleep(0)
        assert provider.count == asked

        # The provider is down: the last keys serve on, until they are too old.
        clock.ms += timing.on_demand_pause_ms
        with pytest.raises(UnknownKey):
            keys.validate(token(stranger))
        await provider.answer(FetchFailed("down"))
        assert keys.validate(token(NEW)).subject == "alice"
        clock.ms += timing.max_age_ms + 1
        with pytest.raises(UnknownKey):
            keys.validate(token(NEW))
    finally:
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)


def test_keys_are_fetched_on_demand_and_outlive_an_outage() -> None:
    asyncio.run(play(JwksTiming(retry_ms=1_000_000, retry_ms_max=1_000_000)))


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}',
        json.dumps({"keys": [OctKey.import_key("secret" * 9).as_dict()]}).encode(),
        document(OLD, use="enc"),
    ],
)
def test_document_without_usable_keys_is_refused(bad: bytes) -> None:
    with pytest.raises(BadKeySet):
        parse_key_set(bad)


def test_use_of_a_key_can_be_ignored() -> None:
    assert len(parse_key_set(document(OLD, use="enc"), ignores_use=True).keys) == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://idp.example/keys",
        "ftp://idp.example/keys",
        "https://user:secret@idp.example/keys",
        "https:///keys",
        "gopher://localhost/",
        "",
    ],
)
def test_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
            return
        body = b"x" * (2 * 1024 * 1024) if self.path == "/huge" else document(OLD)
        self.send_response(200 if self.path != "/none" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def provider() -> Iterator[tuple[str, trustme.CA]]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_port}", authority
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_are_fetched_over_https_with_the_given_trust(
    provider: tuple[str, trustme.CA], tmp_path: Path
) -> None:
    url, authority = provider
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    assert fetch(HttpRequest(url=f"{url}/keys"), trusting) == document(OLD)
    with pytest.raises(FetchFailed, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(HttpRequest(url=f"{url}/keys"), ssl.create_default_context())
    for path, message in (("/none", "404"), ("/moved", "302"), ("/huge", "longer")):
        with pytest.raises(FetchFailed, match=message):
            fetch(HttpRequest(url=url + path), trusting)
    file = tmp_path / "keys.json"
    file.write_bytes(document(NEW))
    assert fetch(HttpRequest(url=file.as_uri()), None, allows_file=True) == document(NEW)
