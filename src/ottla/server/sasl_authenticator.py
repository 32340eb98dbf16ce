"""SASL on a connection: maps SaslHandshake and SaslAuthenticate to a `SaslSession`.

`TREATMENTS` is what happens to every request, by the state of the login, as in Kafka.

The reply to a failed login, and the close after it, are delayed by
``connection.failed.authentication.delay.ms``, so that passwords cannot be tried quickly.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.api.surface.replies import NO_REPLY, Answer, Body, Reply, Result, Work, paced
from ottla.api.surface.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Message
from ottla.runtime.pending import Pending
from ottla.security.sasl.exchange import Login
from ottla.security.sasl.session import SaslReply, SaslSession, SaslState
from ottla.server.authenticator import Treatment
from ottla.server.events import ServerEvents

log = logging.getLogger(__name__)

# Kafka's text of the error, for the one API of clients whose error replies repeat it.
_ILLEGAL_STATE: Final = "Request is not valid given the current SASL state."
API_VERSIONS_MAX: Final = 10
"""ApiVersions requests before the first login. As in Kafka one is answered with the versions;
before it, a few may fail, because a client has to find a version that is supported."""


# A name of the module: CPython 3.11 looks up a member of an enum class in Python code.
_LOGGED_IN: Final = SaslState.LOGGED_IN
_SERVE, _REFUSE, _CLOSE = Treatment.SERVE, Treatment.REFUSE, Treatment.CLOSE
_COLUMNS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, None)
TREATMENTS: Final[Mapping[SaslState, Mapping[ApiKey | None, Treatment]]] = MappingProxyType(
    {
        state: dict(zip(_COLUMNS, row, strict=True))
        for state, row in {
            # SaslHandshake, SaslAuthenticate, ApiVersions, every other API
            SaslState.NEW: (_SERVE, _CLOSE, _SERVE, _CLOSE),
            SaslState.UNDER_WAY: (_REFUSE, _SERVE, _REFUSE, _REFUSE),
            SaslState.DOOMED: (_CLOSE, _SERVE, _CLOSE, _CLOSE),
            SaslState.LOGGED_IN: (_SERVE, _SERVE, _SERVE, _SERVE),
            SaslState.EXPIRED: (_SERVE, _CLOSE, _CLOSE, _CLOSE),
        }.items()
    }
)


class SaslAuthenticator:
    """`Authenticator` of one connection of a SASL listener."""

    def __init__(
        self,
        session: SaslSession,
        events: ServerEvents,
        *,
        frame_bytes_max: int,
        failure_delay_ms: int,
    ) -> None:
        self._session = session
        self._events = events
        self._frame_bytes_max = frame_bytes_max
        self._failure_delay_ms = failure_delay_ms
        self._api_versions_left = API_VERSIONS_MAX

    @property
    def frame_bytes_max(self) -> int:
        """``sasl.server.max.receive.size``."""
        return self._frame_bytes_max

    @property
    def principal(self) -> str | None:
        """The principal that is logged in, None before the first login."""
        return None if self._session.login is None else str(self._session.login.principal)

    @property
    def login(self) -> Login | None:
        """The login in force, None before the first."""
        return self._session.login

    @property
    def expects_token(self) -> bool:
        """Say whether the next frame is a token without a request header (SaslHandshake v0)."""
        return self._session.expects_bare_token

    @property
    def admits_all(self) -> bool:
        """Say whether any request may be served: the session has not ended, and no login began."""
        return self._session.state is _LOGGED_IN

    def receive(self, key: ApiKey) -> Treatment:
        """Say what to do with a request; ApiVersions before the login are counted."""
        state = self._session.state
        if state is SaslState.NEW and key is ApiKey.API_VERSIONS:
            if self._api_versions_left == 0:
                return Treatment.CLOSE
            self._api_versions_left -= 1
        row = TREATMENTS[state]
        return row.get(key, row[None])

    def note_api_versions(self) -> None:
        """Take note that ApiVersions was answered with the versions; before the login once."""
        self._api_versions_left = 0

    async def refuse(
        self, caller: Caller, key: ApiKey, request: Message | None, version: int
    ) -> Result:
        """Answer a request that is out of order by ILLEGAL_SASL_STATE, and close."""
        from ottla.api.surface.error_reply import error_reply_steps  # few requests fail

        self._fail(caller, f"{key.title} during SASL authentication")
        code = ErrorCode.ILLEGAL_SASL_STATE
        text = _ILLEGAL_STATE if key is ApiKey.FIND_COORDINATOR else None
        steps = error_reply_steps(key, version, request, code, text)
        body: Message | None = await paced(steps)
        await self._hold_back()
        return Answer(NO_REPLY if body is None else body, close=True)

    def handle(self, caller: Caller, request: Message, version: int) -> Reply:
        """Handle SaslHandshake or SaslAuthenticate."""
        if isinstance(request, SaslHandshakeRequest):
            return self._settle(caller, self._session.handshake(request, version))
        assert isinstance(request, SaslAuthenticateRequest), "no other API is routed here"
        return self._settle(caller, self._session.authenticate(request, version))

    def take_token(self, caller: Caller, token: bytes) -> Reply:
        """Answer a token without a header."""
        return self._settle(caller, self._session.bare_token(token))

    def _settle(self, caller: Caller, reply: SaslReply | Awaitable[SaslReply]) -> Reply:
        if not isinstance(reply, SaslReply):
            return Work(self._wait(caller, reply))
        if reply.failure is None:
            return self._answer(caller, reply)
        return Work(self._delay(caller, reply))

    async def _wait(self, caller: Caller, reply: Awaitable[SaslReply]) -> Result:
        settled = self._settle(caller, await reply)
        return await settled if isinstance(settled, Pending) else settled

    async def _delay(self, caller: Caller, reply: SaslReply) -> Result:
        self._fail(caller, reply.failure)
        await self._hold_back()
        return self._answer(caller, reply)

    async def _hold_back(self) -> None:
        await asyncio.sleep(self._failure_delay_ms / 1000)

    def _fail(self, caller: Caller, reason: str | None) -> None:
        self._events.login_failed(caller.listener, self._session.requested_mechanism)
        log.info(
            "login failed listener=%s peer=%s mechanism=%s reason=%s",
            *(caller.listener, caller.peer, self._session.requested_mechanism, reason),
        )

    def _answer(self, caller: Caller, reply: SaslReply) -> Result:
        if reply.login is not None:
            self._events.logged_in(caller.listener, self._session.mechanism)
        body: Body = (reply.body,) if isinstance(reply.body, bytes) else reply.body
        if not reply.close:
            return body
        return Answer(NO_REPLY if body == (b"",) else body, close=True)
