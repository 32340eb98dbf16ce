"""What a SASL mechanism is to a server: tokens in; challenges, a login or a rejection out."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from ottla.protocol.types import Millis
from ottla.security.principal import Principal


class Challenge(msgspec.Struct, frozen=True):
    """The exchange goes on: the client answers this token."""

    token: bytes


class Login(msgspec.Struct, frozen=True):
    """The exchange succeeded; ``token`` is the last thing the client receives."""

    principal: Principal
    token: bytes = b""
    expires_at: Millis | None = None
    """Wall time at which the credential itself ends, such as a token's; None for never."""
    is_token_authenticated: bool = False
    """Whether a delegation token stood for the principal: it may not create or renew tokens."""


class Rejection(msgspec.Struct, frozen=True):
    """The exchange failed.

    ``reason`` is for the log; ``message`` goes to the client and says no more than it may know.
    """

    reason: str
    message: str = ""


Step: TypeAlias = Challenge | Login | Rejection


class Exchange(Protocol):
    """One login with one mechanism. A step may have to wait, such as for an introspection."""

    def step(self, token: bytes) -> Step | Awaitable[Step]:
        """Take the client's next token. Never called after a `Login` or a `Rejection`."""
        ...


Mechanisms: TypeAlias = Mapping[str, Callable[[], Exchange]]
"""The mechanisms of a listener by name, in the order in which they are offered."""
