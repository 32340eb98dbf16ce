"""Ports that stay reserved for a node across its restarts.

A port that was only found free may be taken by another process a moment later. Here a socket stays
bound to it and never listens, so no other process gets the port; the socket that a node serves is
bound beside it (``SO_REUSEPORT``). When the node exits its socket is closed with it, and
connections are refused, as on a machine of its own. Where ports cannot be shared (Windows), the
port is released when the node binds it, and another process may take it during a restart.
"""

import socket

from ottla.runtime import system_calls
from ottla.testing.layout import HOST


class HeldPort:
    """A port of this machine, reserved until `close`."""

    def __init__(self) -> None:
        self._holder = _bound(0)
        self.number = int(self._holder.getsockname()[1])

    def socket(self) -> socket.socket:
        """Return a socket bound to the port, for the node to listen on.

        Raises:
            OSError: another process listens on it already.
        """
        if not system_calls.CAN_SHARE_PORTS:
            self._holder.close()
        return _bound(self.number)

    def close(self) -> None:
        """Release the port."""
        self._holder.close()


def _bound(port: int) -> socket.socket:
    fresh = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        system_calls.allow_rebinding(fresh)
        if system_calls.CAN_SHARE_PORTS:
            system_calls.share_port(fresh)
        fresh.bind((HOST, port))
    except BaseException:
        fresh.close()
        raise
    return fresh
