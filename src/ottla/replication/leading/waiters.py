"""Callbacks that wait for a partition to grow or to reach an offset, called synchronously.

Pure. Two kinds: readers are called on every growth, writers once when an offset is reached, or when
it never will be. Both are called synchronously by the code that changed the partition, so that no
task and no timer delays a record. A callback may add or remove waiters; it must not raise.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from ottla.protocol.faults import Fault
from ottla.protocol.types import Offset

Unsubscribe = Callable[[], None]
Done = Callable[[Fault | None], None]


class Wakers:
    """Callbacks for every growth of one partition, in the order they were added."""

    __slots__ = ("_ids", "_wakers")

    def __init__(self) -> None:
        self._ids = count()
        self._wakers: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._wakers)

    def add(self, wake: Callable[[], None]) -> Unsubscribe:
        """Call ``wake`` at every growth until the returned function is called."""
        key = next(self._ids)
        self._wakers[key] = wake

        def remove() -> None:
            self._wakers.pop(key, None)

        return remove

    def wake(self) -> None:
        """Call all current wakers, except those that are removed meanwhile."""
        if not self._wakers:
            return
        for key in tuple(self._wakers):
            wake = self._wakers.get(key)
            if wake is not None:
                wake()


class OffsetWaiters:
    """Callbacks for one offset each, called once: lowest offset first, then in order of arrival.

    A removed one stays in the heap, empty, until its offset is reached; when more than half of the
    heap is such, the heap is rebuilt, so memory is bounded by the actual waiters.
    """

    __slots__ = ("_heap", "_ids", "_waiting")

    def __init__(self) -> None:
        self._ids = count()
        self._heap: list[tuple[Offset, int]] = []
        self._waiting: dict[int, Done] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: Offset, done: Done) -> Unsubscribe:
        """Call ``done`` once ``offset`` is reached or given up, unless removed before."""
        key = next(self._ids)
        self._waiting[key] = done
        heappush(self._heap, (offset, key))

        def remove() -> None:
            self._waiting.pop(key, None)
            if len(self._heap) > 2 * len(self._waiting) + 64:
                self._heap = [each for each in self._heap if each[1] in self._waiting]
                heapify(self._heap)

        return remove

    def reached(self, offset: Offset, fault: Fault | None = None) -> None:
        """Call all waiters for ``offset`` or less."""
        while self._heap and self._heap[0][0] <= offset:
            done = self._waiting.pop(heappop(self._heap)[1], None)
            if done is not None:
                done(fault)

    def give_up(self, fault: Fault) -> None:
        """Call all waiters with a fault: their offset will not be reached here."""
        waiting, self._waiting, self._heap = self._waiting, {}, []
        for done in waiting.values():
            done(fault)
