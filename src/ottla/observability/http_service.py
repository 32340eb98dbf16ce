"""Serves /metrics, /healthz, /readyz and /groups/NAME/explain on a separate address.

Small on purpose: a few pages need no web framework. A connection without a complete request for
`IDLE_S` is closed. There are at most `CONNECTIONS_MAX` connections: one more takes the place of the
connection that has waited longest for a request, or the longest at all. So idle connections cannot
keep a probe of /healthz out, which would have the node killed.
"""

import asyncio
import base64
import hmac
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, cast

from ottla.observability.http import (
    END,
    HEAD_BYTES_MAX,
    BadRequest,
    Get,
    Page,
    SlicedPage,
    parse,
    plain,
    response,
    response_head,
)
from ottla.runtime import system_calls
from ottla.runtime.ports import Address, Listener, Network

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 75.0
HANDSHAKE_S: Final = 10.0
SLICE_S: Final = 0.004
"""How long a page may be made before other work of the node goes on."""

AnyPage = Page | SlicedPage
OPEN_PAGES: Final = frozenset({"/healthz", "/readyz"})
"""Pages for probes, which rarely have credentials; they show nothing but the state of the node."""


_FAILED: Final = plain(503, "internal error; see the log of the node")


class SocketNetwork(Protocol):
    """A network that also accepts on a socket bound by the caller."""

    async def listen_on(
        self, sock: socket.socket, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Accept on a bound socket."""
        ...


class Credentials:
    """What a client may send to be served: a user with a password, a bearer token, or either."""

    def __init__(self, user: str | None, password: str | None, token: str | None) -> None:
        self._accepted: list[tuple[bytes, bytes]] = []
        if user is not None and password is not None:
            pair = base64.b64encode(f"{user}:{password}".encode())
            self._accepted.append((b"basic", pair))
        if token is not None:
            self._accepted.append((b"bearer", token.encode()))

    def admit(self, authorization: bytes) -> bool:
        """Say whether a header proves one of them; every comparison takes the same time."""
        scheme, _, given = authorization.partition(b" ")
        return any(
            [
                hmac.compare_digest(given.strip(), wanted) and scheme.lower() == name
                for name, wanted in self._accepted
            ]
        )


class HttpService:
    """`Service` that is ready once it is bound. ``pages`` are rendered for every request.

    ``trees`` serve all pages below a path and get the rest of the path. If a page raises, the
    error is logged, and the client gets 503 without details. A `SlicedPage` is made a little in
    each iteration of the event loop.

    ``tls`` returns the context of a handshake that begins now; None serves plain HTTP.
    ``credentials`` None admits all; otherwise only `OPEN_PAGES` are served without them.
    """

    name = "metrics"

    def __init__(
        self,
        network: Network,
        where: Address,
        pages: Mapping[str, Callable[[], AnyPage]],
        *,
        bound: socket.socket | None = None,
        trees: Mapping[str, Callable[[str], Page]] = MappingProxyType({}),
        tls: Callable[[], ssl.SSLContext] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._network = network
        self._where = where
        self._pages = pages
        self._trees = trees
        self._tls = tls
        self._credentials = credentials
        self._tasks: asyncio.TaskGroup | None = None
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first
        self._bound = bound
        self._open: dict[_Connection, None] = {}  # the one that has waited longest is first
        self.address: Address | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled.

        Raises:
            OSError: the address cannot be bound.
        """
        listener = await self._listen()
        try:
            async with asyncio.TaskGroup() as self._tasks:  # cancels handshakes when it ends
                self.address = listener.address
                log.info("metrics served address=%s", listener.address)
                ready()
                await asyncio.get_running_loop().create_future()
        finally:
            await listener.close()
            for connection in list(self._open):
                connection.end()

    async def _listen(self) -> Listener:
        if self._bound is None:
            return await self._network.listen(self._where, self._accept)
        network = cast(SocketNetwork, self._network)
        return await network.listen_on(self._bound, self._accept)

    def _accept(self) -> asyncio.BaseProtocol:
        return self._connection() if self._tls is None else _Detaching(self._encrypt)

    def _connection(self) -> "_Connection":
        return _Connection(self._open, self._page)

    def _encrypt(self, plain: socket.socket) -> None:
        """Begin a handshake; the oldest of too many ends."""
        tasks = self._tasks
        if tasks is None:
            plain.close()
            return
        if len(self._handshakes) >= CONNECTIONS_MAX:
            next(iter(self._handshakes)).cancel()
        task = tasks.create_task(self._handshake(plain))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _handshake(self, plain: socket.socket) -> None:
        assert self._tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection, plain, ssl=self._tls(), ssl_handshake_timeout=HANDSHAKE_S
            )
        except Exception as error:  # noqa: BLE001 - one bad handshake must not stop the service
            log.info("tls handshake failed listener=metrics reason=%s", error)
            plain.close()
        except asyncio.CancelledError:
            plain.close()
            raise

    def _page(self, request: Get) -> AnyPage:
        path = request.path
        if path not in OPEN_PAGES and not self._admits(request):
            return plain(401, "authentication required")
        page = self._pages.get(path) or self._below(path)
        if page is None:
            return plain(404, "no such page; available: " + " ".join(sorted(self._pages)))
        try:
            return page()
        except Exception:
            log.exception("page failed path=%s", path)
            return _FAILED

    def _admits(self, request: Get) -> bool:
        return self._credentials is None or self._credentials.admit(request.authorization)

    def _below(self, path: str) -> Callable[[], AnyPage] | None:
        for root, tree in self._trees.items():
            if path.startswith(root):
                return partial(tree, path.removeprefix(root))
        return None


