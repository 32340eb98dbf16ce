"""The client's side of a login, for every mechanism, and the credentials it is made of.

Credentials come from Kafka's client properties: ``sasl.mechanism`` and ``sasl.jaas.config``.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Final

from ottla.runtime.ports import Random
from ottla.security.jaas import LoginModule, parse_jaas
from ottla.security.sasl import oauthbearer, plain
from ottla.security.sasl.credentials import Credentials, SaslClient
from ottla.security.sasl.scram import ScramClient, ScramMechanism

NONCE_BYTES: Final = 18
_SCRAM: Final = {str(each): each for each in ScramMechanism}
MECHANISMS: Final = (plain.NAME, *_SCRAM, oauthbearer.NAME)


class BadCredentials(ValueError):
    """Login settings that cannot be used; the message names keys and no values."""


class _OneToken:
    """A login that sends one token and accepts whatever empty answer follows."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return self._token
        # OAUTHBEARER: a server that says why it refuses waits for this before it fails.
        return b"\x01" if challenge else None


class _Scram:
    def __init__(self, client: ScramClient) -> None:
        self._client = client
        self._is_final = False

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return self._client.first()
        if self._is_final:
            self._client.verify(challenge)
            return None
        self._is_final = True
        return self._client.final(challenge)


def password_credentials(
    mechanism: str, user: str, password: str, random: Random, *, is_token: bool = False
) -> Credentials:
    """Return credentials of a user and a password, or of a delegation token.

    Raises:
        BadCredentials: not a mechanism with passwords.
    """
    if mechanism == plain.NAME:
        return Credentials(mechanism, lambda _: _OneToken(plain.client_token(user, password)))
    scram = _SCRAM.get(mechanism)
    if scram is None:
        raise BadCredentials(f"{mechanism} does not log in with a password")

    def start(_: str) -> SaslClient:
        nonce = base64.b64encode(random.bytes(NONCE_BYTES)).decode()
        return _Scram(ScramClient(scram, user, password, nonce, is_token=is_token))

    return Credentials(mechanism, start)


def token_credentials(token: Callable[[], str]) -> Credentials:
    """Return credentials of a bearer token, which is asked for at each login."""
    return Credentials(oauthbearer.NAME, lambda _: _OneToken(oauthbearer.client_first(token())))


def credentials_from(mechanism: str, jaas: str | None, random: Random) -> Credentials:
    """Return the credentials of a JAAS configuration, for mechanisms with passwords.

    Raises:
        BadCredentials: the mechanism is unknown, or user and password are missing. BadJaas.
    """
    if mechanism not in MECHANISMS:
        raise BadCredentials(
            f"sasl.mechanism={mechanism} is not supported; use one of {', '.join(MECHANISMS)}"
        )
    if jaas is None:
        raise BadCredentials(f"sasl.mechanism={mechanism} needs sasl.jaas.config")
    return _from_module(mechanism, parse_jaas(jaas)[0], random)


def _from_module(mechanism: str, module: LoginModule, random: Random) -> Credentials:
    options: Mapping[str, str] = module.options
    if "username" not in options or "password" not in options:
        raise BadCredentials("sasl.jaas.config must set username and password")
    is_token = options.get("tokenauth", "").lower() == "true"
    return password_credentials(
        mechanism, options["username"], options["password"], random, is_token=is_token
    )
