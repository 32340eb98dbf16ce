"""TCP through the running event loop, behind the `Network` port.

Small replies are sent at once (``TCP_NODELAY``), and a peer that has disappeared is detected: by
keepalive on an idle connection, by ``TCP_USER_TIMEOUT`` on one with data in flight.

The accept loop keeps one file descriptor in reserve. When the process has run out of descriptors,
the loop frees the reserve, accepts a connection with it, closes the connection and takes the
reserve back. So clients are rejected at once instead of waiting in a backlog that the kernel keeps
reporting as ready. The loop then waits, longer each time, and logs the problem once.
"""

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.runtime import system_calls
from ottla.runtime.ports import Address, Listener
from ottla.runtime.supervisor import Running, start

log = logging.getLogger(__name__)

# Connections that the kernel queues until they are accepted; `socket.listen.backlog.size`.
BACKLOG = 50
# Connections accepted at once, before the event loop serves open ones.
ACCEPTED_PER_TURN: Final = 32
# The wait after an accept that failed for lack of resources: doubled up to the maximum.
RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 1.0
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TcpSettings(msgspec.Struct, frozen=True):
    """When to close the connection of a silent peer. This must happen before its session expires.

    Idle: after ``keepalive_idle_s``, then ``keepalive_count`` probes ``keepalive_interval_s``
    apart. With data unacknowledged: after ``user_timeout_ms``. Buffers are in bytes; None leaves
    them to the kernel, which tunes them for each connection.
    """

    keepalive_idle_s: int = 60
    keepalive_interval_s: int = 10
    keepalive_count: int = 3
    user_timeout_ms: int = 30_000
    backlog: int = BACKLOG
    send_buffer: int | None = None
    receive_buffer: int | None = None


class TcpNetwork:
    """`Network` over asyncio."""

    def __init__(self, settings: TcpSettings | None = None) -> None:
        self._settings = settings or TcpSettings()

    async def listen(
        self, address: Address, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Bind the first address that the host name resolves to, and accept.

        An empty host means every address of both families. A listener has one socket, so that
        port 0 means one port.
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
        """Accept on a socket that the caller has bound."""
        # Linux copies the options of a listening socket to the sockets it accepts.
        self._set_options(bound)
        bound.setblocking(False)
        bound.listen(self._settings.backlog)
        return TcpListener(bound, await start([_Accepting(bound, accept)]))

    async def dial(
        self, address: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the first address of the host that accepts."""
        loop = asyncio.get_running_loop()
        refused: OSError | None = None
        other: OSError | None = None
        for host in await _addresses(address):
            try:
                transport, protocol = await loop.create_connection(connect, host, address.port)
            except ConnectionRefusedError as error:
                refused = error
                continue
            except OSError as error:
                other = error
                continue
            connected = transport.get_extra_info("socket")
            if connected is not None:
                self._set_options(connected)
            return transport, protocol
        raise other or refused or OSError(errno.EADDRNOTAVAIL, f"{address} has no address")

    async def bind(self, address: Address) -> socket.socket:
        """Bind without accepting, to reserve the port before it is served.

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
        """Bind the IPv6 wildcard, which includes IPv4; without IPv6, the IPv4 wildcard."""
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
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        system_calls.set_keepalive(
            target,
            idle_s=settings.keepalive_idle_s,
            interval_s=settings.keepalive_interval_s,
            count=settings.keepalive_count,
            user_timeout_ms=settings.user_timeout_ms,
        )
        if settings.send_buffer is not None:
            target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer)
        if settings.receive_buffer is not None:
            target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)


class TcpListener:
    """`Listener` over one listening socket, which it owns, and its accept loop."""

    def __init__(self, listening: socket.socket, accepting: Running) -> None:
        self._listening = listening
        self._accepting = accepting
        host, port = listening.getsockname()[:2]
        self._address = Address(host, port)

    @property
    def address(self) -> Address:
        """The address that the kernel has bound."""
        return self._address

    async def close(self) -> None:
        """Close the listening socket. Open connections stay open."""
        try:
            await self._accepting.stop()
        finally:
            self._listening.close()


