"""Serves /metrics, /healthz, /readyz and /groups/NAME/explain on a separate address.

Small on purpose: a few pages need no web framework. A connection without a complete request for
`IDLE_S` is closed, and there are at most `CONNECTIONS_MAX` connections.
"""

import asyncio
import logging
import socket
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
    parse,
    plain,
    response,
)
from ottla.runtime.ports import Address, Listener, Network

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 75.0


class SocketNetwork(Protocol):
    """A network that also accepts on a socket bound by the caller."""

    async def listen_on(
        self, sock: socket.socket, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Accept on a bound socket."""
        ...


class HttpService:
    """`Service` that is ready once it is bound. ``pages`` are rendered for every request.

    ``trees`` serve all pages below a path and get the rest of the path. If a page raises, the
    error is logged, and the client gets 503 without details.
    """

    name = "metrics"

    def __init__(
        self,
        network: Network,
        where: Address,
        pages: Mapping[str, Callable[[], Page]],
        *,
        bound: socket.socket | None = None,
        trees: Mapping[str, Callable[[str], Page]] = MappingProxyType({}),
    ) -> None:
        self._network = network
        self._where = where
        self._pages = pages
        self._trees = trees
        self._bound = bound
        self._open: set[_Connection] = set()
        self.address: Address | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled.

        Raises:
            OSError: the address cannot be bound.
        """
        listener = await self._listen()
        self.address = listener.address
        log.info("metrics served address=%s", listener.address)
        ready()
        try:
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
        return _Connection(self._open, self._page)

    def _page(self, path: str) -> Page:
        page = self._pages.get(path) or self._below(path)
        if page is None:
            return plain(404, "no such page; available: " + " ".join(sorted(self._pages)))
        try:
            return page()
        except Exception:
            log.exception("page failed path=%s", path)
            return plain(503, "internal error; see the log of the node")

    def _below(self, path: str) -> Callable[[], Page] | None:
        for root, tree in self._trees.items():
            if path.startswith(root):
                return partial(tree, path.removeprefix(root))
        return None


class _Connection(asyncio.Protocol):
    """The connection of one HTTP client."""

    def __init__(self, others: "set[_Connection]", page: Callable[[str], Page]) -> None:
        self._others = others
        self._page = page
        self._received = bytearray()
        self._transport: asyncio.Transport
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._others) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._others.add(self)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (at := self._received.find(END)) >= 0 and not self._transport.is_closing():
            head = bytes(self._received[:at])
            del self._received[: at + len(END)]
            self._answer(BadRequest(431) if len(head) > HEAD_BYTES_MAX else parse(head))
        if len(self._received) > HEAD_BYTES_MAX:
            self._answer(BadRequest(431))

    def _answer(self, request: Get | BadRequest) -> None:
        if isinstance(request, BadRequest):
            page = plain(request.status, "only GET and HEAD requests without a body are supported")
            self._transport.write(response(page, keeps_alive=False))
            self._transport.close()
            return
        page = self._page(request.path)
        keeps = request.keeps_alive
        self._transport.write(response(page, keeps_alive=keeps, is_head=request.is_head))
        if keeps:
            self._wait()
        else:
            self._transport.close()

    def pause_writing(self) -> None:
        """Stop reading requests while the client does not read its responses."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        if self._idle is not None:
            self._idle.cancel()

    def end(self) -> None:
        self._transport.abort()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.end)
