"""The keys of an identity provider, kept fresh in the background.

The first fetch happens at once, then one every ``refresh_ms``. A token with an unknown key asks for
a fetch before that, but not more often than ``on_demand_pause_ms``, so forged key ids cannot make
the broker flood the provider. While the provider cannot be reached the last keys serve on, up to
``max_age_ms``; failed fetches are tried again with a doubling pause.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock
from ottla.security.http_fetch import FetchFailed
from ottla.security.jwt import validate
from ottla.security.jwt_claims import JwtClaims, JwtRules, UnknownKey

log = logging.getLogger(__name__)

KEYS_MAX: Final = 1000


class JwksTiming(msgspec.Struct, frozen=True, kw_only=True):
    """When keys are fetched; all in milliseconds."""

    refresh_ms: int = 3_600_000
    on_demand_pause_ms: int = 10_000
    retry_ms: int = 100
    retry_ms_max: int = 10_000
    max_age_ms: int = 24 * 3_600_000


class BadKeySet(ValueError):
    """A document that is not a key set."""


def parse_key_set(document: bytes, *, ignores_use: bool = False) -> KeySet:
    """Read a key set; keys that are not for signatures are left out unless ``ignores_use``.

    Other members, and keys that cannot be read, are left out, too (RFC 7517): a provider may add
    a key of a new kind, and logins with the others go on.

    Raises:
        BadKeySet: not a JSON Web Key Set, or one without a usable public key.
    """
    try:
        found = msgspec.json.decode(document, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadKeySet("the document is not a JSON Web Key Set") from error
    usable = [
        key
        for member in found.keys[:KEYS_MAX]
        if isinstance(member, dict)
        and member.get("kty") in ("RSA", "EC", "OKP")
        and (ignores_use or member.get("use", "sig") == "sig")
        for key in _imported(member)
    ]
    if not usable:
        raise BadKeySet("the key set has no public key for signatures")
    return KeySet(usable)


class _Document(msgspec.Struct):
    keys: list[object]


def _imported(member: dict[str, object]) -> list[Key]:
    """Return a key as a list of one, empty if it cannot be read."""
    try:
        key_set = KeySet.import_key_set({"keys": [member]})  # type: ignore[list-item]
    except (JoseError, ValueError, KeyError, TypeError, UnsupportedAlgorithm):
        return []
    return list(key_set.keys)


class JwksKeys:
    """Service: fetches the keys; also validates tokens with the newest ones."""

    name = "jwks"

    def __init__(
        self,
        fetch: Callable[[], Awaitable[bytes]],
        rules: JwtRules,
        clock: Clock,
        timing: JwksTiming | None = None,
        *,
        ignores_use: bool = False,
    ) -> None:
        self._fetch = fetch
        self._rules = rules
        self._clock = clock
        self._timing = timing or JwksTiming()
        self._ignores_use = ignores_use
        self._keys: KeySet | None = None
        self._fetched_at: Millis | None = None
        self._asked_at: Millis | None = None
        self._wake = asyncio.Event()

    @property
    def fetched_at(self) -> Millis | None:
        """Monotonic time of the last successful fetch."""
        return self._fetched_at

    def validate(self, token: str) -> JwtClaims:
        """Return what a token says.

        Raises:
            BadToken: see `ottla.security.jwt.validate`; an unknown key asks for a fetch.
        """
        try:
            return validate(token, self._usable(), self._rules, self._clock.now())
        except UnknownKey:
            self._ask()
            raise

    def _usable(self) -> KeySet | None:
        now = self._clock.monotonic()
        if self._fetched_at is None or now - self._fetched_at > self._timing.max_age_ms:
            return None
        return self._keys

    def _ask(self) -> None:
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= self._timing.on_demand_pause_ms:
            self._asked_at = now
            self._wake.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Fetch until cancelled. Ready after the first attempt, whatever came of it."""
        failures = 0
        is_ready = False
        while True:
            self._wake.clear()
            failures = 0 if await self._refresh() else failures + 1
            if not is_ready:
                is_ready = True
                ready()
            timing = self._timing
            wait_ms = timing.refresh_ms
            if failures:
                wait_ms = min(timing.retry_ms * 2 ** min(failures, 30), timing.retry_ms_max)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> bool:
        try:
            keys = parse_key_set(await self._fetch(), ignores_use=self._ignores_use)
        except (FetchFailed, BadKeySet) as error:
            log.warning("keys not fetched reason=%s; the last ones stay in use", error)
            return False
        self._keys = keys
        self._fetched_at = self._clock.monotonic()
        return True
