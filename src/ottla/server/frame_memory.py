"""Memory of the large frame that a connection is receiving."""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.server.listener_context import ListenerContext
from ottla.server.request_memory import RequestMemory


class Grant(NamedTuple):
    """Bytes granted to a request, and the limit that they count for."""

    memory: RequestMemory
    size: int


NO_GRANT: Final = Grant(RequestMemory(), 0)


def _nothing() -> None:
    """Wake no connection: it has closed."""


class FrameMemory:
    """Memory granted to the frame in progress, until the request that it becomes takes it over.

    ``wake`` is called, possibly more than once, when memory that was denied may be available.
    """

    __slots__ = ("_context", "_granted", "_memory", "_wake")

    def __init__(self, context: ListenerContext, wake: Callable[[], None]) -> None:
        self._context = context
        self._wake = wake
        self._memory = context.memory  # that of the last request
        self._granted = NO_GRANT

    @property
    def is_granted(self) -> bool:
        """Say whether the frame in progress has its memory."""
        return self._granted.size > 0

    def request(self, size: int, memory: RequestMemory) -> bool:
        """Ask for ``size`` bytes of ``memory``; say whether they were granted."""
        self._memory = memory
        is_granted = memory.take(size, self._wake)
        if is_granted:
            self._granted = Grant(memory, size)
        return is_granted

    def take(self) -> Grant:
        """Return the bytes granted; the caller gives them back by `give_back`."""
        granted, self._granted = self._granted, NO_GRANT
        return granted

    def give_back(self, granted: Grant) -> None:
        """Free memory that was taken."""
        if granted.size:
            granted.memory.give_back(granted.size)
            self._context.release.request_freed(granted.size)

    def close(self) -> None:
        """Give everything back and stop waiting."""
        self._memory.forget(self._wake)
        self._wake = _nothing  # a reference to the connection otherwise
        self.give_back(self.take())
