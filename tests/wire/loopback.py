"""Real sockets for tests: run a scenario on asyncio's own loop or on uvloop."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

import uvloop

from ottla.runtime.ports import Address

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(loop: str, main: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(main, 60))


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's own time limit bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event to offer
        await asyncio.sleep(0.005)


def bound(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    """A socket that somebody else has bound."""
    sock = socket.socket(family)
    sock.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
    return sock


class PlainClient:
    """A blocking-free raw socket: what it does not read stays in the kernel."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def to(cls, address: Address, receive_buffer: int = 0) -> "PlainClient":
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (address.host, address.port))
        return cls(sock)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = await self._loop.sock_recv(self.sock, min(1 << 20, length - len(parts)))
            if not part:
                raise ConnectionResetError(f"ended after {len(parts)} bytes")
            parts += part
        return bytes(parts)

    async def frame(self) -> bytes:
        length = int.from_bytes(await self.exactly(4), "big", signed=True)
        return await self.exactly(length)

    async def is_closed(self) -> bool:
        """Wait for the end; True when nothing but the end came."""
        try:
            return await self._loop.sock_recv(self.sock, 1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.sock.close()
