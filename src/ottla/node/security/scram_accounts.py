"""The accounts that SCRAM logs in to: users and delegation tokens of the metadata image.

A token's password is the base64 of its HMAC under ``delegation.token.secret.key``. Its keys are
derived with the fewest iterations, once, and kept while the token is used.

An unknown user gets a challenge like most users: with the iterations and the length of the salt
that most credentials of the mechanism have. Its salt has to be the same on every node and after a
restart, or a client could tell it from a real one by asking twice. So it is derived from the
credentials of some users, which all nodes know and no client; it changes when one of those does.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Final

from ottla.config.values import Password
from ottla.controller.token_index import token_hmac
from ottla.metadata.access import ScramCredential, ScramUser
from ottla.metadata.image import Image
from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock, Random
from ottla.security.principal import USER, Principal, parse_principal
from ottla.security.sasl.scram import (
    ITERATIONS_MIN,
    Decoys,
    Keys,
    ScramAccount,
    ScramExchange,
    ScramMechanism,
    keys_of,
)

NONCE_BYTES: Final = 18
TOKEN_KEYS_MAX: Final = 10_000
DECOY_CREDENTIALS: Final = 8
"""The first credentials, by user name, of which the salts of unknown users are derived."""

Credentials = Mapping[ScramUser, ScramCredential]


class ScramAccounts:
    """Looks accounts up in the newest image."""

    def __init__(self, image: Callable[[], Image], secret: Password | None, clock: Clock) -> None:
        self._image = image
        self._secret = secret
        self._clock = clock
        self._token_keys: dict[tuple[ScramMechanism, str], Keys] = {}
        self._decoys: dict[ScramMechanism, Decoys] = {}
        self._decoys_of: object = None

    def exchange(self, mechanism: ScramMechanism, random: Random, secret: bytes) -> ScramExchange:
        """Begin a login; ``secret`` makes the salts of unknown users while there is no user."""
        nonce = base64.b64encode(random.bytes(NONCE_BYTES)).decode()

        def lookup(name: str, is_token: bool) -> ScramAccount | None:
            return self._token(mechanism, name) if is_token else self._user(mechanism, name)

        return ScramExchange(mechanism, lookup, nonce, self._decoys_for(mechanism, secret))

    def _decoys_for(self, mechanism: ScramMechanism, secret: bytes) -> Decoys:
        credentials = self._image().scram
        if self._decoys_of is not credentials:
            self._decoys_of = credentials
            self._decoys.clear()
        if mechanism not in self._decoys:
            self._decoys[mechanism] = decoys_like(credentials, mechanism, secret)
        return self._decoys[mechanism]

    def _user(self, mechanism: ScramMechanism, name: str) -> ScramAccount | None:
        found = self._image().scram.get(ScramUser(mechanism, name))
        if found is None:
            return None
        keys = Keys(found.salt, found.stored_key, found.server_key, found.iterations)
        return ScramAccount(Principal(USER, name), keys)

    def _token(self, mechanism: ScramMechanism, token_id: str) -> ScramAccount | None:
        token = self._image().delegation_tokens.get(token_id)
        if token is None or self._secret is None:
            return None
        if token.expiration_timestamp <= self._clock.now():
            return None
        keys = self._keys_of_token(mechanism, token_id, self._secret)
        owner = parse_principal(token.owner)
        return ScramAccount(owner, keys, Millis(token.expiration_timestamp), is_token=True)

    def _keys_of_token(self, mechanism: ScramMechanism, token_id: str, secret: Password) -> Keys:
        key = (mechanism, token_id)
        if key not in self._token_keys:
            if len(self._token_keys) >= TOKEN_KEYS_MAX:
                self._token_keys.clear()
            password = base64.b64encode(token_hmac(secret, token_id)).decode()
            # The password has 512 random bits: a fixed salt and few iterations cost no security.
            salt = token_id.encode()
            self._token_keys[key] = keys_of(mechanism, password, salt, ITERATIONS_MIN)
        return self._token_keys[key]


def decoys_like(credentials: Credentials, mechanism: ScramMechanism, secret: bytes) -> Decoys:
    """Return how challenges of unknown users look beside these credentials.

    ``secret`` counts only while there are none.
    """
    known = hashlib.sha512(b"" if credentials else secret)
    for user in nsmallest(DECOY_CREDENTIALS, credentials, key=lambda user: user[::-1]):
        found = credentials[user]
        known.update(found.salt + found.stored_key + found.server_key)
    looks = Counter(
        (found.iterations, len(found.salt))
        for user, found in credentials.items()
        if user.mechanism == mechanism
    )
    if not looks:
        return Decoys(known.digest())
    most = max(looks, key=lambda look: (looks[look], look))
    return Decoys(known.digest(), *most)
