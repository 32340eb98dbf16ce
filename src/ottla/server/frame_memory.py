"""Memory of the large frame that a connection is receiving."""

from collections.abc import Callable

from ottla.server.listener_context import ListenerContext


class FrameMemory:
    """Memory granted to the frame in progress, until the request that it becomes takes it over.

    ``wake`` is called, possibly more than once, when memory that was denied may be available.
    """

    __slots__ = ("_context", "_granted", "_wake")

    def __init__(self, context: ListenerContext, wake: Callable[[], None]) -> None:
        self._context = context
        self._wake = wake
        self._granted = 0

    @property
    def is_granted(self) -> bool:
        """Say whether the frame in progress has its memory."""
        return self._granted > 0

    def request(self, size: int) -> bool:
        """Ask for ``size`` bytes; say whether they were granted."""
        is_granted = self._context.memory.take(size, self._wake)
        if is_granted:
            self._granted = size
        return is_granted

    def take(self) -> int:
        """Return the bytes granted; the caller gives them back by `give_back`."""
        granted, self._granted = self._granted, 0
        return granted

    def give_back(self, granted: int) -> None:
        """Free memory that was taken."""
        if granted:
            self._context.memory.give_back(granted)
            self._context.release.request_freed(granted)

    def close(self) -> None:
        """Give everything back and stop waiting."""
        self._context.memory.forget(self._wake)
        self.give_back(self.take())
