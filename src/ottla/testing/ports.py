"""Ports that stay reserved for a node across its restarts.

A port that was only found free may be taken by another process a moment later. Here a socket stays
bound to it and never listens, so no other process gets the port; the socket that a node serves is
bound beside it (``SO_REUSEPORT``). When the node exits its socket is closed with it, and
connections are refused, as on a machine of its own.
"""

import socket
from dataclasses import dataclass, field

from ottla.testing.layout import HOST


@dataclass(slots=True)
class HeldPort:
    """A port of this machine, reserved until `close`."""

    _holder: socket.socket = field(default_factory=lambda: _bound(0))

    @property
    def number(self) -> int:
        """The port."""
        return int(self._holder.getsockname()[1])

    def socket(self) -> socket.socket:
        """Return a socket bound to the port, for the node to listen on.

        Raises:
            OSError: another process listens on it already.
        """
        return _bound(self.number)

    def close(self) -> None:
        """Release the port."""
        self._holder.close()


def _bound(port: int) -> socket.socket:
    fresh = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        fresh.bind((HOST, port))
    except BaseException:
        fresh.close()
        raise
    return fresh
