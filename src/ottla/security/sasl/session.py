"""The SASL conversation on one connection, from the server's side, with re-authentication.

    SaslHandshake v0, then bare tokens        as clients before Kafka 1.0 do
    SaslHandshake v1, then SaslAuthenticate
    later again both, before the session ends (KIP-368)

A failed login is answered and then the connection closes. A session ends ``max_reauth_ms`` after
the login, or with the credential if that is sooner; a login again must be by the same mechanism
and yield the same principal. Requests out of order are answered as by Kafka, byte for byte:

    between SaslHandshake and the last SaslAuthenticate   any other: ILLEGAL_SASL_STATE, and closes
    SaslAuthenticate before SaslHandshake                 no reply, closes
    SaslAuthenticate after the login                      ILLEGAL_SASL_STATE
    SaslHandshake again within a second of the last again, or in a session without an end: the same
    SaslHandshake again with another mechanism            accepted; the next request closes
    SaslHandshake again with one that is not enabled      no reply, closes
"""

import enum
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock
from ottla.security.sasl.exchange import Exchange, Login, Mechanisms, Rejection, Step

REAUTHENTICATION_PAUSE_MS: Final = 1000
"""The least time between two logins on one connection; an earlier attempt is refused."""


class SaslState(enum.Enum):
    """How far the conversation is."""

    NEW = "no login yet, and none under way"
    UNDER_WAY = "a handshake was answered, and its login has not ended"
    DOOMED = "a login again by another mechanism: its first token closes"
    LOGGED_IN = "the session is in force"
    EXPIRED = "the session has ended: only a new login may be served"


# A name of the module: CPython 3.11 looks up a member of an enum class in Python code.
_LOGGED_IN: Final = SaslState.LOGGED_IN


class SaslReply(msgspec.Struct, frozen=True):
    """What to send, and whether the connection closes after it.

    ``failure`` is the reason for the log where a login failed, ``login`` a login that succeeded.
    """

    body: SaslHandshakeResponse | SaslAuthenticateResponse | bytes
    close: bool = False
    failure: str | None = None
    login: Login | None = None


