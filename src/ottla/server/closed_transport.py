"""The transport of a connection that has closed.

A TLS transport of uvloop keeps references to its protocol after the connection has closed. The
protocol drops the transport instead, so that both are freed without the garbage collector.
"""

import asyncio
from typing import Final


class _ClosedTransport(asyncio.Transport):
    """Reads and sends nothing."""

    def is_closing(self) -> bool:
        """Say that it is closed."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing is left to send."""
        return 0

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


CLOSED_TRANSPORT: Final = _ClosedTransport()
