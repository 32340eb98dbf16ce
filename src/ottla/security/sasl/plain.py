"""SASL/PLAIN (RFC 4616): user name and password in one token.

    token = [authzid] NUL authcid NUL password        UTF-8

The authorization id must be empty or equal to the user: nobody logs in as somebody else.
"""

import hmac
from collections.abc import Callable
from typing import Final

from ottla.security.principal import USER, Principal
from ottla.security.sasl.exchange import Login, Rejection, Step

NAME: Final = "PLAIN"
FAILED: Final = "Authentication failed: Invalid username or password"


class PlainExchange:
    """The server's side. ``password_of`` returns None for an unknown user."""

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        self._password_of = password_of

    def step(self, token: bytes) -> Step:
        """Check the one token that there is."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            return Rejection("PLAIN token is not UTF-8", "Invalid SASL/PLAIN token")
        if len(parts) != 3:
            message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            return Rejection(message, message)
        authorization_id, user, password = parts
        for name, value in (("username", user), ("password", password)):
            if not value:
                message = f"Authentication failed: {name} not specified"
                return Rejection(message, message)
        expected = self._password_of(user)
        # The comparison runs for unknown users too, so that both cases take the same time.
        matches = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not matches:
            return Rejection(f"wrong user name or password for {user[:100]!r}", FAILED)
        if authorization_id not in ("", user):
            message = (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
            return Rejection(message, message)
        return Login(Principal(USER, user))


def client_token(user: str, password: str) -> bytes:
    """Return the client's token."""
    return f"\0{user}\0{password}".encode()
