"""Logs a connection in by SASL: SaslHandshake, then SaslAuthenticate until both sides agree."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

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

_Made = TypeVar("_Made")


async def log_in(
    credentials: Credentials, address: str, send: Callable[[Message], Awaitable[Message]]
) -> int:
    """Log in; return the lifetime of the session in milliseconds, 0 for no end.

    Raises:
        LoginFailed: the server refused, or did not prove itself; the message holds no secret.
    """
    chosen = await send(SaslHandshakeRequest(credentials.mechanism))
    assert isinstance(chosen, SaslHandshakeResponse)
    if chosen.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        raise LoginFailed(f"{address}: {name_of_code(chosen.error_code)}")
    if chosen.error_code:
        offered = ", ".join(chosen.mechanisms) or "none"
        raise LoginFailed(
            f"{address}: {credentials.mechanism} is not enabled there; offered: {offered}"
        )
    run = _in_thread if credentials.blocks else _at_once
    challenge: bytes | None = None
    lifetime_ms = 0
    try:
        exchange = await run(partial(credentials.start, _host_of(address)))
        while (token := await run(partial(exchange.step, challenge))) is not None:
            reply = await send(SaslAuthenticateRequest(token))
            assert isinstance(reply, SaslAuthenticateResponse)
            if reply.error_code:
                raise LoginFailed(f"{address}: {reply.error_message or 'login failed'}")
            challenge, lifetime_ms = bytes(reply.auth_bytes), reply.session_lifetime_ms
    except (ScramFailed, GssFailed) as error:
        raise LoginFailed(f"{address}: {error}") from error
    return lifetime_ms


async def _at_once(work: Callable[[], _Made]) -> _Made:
    return work()


async def _in_thread(work: Callable[[], _Made]) -> _Made:
    return await asyncio.to_thread(work)


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
