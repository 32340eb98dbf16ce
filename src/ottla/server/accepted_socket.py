"""Admission, delay and TLS handshake of an accepted socket.

`AcceptedSocket` is the first protocol of every accepted socket. It counts the connection
(`Admission`), delays one above a rate limit, and runs the TLS handshake; then a `Connection` takes
over. So connections above a limit are rejected before they cost a handshake, and a delayed one does
not delay others.

The socket of a delayed connection is detached from its transport and gets a new one after the
delay: uvloop reads from a new connection even if its protocol pauses reading, and the handshake
would miss bytes that were read too early.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

import msgspec

from ottla.runtime import system_calls
from ottla.runtime.host_address import peer_address
from ottla.runtime.ports import Address
from ottla.security.tls_alerts import alert_of
from ottla.server.admission import Admission, Admitted, ExceededLimit
from ottla.server.connection import Connection
from ottla.server.dispatch import printable
from ottla.server.listener_context import ListenerContext

log = logging.getLogger(__name__)

TLS_HANDSHAKE_S: Final = 30.0
TLS_SHUTDOWN_S: Final = 5.0
ALERT_WAIT_S: Final = 1.0
ALERT_READS_MAX: Final = 16
ALERT_READ_BYTES: Final = 16 * 1024


class AcceptContext(msgspec.Struct, frozen=True):
    """Objects that the accepted sockets of one listener share.

    ``on_admitted`` and ``on_closed`` maintain the listener's list of connections.
    """

    listener: ListenerContext
    admission: Admission
    tls: Callable[[], ssl.SSLContext] | None
    on_admitted: Callable[["AcceptedSocket"], None]
    on_closed: Callable[["AcceptedSocket"], None]


class AcceptedSocket(asyncio.Protocol):
    """Admits one socket, then hands it over to ``connection``, which is None until then."""

    def __init__(self, context: AcceptContext) -> None:
        self.connection: Connection | None = None
        self.peer = Address("unknown", 0)
        self._context = context
        self._transport: asyncio.Transport
        self._place: Admitted | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._is_detached = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection; reject, delay or serve it."""
        # uvloop's transport has asyncio's methods but does not inherit from its class.
        self._transport = cast("asyncio.Transport", transport)
        listener = self._context.listener
        name = transport.get_extra_info("peername")
        if not name:
            # The peer has reset the connection. Requests that it sent before could still be read,
            # and without an address they would pass entries that deny it.
            self._transport.abort()
            return
        self.peer = peer_address(name)
        now = listener.clock.monotonic()
        decision = self._context.admission.admit(self.peer.host, listener.name, now)
        if isinstance(decision, ExceededLimit):
            listener.events.connection_refused(listener.name, decision.value)
            self._transport.abort()
            return
        self._place = decision
        self._context.on_admitted(self)
        listener.events.connection_opened(listener.name)
        if decision.is_refused:
            listener.events.connection_refused(listener.name, ExceededLimit.RATE.value)
        if decision.delay_ms == 0 and self._context.tls is None:
            self._serve()
        else:
            tasks = listener.tasks
            try:
                detached = self._detach()
            except OSError as error:  # out of file descriptors
                log.warning("connection refused listener=%s reason=%s", listener.name, error)
                self.close()
                return
            waiting = self._serve_later(detached, decision.delay_ms / 1000)
            self._waiting = tasks.create_task(waiting)

    def data_received(self, data: bytes) -> None:
        """Never called: nothing is read before a `Connection` takes over."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Release a connection that closed before it was served; a detached socket stays open."""
        if not self._is_detached:
            self.close()
            self._release("before it was served")

    def close(self) -> None:
        """Close a socket that is not served yet."""
        if self._waiting is not None:
            self._waiting.cancel()
        if not self._is_detached:
            self._transport.abort()

    def _serve(self) -> None:
        connection = self._connection()
        self._transport.set_protocol(connection)
        self.connection = connection
        connection.connection_made(self._transport)

    # -- delayed connections and TLS -------------------------------------------

    def _detach(self) -> socket.socket | None:
        """Detach the socket from its transport; None if there is no socket (simulation)."""
        self._transport.pause_reading()
        plain = self._transport.get_extra_info("socket")
        if plain is None:
            return None
        detached = system_calls.duplicate_socket(plain)
        self._is_detached = True
        self._transport.abort()
        return detached

    async def _serve_later(self, detached: socket.socket | None, delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
            if self._place is not None and self._place.is_refused:
                self._refuse(detached)
            elif detached is not None:
                await self._attach(detached)
            elif not self._transport.is_closing():
                self._serve()
                self._transport.resume_reading()
        except ConnectionResetError as error:
            # The peer closed during the handshake: a probe of the port, or a client that gave up.
            name = self._context.listener.name
            log.debug("connection closed listener=%s peer=%s reason=%r", name, self.peer, error)
            self._release("tls handshake failed")
        except Exception as error:  # noqa: BLE001 - one bad handshake must not stop the server
            log.warning(
                "connection failed listener=%s peer=%s reason=%s",
                *(self._context.listener.name, self.peer, printable(str(error) or repr(error))),
            )
            self._context.listener.events.bad_bytes(self._context.listener.name)
            self._release("tls handshake failed")
        except asyncio.CancelledError:
            if detached is not None:
                detached.close()
            self._release("stopped")
            raise

    def _refuse(self, detached: socket.socket | None) -> None:
        """Close a connection above a rate limit, after its delay."""
        if detached is not None:
            detached.close()
        else:
            self._transport.abort()
        self._release(ExceededLimit.RATE.value)

    async def _attach(self, detached: socket.socket) -> None:
        """Give a detached socket a transport, after a TLS handshake if TLS is configured.

        Raises:
            OSError: the handshake failed, or the peer has closed; the socket is closed.
        """
        tls, limits = None, {}
        if self._context.tls is not None:
            tls = self._context.tls()
            limits = {
                "ssl_handshake_timeout": TLS_HANDSHAKE_S,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_S,
            }
        loop = asyncio.get_running_loop()
        connection = self._connection()
        # The loop closes its socket when a handshake fails; the alert goes out by this one.
        second = None if tls is None else detached.dup()
        try:
            await loop.connect_accepted_socket(lambda: connection, detached, ssl=tls, **limits)
        except Exception as error:
            detached.close()
            connection.discard()
            if second is not None and (alert := alert_of(error)):
                await _send_alert(second, alert)
            raise
        finally:
            if second is not None:
                second.close()
        if self._place is not None:  # else it has closed in the meantime
            self.connection = connection

    def _connection(self) -> Connection:
        return Connection(self._context.listener, self.peer, self._ended)

    def _ended(self, connection: Connection, reason: str) -> None:
        self._release(reason)

    def _release(self, reason: str) -> None:
        """Uncount the connection, once, however it was closed."""
        if self._place is None:
            return
        place, self._place = self._place, None
        self._context.admission.release(place)
        self._context.on_closed(self)
        listener = self._context.listener
        listener.events.connection_closed(listener.name, reason)


async def _send_alert(sock: socket.socket, alert: bytes) -> None:
    """Send an alert and wait for the client to close, or for a second.

    What the client has sent in the meantime is read and dropped: to close with unread bytes would
    reset the connection, and the client would not see the alert.
    """
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    try:
        async with asyncio.timeout(ALERT_WAIT_S):
            await loop.sock_sendall(sock, alert)
            sock.shutdown(socket.SHUT_WR)
            for _ in range(ALERT_READS_MAX):
                if not await loop.sock_recv(sock, ALERT_READ_BYTES):
                    break
    except (OSError, TimeoutError):
        pass  # the client has gone, or does not read
