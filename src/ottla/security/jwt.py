"""Signed JSON Web Tokens: whether one proves who sends it, and until when.

A token must be signed by a key of the key set with one of the asymmetric algorithms below. Neither
``none`` nor an HMAC algorithm is ever accepted, so a public key cannot be used as a secret. The
rules for its claims are in `ottla.security.jwt_claims`.
"""

from typing import Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from ottla.protocol.types import Millis
from ottla.security.jwt_claims import BadToken, JwtClaims, JwtRules, UnknownKey, check_claims

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
