"""What stands before a connection: may it come in, must it wait, does it speak TLS.

The first protocol of every accepted socket. It counts the connection (`Admission`), holds one
back that came too fast, and has the TLS handshake done; only then a `Connection` takes over. So
a flood is turned away before it costs a handshake, and nobody waits for one that must wait.

A socket that has to wait is taken out of its transport and given a new one when its time has
come: uvloop reads from a new connection whatever its protocol says, and bytes read too early
would be lost to the handshake.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

import msgspec

from ottla.runtime.ports import Address
from ottla.server.admission import Admission, Admitted, Refusal
from ottla.server.connection import Connection
from ottla.server.dispatch import printable
from ottla.server.serving import Serving

log = logging.getLogger(__name__)

TLS_HANDSHAKE_S: Final = 30.0
TLS_SHUTDOWN_S: Final = 5.0


class Entrance(msgspec.Struct, frozen=True):
    """What all doors of one listener share. ``came`` and ``left`` keep the list of who is there."""

    serving: Serving
    admission: Admission
    tls: ssl.SSLContext | None
    came: Callable[["Door"], None]
    left: Callable[["Door"], None]


class Door(asyncio.Protocol):
    """Admits one connection, then leaves it to ``connection``, None until then."""

    def __init__(self, entrance: Entrance) -> None:
        self.connection: Connection | None = None
        self.peer = Address("unknown", 0)
        self._entrance = entrance
        self._transport: asyncio.Transport
        self._place: Admitted | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._is_detached = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count, refuse, hold back or let in."""
        # uvloop's has the shape of asyncio's and not its name, so it cannot be asked.
        self._transport = cast("asyncio.Transport", transport)
        serving = self._entrance.serving
        name = transport.get_extra_info("peername")
        if name:  # None where the peer has gone already
            self.peer = Address(*name[:2])
        now = serving.clock.monotonic()
        decision = self._entrance.admission.admit(self.peer.host, serving.listener, now)
        if isinstance(decision, Refusal):
            serving.events.connection_refused(serving.listener, decision.value)
            self._transport.abort()
            return
        self._place = decision
        self._entrance.came(self)
        serving.events.connection_opened(serving.listener)
        if decision.delay_ms == 0 and self._entrance.tls is None:
            self._let_in()
        else:
            tasks = serving.tasks
            waiting = self._let_in_later(self._detach(), decision.delay_ms / 1000)
            self._waiting = tasks.create_task(waiting)

    def data_received(self, data: bytes) -> None:
        """Never: nothing is read before somebody is let in."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone before it was let in, unless the socket lives on by itself."""
        if not self._is_detached:
            self.shut()
            self._leave("before it was served")

    def shut(self) -> None:
        """Close a connection that nobody serves yet."""
        if self._waiting is not None:
            self._waiting.cancel()
        if not self._is_detached:
            self._transport.abort()

    def _let_in(self) -> None:
        connection = self._connection()
        self._transport.set_protocol(connection)
        self.connection = connection
        connection.connection_made(self._transport)

    # -- those who wait --------------------------------------------------------

    def _detach(self) -> socket.socket | None:
        """Take the socket out of its transport; None where there is no socket (simulated)."""
        self._transport.pause_reading()
        plain = self._transport.get_extra_info("socket")
        if plain is None:
            return None
        detached = socket.socket(fileno=os.dup(plain.fileno()))
        self._is_detached = True
        self._transport.abort()
        return detached

    async def _let_in_later(self, detached: socket.socket | None, delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
            if detached is not None:
                await self._attach(detached)
            elif not self._transport.is_closing():
                self._let_in()
                self._transport.resume_reading()
        except OSError as error:
            log.warning(
                "connection failed listener=%s peer=%s reason=%s",
                *(self._entrance.serving.listener, self.peer, printable(str(error))),
            )
            self._entrance.serving.events.bad_bytes(self._entrance.serving.listener)
            self._leave("tls handshake failed")
        except asyncio.CancelledError:
            if detached is not None:
                detached.close()
            self._leave("stopped")
            raise

    async def _attach(self, detached: socket.socket) -> None:
        """Serve a socket on its own, behind a TLS handshake if there is one.

        Raises:
            OSError: the handshake failed, or the peer has gone; the socket is closed.
        """
        limits = {}
        if self._entrance.tls is not None:
            limits = {
                "ssl_handshake_timeout": TLS_HANDSHAKE_S,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_S,
            }
        loop = asyncio.get_running_loop()
        connection = self._connection()
        try:
            await loop.connect_accepted_socket(
                lambda: connection, detached, ssl=self._entrance.tls, **limits
            )
        except OSError:
            detached.close()
            raise
        if self._place is not None:  # else it has ended meanwhile
            self.connection = connection

    def _connection(self) -> Connection:
        return Connection(self._entrance.serving, self.peer, self._ended)

    def _ended(self, connection: Connection, reason: str) -> None:
        self._leave(reason)

    def _leave(self, reason: str) -> None:
        """Give the place back, once, whichever way the connection ended."""
        if self._place is None:
            return
        place, self._place = self._place, None
        self._entrance.admission.release(place)
        self._entrance.left(self)
        serving = self._entrance.serving
        serving.events.connection_closed(serving.listener, reason)
