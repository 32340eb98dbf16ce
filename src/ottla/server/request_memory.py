"""The limit on the memory that all large requests hold (``queued.max.request.bytes``).

Pure. A connection asks for memory before its buffer grows to a frame that exceeds the standard
buffer. As in Kafka, the request that crosses the limit is still granted (a request larger than the
limit must be served, too), and later ones wait in arrival order.
"""

from collections.abc import Callable

import msgspec


class RequestMemory(msgspec.Struct):
    """Bytes granted to requests. ``bytes_max`` None means no limit.

    A ``wake`` function identifies its connection. It must not call `take` itself, but later.
    """

    bytes_max: int | None = None
    used: int = 0
    # Ordered by insertion; a connection that closes is removed in constant time.
    _waiting: dict[Callable[[], None], None] = msgspec.field(default_factory=dict)

    def take(self, size: int, wake: Callable[[], None]) -> bool:
        """Grant ``size`` bytes, or call ``wake`` once it makes sense to ask again.

        Requests are granted in arrival order: while some wait, only the first is granted.
        """
        first = next(iter(self._waiting), wake)
        if self._is_full() or first != wake:
            self._waiting.setdefault(wake)
            return False
        self._waiting.pop(wake, None)
        self.used += size
        self.wake_next()
        return True

    def give_back(self, size: int) -> None:
        """Return bytes that were granted, and wake the first connection that waits."""
        self.used -= size
        assert self.used >= 0
        self.wake_next()

    def forget(self, wake: Callable[[], None]) -> None:
        """Stop waiting: the connection has closed."""
        self._waiting.pop(wake, None)
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the first connection that waits, if there is room."""
        if self._waiting and not self._is_full():
            next(iter(self._waiting))()

    def _is_full(self) -> bool:
        return self.bytes_max is not None and self.used >= self.bytes_max