class _Detaching(asyncio.Protocol):
    """Takes an accepted socket from its transport before anything is read, for the handshake."""

    def __init__(self, accept: Callable[[socket.socket], None]) -> None:
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        bare = cast("asyncio.Transport", transport)
        bare.pause_reading()
        try:
            detached = system_calls.duplicate_socket(bare.get_extra_info("socket"))
        except OSError as error:  # out of file descriptors
            log.warning("connection refused listener=metrics reason=%s", error)
        else:
            self._accept(detached)
        bare.abort()


class _Connection(asyncio.Protocol):
    """The connection of one HTTP client."""

    def __init__(self, others: "dict[_Connection, None]", page: Callable[[Get], AnyPage]) -> None:
        self._others = others
        self._page = page
        self._received = bytearray()
        self._transport: asyncio.Transport
        self._idle: asyncio.TimerHandle | None = None
        self._slice: asyncio.Handle | None = None  # of the page that is being made
        self._unsent: deque[bytes] = deque()  # pieces of the page that is being sent
        self._keeps_alive = True  # after that page
        self._may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._others) >= CONNECTIONS_MAX:
            waiting = (each for each in self._others if not each.is_busy())
            next(waiting, next(iter(self._others))).end()
        self._others[self] = None
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self.is_busy() and len(self._received) > HEAD_BYTES_MAX:
            self._transport.pause_reading()
        self._serve()

    def _serve(self) -> None:
        """Answer the complete requests, one after the other; other work goes on after `SLICE_S`.

        A client may send thousands of requests in one piece.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + SLICE_S
        while (at := self._received.find(END)) >= 0 and self._may_answer():
            if loop.time() >= until:
                self._transport.pause_reading()
                self._slice = loop.call_soon(self._serve_others)
                return
            head = bytes(self._received[:at])
            del self._received[: at + len(END)]
            self._answer(BadRequest(431) if len(head) > HEAD_BYTES_MAX else parse(head))
        if len(self._received) > HEAD_BYTES_MAX and self._may_answer():
            self._answer(BadRequest(431))

    def _serve_others(self) -> None:
        """Go on with the requests that the last slice has left."""
        self._slice = None
        self._serve_next()
        if not self.is_busy() and self._may_write:
            self._transport.resume_reading()

    def _may_answer(self) -> bool:
        return self._may_write and not self.is_busy() and not self._transport.is_closing()

    def is_busy(self) -> bool:
        """Say whether a page is being made or sent."""
        return self._slice is not None or bool(self._unsent)

    def _answer(self, request: Get | BadRequest) -> None:
        if isinstance(request, BadRequest):
            text = "only GET and HEAD requests without a body are supported"
            self._transport.write(response(plain(request.status, text), keeps_alive=False))
            self._transport.close()
            return
        page = self._page(request)
        if isinstance(page, SlicedPage):
            self._make_slice(request, page, [])
        else:
            self._send(request, page)

    def _make_slice(self, request: Get, page: SlicedPage, made: list[bytes]) -> None:
        """Make the page for `SLICE_S`, and then go on in the next iteration or send it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SLICE_S
        try:
            for piece in page.pieces:
                made.append(piece)
                if loop.time() >= until:
                    self._slice = loop.call_soon(self._make_slice, request, page, made)
                    return
        except Exception:
            log.exception("page failed path=%s", request.path)
            page, made = SlicedPage(_FAILED.content_type, iter(())), [_FAILED.body]
            status = _FAILED.status
        else:
            status = 200
        self._slice = None
        self._keeps_alive = request.keeps_alive
        size = sum(map(len, made))
        head = response_head(status, page.content_type, size, keeps_alive=request.keeps_alive)
        self._unsent.append(head)
        if not request.is_head:
            self._unsent.extend(made)
        self._send_pieces()

    def _send_pieces(self) -> None:
        """Send pieces as the client reads them: copying a page of megabytes at once takes long."""
        while self._unsent and self._may_write and not self._transport.is_closing():
            self._transport.write(self._unsent.popleft())
        if self._unsent or self._transport.is_closing():
            return
        if not self._keeps_alive:
            self._transport.close()
            return
        self._wait()
        if self._may_write:
            self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._serve_next)

    def _serve_next(self) -> None:
        """Serve what was received while a page was made and sent."""
        if not self._transport.is_closing():
            self._serve()

    def _send(self, request: Get, page: Page) -> None:
        keeps = request.keeps_alive
        self._transport.write(response(page, keeps_alive=keeps, is_head=request.is_head))
        if keeps:
            self._wait()
        else:
            self._transport.close()

    def pause_writing(self) -> None:
        """Stop reading requests while the client does not read its responses."""
        self._may_write = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._may_write = True
        if self._unsent:
            self._send_pieces()
        else:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._serve_next)

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.pop(self, None)
        self._unsent.clear()
        for timer in (self._idle, self._slice):
            if timer is not None:
                timer.cancel()

    def end(self) -> None:
        self._others.pop(self, None)
        self._transport.abort()

    def _wait(self) -> None:
        if self._others.pop(self, self) is None:
            self._others[self] = None  # it has sent a request: it is the last one to go
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.end)
