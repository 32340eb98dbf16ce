"""Signed JSON Web Tokens: whether one proves who sends it, and until when.

A token must be signed by a key of the key set with one of the asymmetric algorithms below, name a
subject, and not have expired. Neither ``none`` nor an HMAC algorithm is ever accepted, so a public
key cannot be used as a secret. Expected issuer and audience are checked where configured.

Times in claims are seconds since 1970.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from ottla.protocol.types import Millis

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
TOKEN_BYTES_MAX: Final = 64 * 1024
KEY_ID_LENGTH_MAX: Final = 256


class BadToken(ValueError):
    """A token that proves nothing. The message never contains the token."""


class UnknownKey(BadToken):
    """The key set has no key of this id: a newer key set may have it."""


class JwtRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say. ``audiences``: at least one of them, if any is given."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: int = 30


class JwtClaims(msgspec.Struct, frozen=True):
    """What a valid token says: who, until when (wall time), and its scopes."""

    subject: str
    expires_at: Millis
    scopes: frozenset[str]


def validate(token: str, keys: KeySet | None, rules: JwtRules, now: Millis) -> JwtClaims:
    """Return what a token says.

    Raises:
        UnknownKey: its key is not in the key set, or there is no key set yet.
        BadToken: malformed, wrongly signed, expired, or not for us.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise BadToken(f"the token is longer than {TOKEN_BYTES_MAX} bytes")
    payload = _verified(token, keys)
    try:
        claims = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadToken("the token's claims are not JSON") from error
    if not isinstance(claims, dict):
        raise BadToken("the token's claims are not an object")
    return check_claims(claims, rules, now)


def _verified(token: str, keys: KeySet | None) -> bytes:
    """Return the payload of a token whose signature is right."""
    try:
        header = jws.extract_compact(token.encode("ascii")).headers()
    except (JoseError, ValueError, UnicodeEncodeError) as error:
        raise BadToken("the token is not a signed JWT") from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise BadToken(f"the token is signed with {str(algorithm)[:20]!r}, which is not accepted")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > KEY_ID_LENGTH_MAX):
        raise BadToken("the token's key id is not a short text")
    if keys is None:
        raise UnknownKey("there are no keys to check tokens with yet")
    known = {key.kid for key in keys.keys}
    if key_id is None and len(keys.keys) != 1:
        raise BadToken("the token names no key id")
    if key_id is not None and key_id not in known:
        raise UnknownKey(f"there is no key {key_id[:60]!r}")
    try:
        return jws.deserialize_compact(token, keys, algorithms=list(ALGORITHMS)).payload
    except (JoseError, ValueError) as error:
        raise BadToken("the token's signature is wrong") from error


def check_claims(claims: Mapping[str, Any], rules: JwtRules, now: Millis) -> JwtClaims:
    """Check the claims of a token whose signature is right, or of an unsecured one."""
    seconds, skew = now / 1000, rules.clock_skew_s
    expires = _time(claims, "exp")
    if expires is None:
        raise BadToken("the token does not say when it expires")
    if seconds >= expires + skew:
        raise BadToken("the token has expired")
    not_before, issued = _time(claims, "nbf"), _time(claims, "iat")
    if not_before is not None and seconds < not_before - skew:
        raise BadToken("the token is not valid yet")
    if issued is not None and seconds < issued - skew:
        raise BadToken("the token was issued in the future")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise BadToken("the token is of another issuer")
    if rules.audiences and not _texts(claims.get("aud")) & set(rules.audiences):
        raise BadToken("the token is for another audience")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise BadToken(f"the token has no claim {rules.subject_claim!r}")
    return JwtClaims(subject, Millis(int(expires * 1000)), _scopes(claims.get(rules.scope_claim)))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise BadToken(f"the token's claim {name!r} is not a time")
    return float(value)


def _texts(value: object) -> set[str]:
    items = value if isinstance(value, list) else [value]
    return {each for each in items if isinstance(each, str)}


def _scopes(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(value.split())
    return frozenset(_texts(value))
