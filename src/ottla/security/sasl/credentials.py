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
            ScramFailed, GssFailed: the server did not prove itself.
        """
        ...


class Credentials(msgspec.Struct, frozen=True):
    """How a client logs in: ``start`` begins a login at a host, each time anew.

    With ``blocks``, ``start`` and the steps may wait for another server; they run on a thread.
    ``newest`` returns those to use instead, if they may have been replaced since.
    """

    mechanism: str
    start: Callable[[str], SaslClient]
    blocks: bool = False
    newest: "Callable[[], Credentials] | None" = None

    def current(self) -> "Credentials":
        """Return the credentials of a login that begins now."""
        return self if self.newest is None else self.newest()

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, hidden)"
