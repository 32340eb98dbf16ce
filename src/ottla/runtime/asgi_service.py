"""Serves an ASGI application by uvicorn, on the event loop that runs already."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.runtime.ports import Address

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol
else:
    try:
        from ottla.runtime.asgi_parsing import BoundedHttpTools as HttpProtocol
    except ImportError:  # slower, and does the same
        from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol

log = logging.getLogger(__name__)

CERTIFICATE: Final = "ottla.certificate"
"""The key of the scope with the certificate of a TLS client, in DER; None without one."""
CONNECTIONS_MAX: Final = 1_000
KEEP_ALIVE_S: Final = 75
HEAD_S: Final = 30
"""How long a client may take to send the head of a request, or what is left of a rejected one."""
SEND_S: Final = 60
"""How long a client may leave a reply unread."""
STOP_S: Final = 5

Tls = Callable[[], ssl.SSLContext]
"""Returns the context of a handshake that begins now."""


class _Connection(HttpProtocol):
    """Tells the application which certificate the client has shown, and bounds connections.

    uvicorn limits requests and idle time between them, not connections that send nothing, heads
    that are sent byte by byte, or replies that are not read. The application limits bodies.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - uvloop's differ
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._bound_head()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app = _WithCertificate(self.app, tls.getpeercert(binary_form=True))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _cancel(self._head_timer)
        _cancel(self._send_timer)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._bound_head()

    def _bound_head(self) -> None:
        """Bound the time from the first byte to a request that the application answers."""
        if self._is_answering():
            _cancel(self._head_timer)
            self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._close_if_slow)

    def _close_if_slow(self) -> None:
        self._head_timer = None
        if not self._is_answering():
            self.transport.abort()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._send_timer)
        self._send_timer = self.loop.call_later(SEND_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._send_timer)
        self._send_timer = None


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class _WithCertificate:
    def __init__(self, app: Any, certificate: bytes | None) -> None:  # noqa: ANN401 - ASGI
        self._app = app
        self._certificate = certificate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, CERTIFICATE: self._certificate}, receive, send)


class _Server(uvicorn.Server):
    """A server that leaves the signals of its process alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepts = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets=sockets)
        self.accepts.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class AsgiService:
    """`Service`: serves HTTP on a copy of a bound socket. ``name`` is that of the service."""

    def __init__(
        self, name: str, app: ASGIApp, bound: socket.socket, tls: Tls | None = None
    ) -> None:
        self.name = name
        self._app = app
        self._bound = bound
        self._tls = tls
        host, port = bound.getsockname()[:2]
        self.address = Address(str(host), int(port))

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled; then open requests have `STOP_S` to end."""
        config = uvicorn.Config(
            self._app,
            http=_Connection,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a header must not choose the host that ACLs see
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S,
        )
        config.load()
        # One line per bad request would be the client's to write.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        if self._tls is not None:
            config.ssl = _newest(self._tls)
        server = _Server(config)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[self._bound.dup()]))
            try:
                await server.accepts.wait()
                scheme = "http" if self._tls is None else "https"
                log.info("%s served url=%s://%s", self.name, scheme, self.address)
                ready()
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                # Before the task group cancels it: open requests end, and the socket is closed.
                server.should_exit = True
                await asyncio.shield(serving)
                raise


def _newest(tls: Tls) -> ssl.SSLContext:
    """Return a context whose handshakes use the newest certificates."""

    def use_newest(connection: Any, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ANN401 - SSLObject or SSLSocket
        connection.context = tls()

    context = tls()
    context.sni_callback = use_newest
    return context
