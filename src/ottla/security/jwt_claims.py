"""The claims of a JSON Web Token: who sends it, until when, and whether it is meant for us.

A token must name a subject and an expiry that has not passed. Expected issuer, audience and scopes
are checked where configured. Times in claims are seconds since 1970.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ottla.protocol.types import Millis


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
    required_scopes: tuple[str, ...] = ()
    clock_skew_s: int = 30


class JwtClaims(msgspec.Struct, frozen=True):
    """What a valid token says: who, until when (wall time), and its scopes."""

    subject: str
    expires_at: Millis
    scopes: frozenset[str]


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
    scopes = _scopes(claims.get(rules.scope_claim))
    if missing := set(rules.required_scopes) - scopes:
        raise BadToken(f"the token lacks the scope {min(missing)!r}")
    return JwtClaims(subject, Millis(int(expires * 1000)), scopes)


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
