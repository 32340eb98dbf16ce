"""The interface for authentication of a connection.

A listener without an authenticator serves all clients as ``User:ANONYMOUS``. Otherwise each
connection gets its own from the listener's factory. Until the authenticator knows the principal
(`Lifecycle.AUTHENTICATING`),

- a frame may not be longer than ``frame_bytes_max``,
- one request is served at a time.

It says of every request whether it is served (`Treatment`), and serves SaslHandshake and
SaslAuthenticate itself, also after the login: clients may re-authenticate (KIP-368).
"""

import enum
from collections.abc import Awaitable
from typing import Final, Protocol

from ottla.api.surface.replies import Reply, Result
from ottla.api.surface.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message
from ottla.security.sasl.exchange import Login

SASL_KEYS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class Treatment(enum.Enum):
    """What to do with a request, by the state of the login."""

    SERVE = "the login allows it"
    REFUSE = "it came in the middle of a login: `Authenticator.refuse` answers it"
    CLOSE = "the connection closes without a reply"


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

    def receive(self, key: ApiKey) -> Treatment:
        """Take note of a request that has arrived, and say what to do with it."""
        ...

    def note_api_versions(self) -> None:
        """Take note that ApiVersions was answered with the versions."""
        ...

    def refuse(
        self, caller: Caller, key: ApiKey, request: Message | None, version: int
    ) -> Awaitable[Result]:
        """Answer a request that is out of order by an error, and close."""
        ...

    def handle(self, caller: Caller, request: Message, version: int) -> Reply:
        """Handle SaslHandshake or SaslAuthenticate, as the handler of a route does."""
        ...

    def take_token(self, caller: Caller, token: bytes) -> Reply:
        """Return the bytes of the frame that answers a token without a header."""
        ...
