"""Opaque bearer tokens, verified by asking the server that issued them (RFC 7662).

    POST url   Authorization: Basic id:secret   token=TOKEN&token_type_hint=access_token
    200        {"active": true, "sub": "alice", "exp": 1800000000, "scope": "kafka", ...}

A token is accepted if the reply says that it is active and its claims keep the same rules as those
of a signed token. Replies are cached for a short time, never longer than the token is valid: a
token that its issuer revokes is refused at the latest after ``cache_ms``. At most ``asked_max``
requests are under way and as many wait; a login above that fails at once.
"""

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock
from ottla.security.http_fetch import FetchFailed, HttpRequest
from ottla.security.jwt import TOKEN_BYTES_MAX
from ottla.security.jwt_claims import BadToken, JwtClaims, JwtRules, check_claims

CACHE_ENTRIES_MAX: Final = 10_000
ASKED_MAX: Final = 8
WAITING_MAX: Final = 64


class IntrospectionServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where to ask, and as which client. Its text hides the secret."""

    url: str
    client_id: str
    client_secret: str
    timeout_ms: int = 5_000

    def __repr__(self) -> str:
        return f"IntrospectionServer({urlsplit(self.url).hostname}, hidden)"


def introspection_request(server: IntrospectionServer, token: str) -> HttpRequest:
    """Return the request about a token; id and secret are encoded as RFC 6749 asks."""
    user, secret = quote(server.client_id, safe=""), quote(server.client_secret, safe="")
    return HttpRequest(
        url=server.url,
        headers={
            "Authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        body=urlencode({"token": token, "token_type_hint": "access_token"}).encode(),
        timeout_s=server.timeout_ms / 1000,
    )


def check_reply(document: bytes, rules: JwtRules, now: Millis) -> JwtClaims:
    """Return what the reply says of a token. Raises `BadToken`."""
    try:
        found = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadToken("the introspection endpoint did not answer with JSON") from error
    if not isinstance(found, dict):
        raise BadToken("the introspection endpoint did not answer with an object")
    if found.get("active") is not True:
        raise BadToken("the token is not active")
    return check_claims(found, rules, now)


class TokenIntrospection:
    """Validates tokens by ``ask``, which sends one request and returns the reply."""

    def __init__(
        self,
        ask: Callable[[str], Awaitable[bytes]],
        rules: JwtRules,
        clock: Clock,
        cache_ms: int,
    ) -> None:
        self._ask = ask
        self._rules = rules
        self._clock = clock
        self._cache_ms = cache_ms
        # By the hash of the token, so that tokens are not kept; oldest first.
        self._cache: OrderedDict[bytes, tuple[JwtClaims, Millis]] = OrderedDict()
        self._permits = asyncio.Semaphore(ASKED_MAX)
        self._waiting = 0

    def validate(self, token: str) -> JwtClaims | Awaitable[JwtClaims]:
        """Return what a token says, from the cache or after a request.

        Raises:
            BadToken: not active, expired, not for us, or its issuer cannot be asked.
        """
        if len(token) > TOKEN_BYTES_MAX:
            raise BadToken(f"the token is longer than {TOKEN_BYTES_MAX} bytes")
        key = hashlib.sha256(token.encode()).digest()
        cached = self._cache.get(key)
        if cached is not None and self._clock.now() < cached[1]:
            return cached[0]
        if self._waiting >= ASKED_MAX + WAITING_MAX:
            raise BadToken("too many tokens are being verified")
        return self._verify(token, key)

    async def _verify(self, token: str, key: bytes) -> JwtClaims:
        self._waiting += 1
        try:
            async with self._permits:
                document = await self._ask(token)
        except FetchFailed as error:
            raise BadToken(f"the token could not be verified: {error}") from error
        finally:
            self._waiting -= 1
        now = self._clock.now()
        claims = check_reply(document, self._rules, now)
        self._remember(key, claims, Millis(min(now + self._cache_ms, claims.expires_at)))
        return claims

    def _remember(self, key: bytes, claims: JwtClaims, until: Millis) -> None:
        if self._cache_ms == 0:
            return
        self._cache.pop(key, None)
        while len(self._cache) >= CACHE_ENTRIES_MAX:
            self._cache.popitem(last=False)
        self._cache[key] = (claims, until)
