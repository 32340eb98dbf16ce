"""The interface for authentication of a connection.

A listener without an authenticator serves all clients as ``User:ANONYMOUS``. Otherwise each
connection gets its own from the listener's factory. Until the authenticator knows the principal
(`Lifecycle.AUTHENTICATING`),

- a frame may not be longer than ``frame_bytes_max``,
- one request is served at a time, and only those it admits; others close the connection.

It always serves SaslHandshake and SaslAuthenticate, since clients may re-authenticate (KIP-368).
"""

from collections.abc import Awaitable
from typing import Final, Protocol

from ottla.api.replies import Reply, Result
from ottla.api.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message
from ottla.security.sasl.exchange import Login

SASL_KEYS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class Authenticator(Protocol):
    """Determines the principal of one connection."""

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame that is accepted before the principal is known."""
        ...

    @property
    def principal(self) -> str | None:
        """The principal of the client, None until it is authenticated."""
        ...

    @property
    def expects_token(self) -> bool:
        """Say whether the next frame is a token without a request header (SaslHandshake v0)."""
        ...

    @property
    def admits_all(self) -> bool:
        """Say whether every request may be served now."""
        ...

    @property
    def login(self) -> Login | None:
        """The login in force, None until the client is authenticated."""
        ...

    def admits(self, key: ApiKey) -> bool:
        """Say whether a request may be served now."""
        ...

    def handle(self, caller: Caller, request: Message, version: int) -> Reply:
        """Handle SaslHandshake or SaslAuthenticate, as the handler of a route does."""
        ...

    def take_token(self, caller: Caller, token: bytes) -> Result | Awaitable[Result]:
        """Return the bytes of the frame that answers a token without a header."""
        ...
