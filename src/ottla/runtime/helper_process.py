"""A child process that does heavy work for this one, with the lowest priority of the CPU.

Why a process and no thread: a thread of this priority that is preempted while it holds the
interpreter would hold up the event loop for as long as other processes use the cores.

Parent and child exchange frames over a socket, in any order:

    length uint32, number of the request uint64, payload

The child ends with its parent, even if that is killed: nothing it does may take effect later.
"""

import asyncio
import errno
import itertools
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from struct import Struct
from typing import Final, cast

from ottla.runtime import system_calls

FRAME_BYTES_MAX: Final = 64 << 20
STOP_S: Final = 5.0
_FRAME: Final = Struct(">IQ")
_SOCKET_FD: Final = 0


class HelperEnded(OSError):
    """The child process ended before it answered."""

    def __init__(self, module: str) -> None:
        super().__init__(errno.EPIPE, f"the helper process {module} ended before it answered")


class HelperProcess(asyncio.Protocol):
    """The parent's side. Create one with `start`; `stop` it, or let the process end."""

    def __init__(self, module: str, pid: int) -> None:
        self._module = module
        self.pid = pid
        self._numbers = itertools.count()
        self._received = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    @classmethod
    async def start(cls, module: str, *, is_low: bool) -> "HelperProcess":
        """Run a module that calls `serve`. ``is_low``: only on cores that are idle otherwise.

        Raises:
            OSError: it cannot be started.
        """
        here, there = socket.socketpair()
        try:
            with there:
                pid = _spawn(module, there, is_low=is_low)
        except OSError as error:
            here.close()
            text = f"cannot start the helper process {module} by {sys.executable!r}: {error}"
            raise OSError(errno.EAGAIN, text) from error
        made = cls(module, pid)
        system_calls.on_child_end(pid, made._on_end)
        await asyncio.get_running_loop().create_connection(lambda: made, sock=here)
        return made

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting)

    @property
    def is_running(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def call(self, payload: bytes) -> bytes:
        """Return the answer to a request.

        A caller that does not wait any longer ends the process: the request must not take effect
        after it was given up. Other callers then fail, and try again.

        Raises:
            HelperEnded
        """
        if self._transport is None or self._transport.is_closing():
            raise HelperEnded(self._module)
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._transport.write(_FRAME.pack(len(payload), number) + payload)
        try:
            return await answer
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self._waiting.pop(number, None)

    def kill(self) -> None:
        """End the process now."""
        if not self._ended.done():
            os.kill(self.pid, system_calls.KILL_SIGNAL)
        if self._transport is not None:
            self._transport.close()

    async def stop(self) -> None:
        """End the process, and wait for its end."""
        self.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(self._ended)

    def _on_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # -- asyncio.Protocol ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop's transport has asyncio's methods but does not inherit from its class.
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Resolve the requests whose answers are complete."""
        received = self._received
        received += data
        while len(received) >= _FRAME.size:
            length, number = _FRAME.unpack_from(received)
            end = _FRAME.size + length
            if len(received) < end:
                return
            answer = self._waiting.get(number)
            if answer is not None and not answer.done():
                answer.set_result(bytes(received[_FRAME.size : end]))
            del received[:end]

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the requests that wait."""
        self.kill()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(HelperEnded(self._module))


def _spawn(module: str, connection: socket.socket, *, is_low: bool) -> int:
    """Start the process; with the usual priority where the kernel refuses the low one."""
    command = (sys.executable, "-P", "-m", module, str(os.getpid()))
    pid = system_calls.spawn_with_socket(
        command, connection
    )  # it ends with this one, not by Ctrl-C
    if is_low:
        with suppress(OSError):  # at once: the threads that it starts inherit it
            system_calls.lower_priority(pid)
    return pid


# -- the child ---------------------------------------------------------------------------


def serve(answer: Callable[[bytes], Awaitable[bytes]], parent: int) -> None:
    """Answer the requests of the parent until it closes the socket. Does not return."""
    system_calls.end_with_parent(parent)
    asyncio.run(_serve(answer))


def rest_thread(seconds: float) -> None:
    """Block the calling thread of a child, to leave its core to others."""
    if seconds > 0:
        time.sleep(seconds)


async def _serve(answer: Callable[[bytes], Awaitable[bytes]]) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=_SOCKET_FD))

    async def reply(number: int, payload: bytes) -> None:
        found = await answer(payload)
        writer.write(_FRAME.pack(len(found), number) + found)
        await writer.drain()

    try:
        async with asyncio.TaskGroup() as tasks:
            while True:
                length, number = _FRAME.unpack(await reader.readexactly(_FRAME.size))
                if length > FRAME_BYTES_MAX:
                    raise ValueError(f"a request of {length} bytes")
                tasks.create_task(reply(number, await reader.readexactly(length)))
    except* (asyncio.IncompleteReadError, ConnectionError):
        os._exit(0)  # requests in progress must not take effect any more
