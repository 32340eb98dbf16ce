"""SASL on a connection: maps SaslHandshake and SaslAuthenticate to a `SaslSession`.

The reply to a failed login, and the close after it, are delayed by
``connection.failed.authentication.delay.ms``, so that passwords cannot be tried quickly.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from ottla.api.replies import NO_REPLY, Answer, Body, Reply, Result
from ottla.api.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Message
from ottla.security.sasl.exchange import Login
from ottla.security.sasl.session import SaslReply, SaslSession
from ottla.server.authenticator import SASL_KEYS
from ottla.server.events import ServerEvents

log = logging.getLogger(__name__)

API_VERSIONS_MAX: Final = 10
"""ApiVersions requests before the first login. Clients send one, or a few to find a version;
Kafka serves one."""


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
        """Say whether any request may be served: the session has not ended."""
        session = self._session
        return session.login is not None and not session.is_expired

    def admits(self, key: ApiKey) -> bool:
        """Say whether a request may be served now."""
        if self._session.login is None:
            return key in SASL_KEYS or self._takes_api_versions(key)
        return key in SASL_KEYS or not self._session.is_expired

    def _takes_api_versions(self, key: ApiKey) -> bool:
        if key is not ApiKey.API_VERSIONS or self._api_versions_left == 0:
            return False
        self._api_versions_left -= 1
        return True

    def handle(self, caller: Caller, request: Message, version: int) -> Reply:
        """Handle SaslHandshake or SaslAuthenticate."""
        if isinstance(request, SaslHandshakeRequest):
            return self._settle(caller, self._session.handshake(request, version))
        assert isinstance(request, SaslAuthenticateRequest), "no other API is routed here"
        return self._settle(caller, self._session.authenticate(request, version))

    def take_token(self, caller: Caller, token: bytes) -> Result | Awaitable[Result]:
        """Answer a token without a header."""
        return self._settle(caller, self._session.bare_token(token))

    def _settle(
        self, caller: Caller, reply: SaslReply | Awaitable[SaslReply]
    ) -> Result | Awaitable[Result]:
        if not isinstance(reply, SaslReply):
            return self._wait(caller, reply)
        if reply.failure is None:
            return self._answer(caller, reply)
        return self._delay(caller, reply)

    async def _wait(self, caller: Caller, reply: Awaitable[SaslReply]) -> Result:
        settled = self._settle(caller, await reply)
        return await settled if isinstance(settled, Awaitable) else settled

    async def _delay(self, caller: Caller, reply: SaslReply) -> Result:
        self._events.login_failed(caller.listener, self._session.requested_mechanism)
        log.info(
            "login failed listener=%s peer=%s mechanism=%s reason=%s",
            *(caller.listener, caller.peer, self._session.requested_mechanism, reply.failure),
        )
        await asyncio.sleep(self._failure_delay_ms / 1000)
        return self._answer(caller, reply)

    def _answer(self, caller: Caller, reply: SaslReply) -> Result:
        if reply.login is not None:
            self._events.logged_in(caller.listener, self._session.mechanism)
        body: Body = (reply.body,) if isinstance(reply.body, bytes) else reply.body
        if not reply.close:
            return body
        return Answer(NO_REPLY if body == (b"",) else body, close=True)
