"""The seam for authentication: what a connection must settle before requests are served.

A listener without one serves everybody as ``User:ANONYMOUS``. With one, each connection gets
its own from the listener's factory, and until that knows a principal

- a frame may not be longer than ``frame_bytes_max``,
- one request is served at a time, and only those it admits (others close the connection),
- SaslHandshake and SaslAuthenticate go to it, also later, to authenticate anew (KIP-368).
"""

from typing import Final, Protocol

from ottla.api.replies import Reply, Result
from ottla.api.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message

SASL_KEYS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class Authenticator(Protocol):
    """Finds out who speaks on one connection."""

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame before the principal is known."""
        ...

    @property
    def principal(self) -> str | None:
        """Who speaks, None until that is settled."""
        ...

    @property
    def expects_token(self) -> bool:
        """Say whether the next frame is a bare token without a header (SaslHandshake v0)."""
        ...

    def admits(self, key: ApiKey) -> bool:
        """Say whether a request may be served at this point."""
        ...

    def handle(self, caller: Caller, request: Message, version: int) -> Reply:
        """Serve SaslHandshake or SaslAuthenticate, as a route's handler does."""
        ...

    def take_token(self, caller: Caller, token: bytes) -> Result:
        """Answer a bare token with the bytes of the next frame."""
        ...
