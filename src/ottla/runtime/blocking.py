"""Blocking sockets, sleeps and ports, for code without an event loop: Spark's workers.

The broker never blocks; only the blocking client and rooms of the pipeline use this module, from
threads of their own.
"""

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from ottla.runtime.ports import Address

Result = TypeVar("Result")
Stream: TypeAlias = socket.socket
"""A connection whose reads and writes block."""


class LoopThread:
    """An event loop on a thread of its own, for blocking callers of asynchronous ports.

    It ends with the process, or with `close`. A forked process needs its own.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Start ``work``; the caller asks the future for the result, or cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of ``work``."""
        return self.begin(work).result()

    def close(self) -> None:
        """End the loop; work in progress is abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def pause(wait_ms: int) -> None:
    """Block the thread for ``wait_ms``."""
    time.sleep(max(wait_ms, 0) / 1000)


def process_id() -> int:
    """Return the id of this process: a forked one must not use its parent's connections."""
    return os.getpid()


def dial(address: Address, timeout_ms: int, tls: ssl.SSLContext | None = None) -> Stream:
    """Connect, with TLS if ``tls`` says how; ``timeout_ms`` also bounds every later wait.

    Raises:
        OSError: refused, unreachable, not trusted, or not connected in time (``TimeoutError``).
    """
    connected = socket.create_connection((address.host, address.port), timeout_ms / 1000)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return (
            connected if tls is None else tls.wrap_socket(connected, server_hostname=address.host)
        )
    except BaseException:
        connected.close()
        raise
