"""Logs a connection in by SASL: SaslHandshake, then SaslAuthenticate until both sides agree.

`converse` is the conversation without I/O. `SaslLogin` runs it on an event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from ottla.protocol.errors import ErrorCode, name_of_code
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message
from ottla.security.sasl.credentials import Credentials, LoginFailed
from ottla.security.sasl.gssapi import GssFailed
from ottla.security.sasl.scram import ScramFailed

REAUTHENTICATION_FACTOR: Final = 0.85
"""At this fraction of its session a client logs in again, as Kafka's clients do."""

MARGIN_MS: Final = 1000
"""A client logs in again at least this long before its session ends, if the session is not too
short for it: the last requests of the session may wait for a busy peer."""

_MARGIN_SHARE_MAX: Final = 0.4  # of a short session

PAUSE_MS: Final = 1010
"""The least time between two logins: a peer refuses one within a second of the last (KIP-368)."""

_Result = TypeVar("_Result")
Step: TypeAlias = Message | Callable[[], Any]
Conversation: TypeAlias = Generator[Step, Any, int]
"""Yields a request to send, and gets its reply; or a function to call, and gets its result."""


def usable_ms(lifetime_ms: int) -> int:
    """Return for how long requests may use a session that ends ``lifetime_ms`` after its login."""
    margin_ms = min(MARGIN_MS, int(lifetime_ms * _MARGIN_SHARE_MAX))
    return min(int(lifetime_ms * REAUTHENTICATION_FACTOR), lifetime_ms - margin_ms)


def converse(credentials: Credentials, address: str) -> Conversation:
    """Log in; return the lifetime of the session in milliseconds, 0 for no end.

    Raises:
        LoginFailed: the server refused, or did not prove itself; the message holds no secret.
    """
    chosen = yield SaslHandshakeRequest(credentials.mechanism)
    assert isinstance(chosen, SaslHandshakeResponse)
    if chosen.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        raise LoginFailed(f"{address}: {name_of_code(chosen.error_code)}")
    if chosen.error_code:
        offered = ", ".join(chosen.mechanisms) or "none"
        raise LoginFailed(
            f"{address}: {credentials.mechanism} is not enabled there; offered: {offered}"
        )
    challenge: bytes | None = None
    lifetime_ms = 0
    exchange = yield partial(_call, address, partial(credentials.start, _host_of(address)))
    while (token := (yield partial(_call, address, partial(exchange.step, challenge)))) is not None:
        reply = yield SaslAuthenticateRequest(token)
        assert isinstance(reply, SaslAuthenticateResponse)
        if reply.error_code:
            raise LoginFailed(f"{address}: {reply.error_message or 'login failed'}")
        challenge, lifetime_ms = bytes(reply.auth_bytes), reply.session_lifetime_ms
    return lifetime_ms


def _call(address: str, step: Callable[[], _Result]) -> _Result:
    try:
        return step()
    except (ScramFailed, GssFailed) as error:
        raise LoginFailed(f"{address}: {error}") from error


class SaslLogin:
    """A login on an event loop, which survives the cancellation of its caller.

    The peer takes no other request in the middle of a login. So the next caller of `finish` goes
    on where a cancelled one stopped.
    """

    def __init__(
        self,
        credentials: Credentials,
        address: str,
        send: Callable[[Message], Awaitable["asyncio.Future[Message]"]],
    ) -> None:
        """``send`` sends a request and returns its reply to come."""
        credentials = credentials.current()
        self._blocks = credentials.blocks
        self._send = send
        self._conversation = converse(credentials, address)
        self._step: Step = next(self._conversation)
        self._result: asyncio.Future[Any] | None = None

    async def finish(self) -> int:
        """Log in; return the lifetime of the session as `converse`. One caller at a time.

        Raises:
            LoginFailed: as `converse`. ConnectionLost: the connection closed meanwhile.
        """
        while True:
            if self._result is None:
                self._result = await self._begin(self._step)
            value = await asyncio.shield(self._result)
            self._result = None
            try:
                self._step = self._conversation.send(value)
            except StopIteration as done:
                return cast("int", done.value)

    async def _begin(self, step: Step) -> "asyncio.Future[Any]":
        if isinstance(step, Message):
            return await self._send(step)
        loop = asyncio.get_running_loop()
        if self._blocks:
            return loop.run_in_executor(None, step)
        result: asyncio.Future[Any] = loop.create_future()
        result.set_result(step())
        return result


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
