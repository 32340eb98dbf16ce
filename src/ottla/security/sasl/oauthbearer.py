"""SASL/OAUTHBEARER (RFC 7628, KIP-255): a bearer token in the first message.

    C: n,[a=authzid],\\x01auth=Bearer TOKEN\\x01[key=value\\x01]...\\x01
    S: empty, or {"status":"invalid_token"} where it fails
    C: \\x01 after a failure, upon which the login ends

Values of extensions are checked for form and otherwise ignored.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from ottla.security.jwt_claims import BadToken, JwtClaims
from ottla.security.principal import USER, Principal
from ottla.security.sasl.exchange import Challenge, Login, Rejection, Step

NAME: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01\Z"
)
_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_~+/.A-Za-z0-9]+=*)\Z")

Validator: TypeAlias = Callable[[str], JwtClaims | Awaitable[JwtClaims]]
"""Returns what a token says, or raises `BadToken`; may have to ask an introspection endpoint."""


class OAuthBearerExchange:
    """The server's side."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._failure: str | None = None

    def step(self, token: bytes) -> Step | Awaitable[Step]:
        """Take the first message, or what follows a failure."""
        if self._failure is not None:
            return Rejection(self._failure, INVALID_TOKEN.decode())
        found = _FIRST.match(token)
        pairs = {} if found is None else _pairs(found["pairs"])
        bearer = _BEARER.match(pairs.get(b"auth", b""))
        if found is None or bearer is None:
            message = "Invalid OAUTHBEARER client first message"
            return Rejection(message, message)
        authorization_id = (found["authzid"] or b"").decode("ascii", "replace")
        try:
            claims = self._validator(bearer["token"].decode("ascii"))
        except BadToken as error:
            return self._failed(str(error))
        if isinstance(claims, JwtClaims):
            return self._logged_in(claims, authorization_id)
        return self._wait(claims, authorization_id)

    async def _wait(self, claims: Awaitable[JwtClaims], authorization_id: str) -> Step:
        try:
            return self._logged_in(await claims, authorization_id)
        except BadToken as error:
            return self._failed(str(error))

    def _logged_in(self, claims: JwtClaims, authorization_id: str) -> Step:
        if authorization_id not in ("", claims.subject):
            message = (
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
            return Rejection(message, message)
        return Login(Principal(USER, claims.subject), expires_at=claims.expires_at)

    def _failed(self, reason: str) -> Step:
        self._failure = reason
        return Challenge(INVALID_TOKEN)


def client_first(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """Return the client's first message."""
    pairs = "".join(f"{key}={value}\x01" for key, value in (extensions or {}).items())
    return f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()


def _pairs(data: bytes) -> dict[bytes, bytes]:
    """Return the pairs of a message; one that comes twice makes the message worthless."""
    pairs: dict[bytes, bytes] = {}
    for part in data.split(b"\x01")[:-1]:
        key, _, value = part.partition(b"=")
        if key in pairs:
            return {}
        pairs[key] = value
    return pairs
