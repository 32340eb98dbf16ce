"""Blocking sockets and sleeps, for code without an event loop: Spark's workers.

The broker never blocks; only `pipeline` uses this module, from threads of its own.
"""

import socket
import time

from ottla.runtime.ports import Address


def pause(wait_ms: int) -> None:
    """Block the thread for ``wait_ms``."""
    time.sleep(max(wait_ms, 0) / 1000)


def dial(address: Address, timeout_ms: int) -> socket.socket:
    """Connect; every later wait on the socket is bounded by ``timeout_ms`` too.

    Raises:
        OSError: refused, unreachable, or not connected in time (``TimeoutError``).
    """
    connected = socket.create_connection((address.host, address.port), timeout_ms / 1000)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connected