class SaslSession:
    """Who is logged in on a connection, until when, and the login under way."""

    def __init__(self, mechanisms: Mechanisms, clock: Clock, max_reauth_ms: int = 0) -> None:
        self._mechanisms = mechanisms
        self._clock = clock
        self._max_reauth_ms = max_reauth_ms
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._renewed_at: Millis | None = None
        self._refusal: str | None = None
        self._login_mechanism = ""
        self.login: Login | None = None
        self.ends_at: Millis | None = None
        """Monotonic time at which the session ends; None for never."""
        self.expects_bare_token = False

    @property
    def mechanism(self) -> str:
        """The mechanism of the login that is in force; empty before the first."""
        return self._login_mechanism

    @property
    def requested_mechanism(self) -> str:
        """The mechanism of the last handshake; empty where none was accepted yet."""
        return self._mechanism

    @property
    def is_expired(self) -> bool:
        """Whether the session has ended: only a new login may be served."""
        return self.ends_at is not None and self._clock.monotonic() >= self.ends_at

    @property
    def is_under_way(self) -> bool:
        """Whether a handshake was answered and its login has not ended yet."""
        return self._exchange is not None or self._refusal is not None

    @property
    def state(self) -> SaslState:
        """How far the conversation is."""
        if self._refusal is not None:
            return SaslState.DOOMED
        if self._exchange is not None:
            return SaslState.UNDER_WAY
        if self.login is None:
            return SaslState.NEW
        return SaslState.EXPIRED if self.is_expired else _LOGGED_IN

    def handshake(self, request: SaslHandshakeRequest, version: int) -> SaslReply:
        """Choose the mechanism and begin a login; none is under way."""
        assert not self.is_under_way, "refused before: it is out of order"
        offered = list(self._mechanisms)
        if self.login is not None and not self._may_renew():
            return SaslReply(SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))
        make = self._mechanisms.get(request.mechanism)
        if make is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            body = SaslHandshakeResponse(code, offered) if self.login is None else b""
            failure = f"SASL mechanism {request.mechanism[:100]!r} is not enabled"
            return SaslReply(body, close=True, failure=failure)
        if self.login is not None:
            self._renewed_at = self._clock.monotonic()
        self._mechanism = request.mechanism
        self.expects_bare_token = version == 0
        if self.login is not None and request.mechanism != self._login_mechanism:
            self._refusal = (
                f"SASL mechanism '{request.mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._login_mechanism}'"
            )
        else:
            self._exchange = make()
        return SaslReply(SaslHandshakeResponse(ErrorCode.NONE, offered))

    def authenticate(
        self, request: SaslAuthenticateRequest, version: int
    ) -> SaslReply | Awaitable[SaslReply]:
        """Take a token of the login under way."""
        if not self.is_under_way:
            assert self.login is not None, "not admitted before: it is out of order"
            message = "SaslAuthenticate request received after successful authentication"
            return SaslReply(SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message, b""))
        return self._advance(bytes(request.auth_bytes), self._replied)

    def bare_token(self, token: bytes) -> SaslReply | Awaitable[SaslReply]:
        """Take a token that is a frame of its own."""
        return self._advance(token, self._bare)

    def _may_renew(self) -> bool:
        """Whether the client may log in again: its session ends, and it has not just begun to."""
        if self.ends_at is None:
            return False
        last = self._renewed_at
        return last is None or self._clock.monotonic() - last >= REAUTHENTICATION_PAUSE_MS

    def _advance(
        self, token: bytes, reply: Callable[[Step], SaslReply]
    ) -> SaslReply | Awaitable[SaslReply]:
        if self._exchange is None:
            assert self._refusal is not None, "a login is under way"
            return SaslReply(b"", close=True, failure=self._refusal)
        step = self._exchange.step(token)
        if isinstance(step, Awaitable):
            return _then(step, lambda found: reply(self._settle(found)))
        return reply(self._settle(step))

    def _settle(self, step: Step) -> Step:
        """Take note of a login that ended; return it, or why it is refused after all."""
        if isinstance(step, Login):
            step = self._accept(step)
        if isinstance(step, (Login, Rejection)):
            self._exchange = self._refusal = None
            self.expects_bare_token = False
        return step

    def _accept(self, login: Login) -> Step:
        if self.login is not None and login.principal != self.login.principal:
            old, new = self.login.principal, login.principal
            message = (
                "Cannot change principals during re-authentication from "
                f"{old.type}.{old.name}: {new.type}.{new.name}"
            )
            return Rejection(message, message)
        lifetime = self._lifetime_ms(login)
        if login.expires_at is not None and lifetime == 0:
            return Rejection("the credential has expired", "The credential has expired")
        self.login, self._login_mechanism = login, self._mechanism
        self.ends_at = Millis(self._clock.monotonic() + lifetime) if lifetime else None
        return login

    def _lifetime_ms(self, login: Login) -> int:
        """Return how long the session lasts; 0 for ever, or for a credential that has ended."""
        if login.expires_at is None:
            return self._max_reauth_ms
        left = max(0, login.expires_at - self._clock.now())
        return min(left, self._max_reauth_ms) if self._max_reauth_ms else left

    def _replied(self, step: Step) -> SaslReply:
        if isinstance(step, Rejection):
            login = "authentication" if self.login is None else "re-authentication"
            message = step.message or (
                f"Authentication failed during {login} due to invalid credentials with "
                f"SASL mechanism {self._mechanism}"
            )
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            body = SaslAuthenticateResponse(code, message, b"")
            return SaslReply(body, close=True, failure=step.reason)
        if not isinstance(step, Login):
            return SaslReply(SaslAuthenticateResponse(ErrorCode.NONE, "", step.token))
        lifetime = 0 if self.ends_at is None else self.ends_at - self._clock.monotonic()
        body = SaslAuthenticateResponse(ErrorCode.NONE, "", step.token, lifetime)
        return SaslReply(body, login=step)

    def _bare(self, step: Step) -> SaslReply:
        if isinstance(step, Rejection):
            return SaslReply(b"", close=True, failure=step.reason)
        return SaslReply(step.token, login=step if isinstance(step, Login) else None)


_Found = TypeVar("_Found")
_Made = TypeVar("_Made")


async def _then(found: Awaitable[_Found], make: Callable[[_Found], _Made]) -> _Made:
    return make(await found)
