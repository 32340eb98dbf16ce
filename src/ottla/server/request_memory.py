"""A bound on the memory that large requests hold together (``queued.max.request.bytes``).

Pure. A frame that does not fit a connection's standing buffer asks before its own is made. As
in Kafka the request that crosses the bound is still granted (one larger than the whole bound
must be servable), and the next ones wait, first come first served.
"""

from collections.abc import Callable

import msgspec


class RequestMemory(msgspec.Struct):
    """Bytes granted to requests. ``bytes_max`` None is no bound.

    A ``wake`` asks again later, not from within the call: it stands for its connection here.
    """

    bytes_max: int | None = None
    used: int = 0
    # Insertion-ordered, and a waiter that goes away is found at once.
    _waiting: dict[Callable[[], None], None] = msgspec.field(default_factory=dict)

    def take(self, size: int, wake: Callable[[], None]) -> bool:
        """Grant ``size`` bytes, or have ``wake`` called when asking again makes sense.

        Nobody overtakes those who wait: only the first of them is granted anything.
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
        """Return bytes that were granted, and wake who is first in line."""
        self.used -= size
        assert self.used >= 0
        self.wake_next()

    def forget(self, wake: Callable[[], None]) -> None:
        """Stop waiting: the connection is gone."""
        self._waiting.pop(wake, None)
        self.wake_next()

    def wake_next(self) -> None:
        """Tell the first in line to ask again, if there is room."""
        if self._waiting and not self._is_full():
            next(iter(self._waiting))()

    def _is_full(self) -> bool:
        return self.bytes_max is not None and self.used >= self.bytes_max
