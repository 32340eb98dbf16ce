"""The limit on what all connections together hold for requests in flight and unsent replies.

Pure. Each connection has limits of its own (`ConnectionLimits`), and a client may open any number
of connections, send requests and read no reply. Beyond ``bytes_max`` in all, a connection is served
as by Kafka: its next request is read when the reply to the last one has been sent. So a node holds
at most this much, and one reply per connection.
"""

from typing import Final

import msgspec

BYTES_MAX: Final = 256 * 1024 * 1024
"""Where the memory of the machine is not known."""


class HeldReplies(msgspec.Struct):
    """The bytes that the connections of a node hold."""

    bytes_max: int = BYTES_MAX
    bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether every connection has to send its reply before its next request is read."""
        return self.bytes >= self.bytes_max

    def change(self, before: int, after: int) -> None:
        """Count a connection that held ``before`` bytes and now holds ``after``."""
        self.bytes += after - before
        assert self.bytes >= 0, "a connection gives back what it was counted with"
