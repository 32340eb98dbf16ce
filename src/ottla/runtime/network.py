"""TCP through the running event loop, behind the `Network` port.

Small replies leave at once (``TCP_NODELAY``), and a peer that has silently gone is
noticed: keepalive on an idle connection, ``TCP_USER_TIMEOUT`` on one with data under way.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from ottla.runtime.ports import Address, Listener

# Connections the kernel holds until they are accepted; `socket.listen.backlog.size`.
BACKLOG = 50


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """When a silent peer is given up. A half-open connection must end before a session does.

    Idle: after ``keepalive_idle_s``, then ``keepalive_count`` probes ``keepalive_interval_s``
    apart. With data unacknowledged: after ``user_timeout_ms``.
    """

    keepalive_idle_s: int = 60
    keepalive_interval_s: int = 10
    keepalive_count: int = 3
    user_timeout_ms: int = 30_000
    backlog: int = BACKLOG


class TcpNetwork:
    """`Network` over asyncio."""

    def __init__(self, settings: TcpSettings | None = None) -> None:
        self._settings = settings or TcpSettings()

    async def listen(
        self, address: Address, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Bind the first address that the host's name stands for, and accept.

        An empty host is every address of both families. One listener is one socket, so
        that port 0 means one port.
        """
        bound = await self.bind(address)
        try:
            return await self.listen_on(bound, accept)
        except BaseException:
            bound.close()
            raise

    async def listen_on(
        self, bound: socket.socket, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Accept on a socket that somebody else has bound and hands over."""
        # Linux gives an accepted socket the options of the one it came in by.
        self._set_options(bound)
        bound.setblocking(False)
        server = await asyncio.get_running_loop().create_server(
            accept, sock=bound, backlog=self._settings.backlog
        )
        return TcpListener(server)

    async def dial(
        self, address: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(connect, address.host, address.port)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self._set_options(connected)
        return transport, protocol

    async def bind(self, address: Address) -> socket.socket:
        """Bind without accepting, so that the port is known, and taken, before it is served.

        Raises:
            OSError: the address cannot be bound.
        """
        if not address.host:
            return self._bind_everywhere(address.port)
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        return _bind(socket.socket(family, kind, protocol), where, address)

    def _bind_everywhere(self, port: int) -> socket.socket:
        """Bind the wildcard of IPv6, which takes IPv4 too; without IPv6, that of IPv4."""
        address = Address("", port)
        try:
            both = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            return _bind(both, ("::", port), address)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
        return _bind(socket.socket(socket.AF_INET, socket.SOCK_STREAM), ("", port), address)

    def _set_options(self, target: socket.socket) -> None:
        if target.family not in (socket.AF_INET, socket.AF_INET6):
            return
        settings = self._settings
        target.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_NODELAY, 1),
            (socket.TCP_KEEPIDLE, settings.keepalive_idle_s),
            (socket.TCP_KEEPINTVL, settings.keepalive_interval_s),
            (socket.TCP_KEEPCNT, settings.keepalive_count),
            (socket.TCP_USER_TIMEOUT, settings.user_timeout_ms),
        ):
            target.setsockopt(socket.IPPROTO_TCP, option, value)


class TcpListener:
    """`Listener` over an asyncio server of one socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self._address = Address(host, port)

    @property
    def address(self) -> Address:
        """The address the kernel says it is bound to."""
        return self._address

    async def close(self) -> None:
        """Close the listening socket. Waits for nothing: connections have their own owners."""
        self._server.close()


def _bind(fresh: socket.socket, where: object, address: Address) -> socket.socket:
    """Bind, or close and say which address it was: the kernel's own words leave that out."""
    try:
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        fresh.bind(where)  # type: ignore[arg-type]
    except OSError as error:
        fresh.close()
        code = error.errno or errno.EINVAL
        raise OSError(code, f"cannot listen on {address}: {os.strerror(code)}") from error
    return fresh
