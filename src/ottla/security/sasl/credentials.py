"""What a client logs in with, whatever the mechanism."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class LoginFailed(ConnectionError):
    """A server refused the login, or is not the one it claims to be."""


class SaslClient(Protocol):
    """One login."""

    def step(self, challenge: bytes | None) -> bytes | None:
        """Return the token that answers a challenge, first of all None; None when done.

        Raises:
            ScramFailed: the server did not prove itself.
        """
        ...


class Credentials(msgspec.Struct, frozen=True):
    """How a client logs in: ``start`` begins a login, each time anew."""

    mechanism: str
    start: Callable[[], SaslClient]

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, hidden)"
