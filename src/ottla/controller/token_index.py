"""Delegation tokens by password and by owner.

A password is never stored: it is computed from the token's id, which takes microseconds. So each
is computed once, when the token is first seen, and a request finds its token in a dictionary, as in
Kafka. The index follows the image that it is asked about; it is derived from it, and can be
dropped at any time.
"""

import hmac
from collections import Counter
from collections.abc import Mapping

from ottla.config.values import Password
from ottla.metadata.access import DelegationToken
from ottla.metadata.image import Image


def token_hmac(secret: Password, token_id: str) -> bytes:
    """Return the password of a token."""
    return hmac.digest(secret.reveal().encode(), token_id.encode(), "sha512")


class TokenIndex:
    """The tokens of the image that was last asked about."""

    def __init__(self) -> None:
        self._secret: Password | None = None
        self._tokens: Mapping[str, DelegationToken] | None = None
        self._ids: dict[bytes, str] = {}
        self._passwords: dict[str, bytes] = {}
        self._owners: Counter[str] = Counter()

    def find(self, image: Image, secret: Password, password: bytes) -> DelegationToken | None:
        """Return the token with a password."""
        self._follow(image, secret)
        token_id = self._ids.get(password)
        return None if token_id is None else image.delegation_tokens[token_id]

    def count_of(self, image: Image, secret: Password, owner: str) -> int:
        """Return how many tokens a principal owns."""
        self._follow(image, secret)
        return self._owners[owner]

    def _follow(self, image: Image, secret: Password) -> None:
        """Add the tokens that are new in the image, and remove those that are gone."""
        tokens = image.delegation_tokens
        if self._tokens is tokens and self._secret is secret:
            return
        if self._secret is not secret:
            self._ids.clear()
            self._passwords.clear()
            self._secret = secret
        for token_id in [each for each in self._passwords if each not in tokens]:
            del self._ids[self._passwords.pop(token_id)]
        for token_id in tokens:
            if token_id not in self._passwords:
                password = self._passwords[token_id] = token_hmac(secret, token_id)
                self._ids[password] = token_id
        self._owners = Counter(token.owner for token in tokens.values())
        self._tokens = tokens
