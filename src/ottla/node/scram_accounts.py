"""The accounts that SCRAM logs in to: users and delegation tokens of the metadata image.

A token's password is the base64 of its HMAC under ``delegation.token.secret.key``. Its keys are
derived with the fewest iterations, once, and kept while the token is used.
"""

import base64
from collections.abc import Callable
from typing import Final

from ottla.config.values import Password
from ottla.controller.tokens import token_hmac
from ottla.metadata.access import ScramUser
from ottla.metadata.image import Image
from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock, Random
from ottla.security.principal import USER, Principal, parse_principal
from ottla.security.sasl.scram import (
    ITERATIONS_MIN,
    Keys,
    ScramAccount,
    ScramExchange,
    ScramMechanism,
    keys_of,
)

NONCE_BYTES: Final = 18
TOKEN_KEYS_MAX: Final = 10_000


class ScramAccounts:
    """Looks accounts up in the newest image."""

    def __init__(self, image: Callable[[], Image], secret: Password | None, clock: Clock) -> None:
        self._image = image
        self._secret = secret
        self._clock = clock
        self._token_keys: dict[tuple[ScramMechanism, str], Keys] = {}

    def exchange(self, mechanism: ScramMechanism, random: Random, secret: bytes) -> ScramExchange:
        """Begin a login; ``secret`` makes the salts of unknown users."""
        nonce = base64.b64encode(random.bytes(NONCE_BYTES)).decode()

        def lookup(name: str, is_token: bool) -> ScramAccount | None:
            return self._token(mechanism, name) if is_token else self._user(mechanism, name)

        return ScramExchange(mechanism, lookup, nonce, secret)

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
