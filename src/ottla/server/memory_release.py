"""Decide when free memory is returned to the operating system. Pure.

The C library keeps freed memory for reuse. After a burst of large requests or of thousands of
connections this is hundreds of megabytes that other processes and the page cache cannot use.
Returning it takes milliseconds, so it happens `PAUSE_MS` after enough was freed (`REQUEST_BYTES` or
`CONNECTIONS`), and at most once per `PAUSE_MS`. The pause also lets requests in flight complete,
which hold several times their size in decoded messages and replies.
"""

from typing import Final

import msgspec

from ottla.protocol.types import Millis

REQUEST_BYTES: Final = 8 << 20
"""Freed bytes of large requests after which memory is returned."""
LARGE_BYTES: Final = 1 << 20
"""Smaller requests are not counted: a connection that sends many of them keeps its buffer."""
CONNECTIONS: Final = 500
"""Closed connections after which memory is returned; each had a buffer of 64 KiB while in use."""
PAUSE_MS: Final = 10_000


class MemoryRelease(msgspec.Struct):
    """Counts what was freed since memory was last returned."""

    request_bytes: int = 0
    connections: int = 0
    due_at: Millis | None = None

    def request_freed(self, size: int) -> None:
        """Count the freed memory of a request."""
        if size > LARGE_BYTES:
            self.request_bytes += size

    def connection_closed(self) -> None:
        """Count a closed connection, whose buffers are free."""
        self.connections += 1

    def is_due(self, now: Millis) -> bool:
        """Say whether to return memory now; True resets the counters. ``now`` is monotonic."""
        if self.request_bytes < REQUEST_BYTES and self.connections < CONNECTIONS:
            return False
        if self.due_at is None:
            self.due_at = Millis(now + PAUSE_MS)
        if now < self.due_at:
            return False
        self.request_bytes = self.connections = 0
        self.due_at = None
        return True