class _Accepting:
    """Service that accepts on one socket and creates a protocol for each connection."""

    def __init__(
        self, listening: socket.socket, accept: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        host, port = listening.getsockname()[:2]
        self.name = f"accept {Address(host, port)}"
        self._listening = listening
        self._accept = accept
        self._reserve: int | None = None
        self._failures = 0

    async def run(self, ready: Callable[[], None]) -> None:
        """Accept until cancelled."""
        self._take_reserve()
        try:
            ready()
            while True:
                try:
                    accepted = await self._accept_some()
                except OSError as error:
                    await self._after(error)
                else:
                    self._recovered()
                    await self._hand_out(accepted)
        finally:
            self._free_reserve()

    async def _accept_some(self) -> list[socket.socket]:
        """Wait for a connection; return it with others that are ready."""
        first, _ = await asyncio.get_running_loop().sock_accept(self._listening)
        accepted = [first]
        try:
            while len(accepted) < ACCEPTED_PER_TURN:
                accepted.append(self._listening.accept()[0])
        except OSError:
            pass  # none left; any other error is raised again by the next wait
        return accepted

    async def _hand_out(self, accepted: list[socket.socket]) -> None:
        if len(accepted) == 1:
            await self._serve(accepted[0])
            return
        async with asyncio.TaskGroup() as tasks:
            for each in accepted:
                tasks.create_task(self._serve(each))

    async def _serve(self, accepted: socket.socket) -> None:
        """Create the transport of a connection, unless the client has closed it already."""
        accepted.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._accept, accepted)
        except OSError as error:
            log.warning("connection not accepted reason=%s", error)
            accepted.close()
        except Exception:
            # An error in one protocol closes one connection and must not stop the accept loop.
            log.exception("connection not served")
            accepted.close()

    # -- out of resources ------------------------------------------------------

    async def _after(self, error: OSError) -> None:
        if error.errno not in _SCARCE:
            log.warning("accept failed listener=%s reason=%s", self.name, error)
            await asyncio.sleep(0)
            return
        if self._failures == 0:
            log.error(
                "accept failed listener=%s reason=%s; rejecting connections", self.name, error
            )
        self._failures += 1
        self._reject_one()
        await asyncio.sleep(min(RETRY_S * 2 ** min(self._failures, 10), RETRY_S_MAX))

    def _recovered(self) -> None:
        if self._failures:
            log.info("accepting again listener=%s failures=%d", self.name, self._failures)
            self._failures = 0
            self._take_reserve()

    def _reject_one(self) -> None:
        """Accept with the reserve descriptor, close, and take the reserve back if possible."""
        self._free_reserve()
        try:
            self._listening.accept()[0].close()
        except OSError as error:
            log.debug("no connection rejected listener=%s reason=%s", self.name, error)
        self._take_reserve()

    def _take_reserve(self) -> None:
        """Open the reserve descriptor if possible; otherwise `_recovered` tries again."""
        if self._reserve is None:
            try:
                self._reserve = system_calls.open_file(os.devnull, os.O_RDONLY)
            except OSError as error:
                log.debug("no reserve descriptor listener=%s reason=%s", self.name, error)

    def _free_reserve(self) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None


async def _addresses(address: Address) -> list[str]:
    """Return the IP addresses of a host, in the order of the resolver."""
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
        return list(dict.fromkeys(str(where[0]) for *_, where in found))
    return [address.host]


def _bind(fresh: socket.socket, where: object, address: Address) -> socket.socket:
    """Bind, or close and raise an error with the address, which the kernel's error lacks."""
    try:
        system_calls.allow_rebinding(fresh)
        fresh.bind(where)  # type: ignore[arg-type]
    except OSError as error:
        fresh.close()
        code = error.errno or errno.EINVAL
        raise OSError(code, f"cannot listen on {address}: {os.strerror(code)}") from error
    return fresh
