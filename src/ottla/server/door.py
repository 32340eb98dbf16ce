"""What stands before a connection: may it come in, must it wait, does it speak TLS.

The first protocol of every accepted socket. It counts the connection (`Admission`), holds one
back that came too fast, and does the TLS handshake; only then a `Connection` takes over. So a
flood is turned away before it costs a handshake, and nobody else waits for one that must wait.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.runtime.ports import Address
from ottla.server.admission import Admission, Admitted, Refusal
from ottla.server.connection import Connection, Serving
from ottla.server.dispatch import printable

log = logging.getLogger(__name__)

TLS_HANDSHAKE_S: Final = 30.0
TLS_SHUTDOWN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Entrance:
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
        self._entrance = entrance
        self._transport: asyncio.Transport
        self._place: Admitted | None = None
        self.peer = Address("unknown", 0)
        self._wait: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count, refuse, hold back or let in."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        serving = self._entrance.serving
        name = transport.get_extra_info("peername")
        if name:  # None where the peer has gone already
            self.peer = Address(*name[:2])
        now = serving.clock.monotonic()
        decision = self._entrance.admission.admit(self.peer.host, serving.listener, now)
        if isinstance(decision, Refusal):
            serving.events.connection_refused(serving.listener, decision.value)
            transport.abort()
            return
        self._place = decision
        self._entrance.came(self)
        serving.events.connection_opened(serving.listener)
        if decision.delay_ms == 0 and self._entrance.tls is None:
            self._let_in(transport)
            return
        # Neither its bytes nor its end are looked at until its time has come.
        transport.pause_reading()
        loop = asyncio.get_running_loop()
        self._wait = loop.call_later(decision.delay_ms / 1000, self._waited)

    def data_received(self, data: bytes) -> None:
        """Never: nothing is read before somebody is let in."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone before it was let in."""
        if self._wait is not None:
            self._wait.cancel()
        self._leave("before it was served")

    def shut(self) -> None:
        """Close a connection that nobody serves yet."""
        self._transport.abort()

    def _waited(self) -> None:
        if self._transport.is_closing():
            return
        if self._entrance.tls is None:
            self._let_in(self._transport)
            self._transport.resume_reading()
        else:
            tasks = self._entrance.serving.tasks
            tasks.create_task(self._start_tls(self._entrance.tls))

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        connection = self._connection()
        try:
            secured = await loop.start_tls(
                self._transport,
                connection,
                context,
                server_side=True,
                ssl_handshake_timeout=TLS_HANDSHAKE_S,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except OSError as error:
            log.warning(
                "tls handshake failed listener=%s peer=%s reason=%s",
                *(self._entrance.serving.listener, self.peer, printable(str(error))),
            )
            self._entrance.serving.events.bad_bytes(self._entrance.serving.listener)
            self._transport.abort()
            self._leave("tls handshake failed")
        except asyncio.CancelledError:
            self._transport.abort()
            self._leave("stopped")
            raise
        else:
            assert secured is not None
            self._begin(connection, secured)

    def _let_in(self, transport: asyncio.Transport) -> None:
        connection = self._connection()
        transport.set_protocol(connection)
        self._begin(connection, transport)

    def _connection(self) -> Connection:
        return Connection(self._entrance.serving, self.peer, self._ended)

    def _begin(self, connection: Connection, transport: asyncio.Transport) -> None:
        if self._place is not None:
            self.connection = connection
        connection.connection_made(transport)

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
