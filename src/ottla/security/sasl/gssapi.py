"""SASL/GSSAPI (RFC 4752): Kerberos tickets, without protection of the messages after the login.

    C: tokens of the context, until both sides have it
    S: wrapped: 1 byte of layers offered, 3 bytes of the longest message
    C: wrapped: 1 byte with the layer chosen, 3 bytes, the authorization id in UTF-8

The only layer offered is "none": TLS protects the messages. What a ticket proves is decided by the
library behind `Context`; this module is the conversation around it, without I/O.
"""

import struct
from collections.abc import Callable
from typing import Final, Protocol

from ottla.security.principal import USER, Principal
from ottla.security.sasl.exchange import Challenge, Login, Rejection, Step
from ottla.security.sasl.kerberos_rules import KerberosRules, NoUserName

NAME: Final = "GSSAPI"
NO_LAYER: Final = 1
FAILED: Final = "Authentication failed: the Kerberos ticket was not accepted"
TOKEN_BYTES_MAX: Final = 64 * 1024
_OFFER: Final = struct.pack(">I", NO_LAYER << 24)


class GssFailed(ValueError):
    """A token or ticket that the library does not accept. The message is for the log."""


class Context(Protocol):
    """One security context of the library, the server's or the client's."""

    def step(self, token: bytes | None) -> bytes | None:
        """Take the peer's token; return ours, None where there is none. Raises `GssFailed`."""
        ...

    def is_complete(self) -> bool:
        """Whether both sides have proven themselves."""
        ...

    @property
    def peer(self) -> str:
        """The peer's principal, once complete."""
        ...

    def wrap(self, data: bytes) -> bytes:
        """Return a message with an integrity check. Raises `GssFailed`."""
        ...

    def unwrap(self, data: bytes) -> bytes:
        """Return the content of a message whose check is right. Raises `GssFailed`."""
        ...


class GssapiExchange:
    """The server's side."""

    def __init__(self, accept: Callable[[], Context], rules: KerberosRules) -> None:
        self._accept = accept
        self._rules = rules
        self._context: Context | None = None
        self._has_offered = False

    def step(self, token: bytes) -> Step:
        """Take a token of the context, or the client's choice of a layer."""
        if len(token) > TOKEN_BYTES_MAX:
            return Rejection(f"a GSSAPI token is longer than {TOKEN_BYTES_MAX} bytes", FAILED)
        try:
            if self._context is None:
                self._context = self._accept()
            if self._has_offered:
                return self._chosen(self._context, token)
            return self._continue(self._context, token)
        except GssFailed as error:
            return Rejection(str(error), FAILED)

    def _continue(self, context: Context, token: bytes) -> Step:
        if context.is_complete():
            # The client had nothing to answer the last token with.
            if token:
                return Rejection("a GSSAPI token came after the context was complete", FAILED)
            return self._offer(context)
        answer = context.step(token)
        if context.is_complete() and not answer:
            return self._offer(context)
        return Challenge(answer or b"")

    def _offer(self, context: Context) -> Step:
        self._has_offered = True
        return Challenge(context.wrap(_OFFER))

    def _chosen(self, context: Context, token: bytes) -> Step:
        data = context.unwrap(token)
        if len(data) < 4 or data[0] != NO_LAYER:
            return Rejection("the client chose a security layer that was not offered", FAILED)
        try:
            authorization_id = data[4:].decode()
            user = self._rules.user_of(context.peer)
        except (UnicodeDecodeError, NoUserName) as error:
            return Rejection(str(error), FAILED)
        if authorization_id not in ("", context.peer, user):
            return Rejection("the authorization id is not the principal of the ticket", FAILED)
        return Login(Principal(USER, user))


class GssapiClient:
    """The client's side."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._has_chosen = False

    def step(self, challenge: bytes | None) -> bytes | None:
        """Return the next token; None when the login is over.

        Raises:
            GssFailed: the server did not prove itself, or insists on a security layer.
        """
        context = self._context
        if not context.is_complete():
            return context.step(challenge) or b""
        if self._has_chosen:
            return None
        offered = context.unwrap(challenge or b"")
        if len(offered) != 4 or not offered[0] & NO_LAYER:
            raise GssFailed("the server insists on a security layer")
        self._has_chosen = True
        # Like Kafka's Java client: no authorization id, the ticket says who we are.
        return context.wrap(_OFFER)
