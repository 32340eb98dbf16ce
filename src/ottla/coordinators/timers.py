"""Timers by key, for thousands that are reset often and fire rarely.

A heap of (due, number, key), and a dict of the timers that are set. Moving a timer to a later time,
as each heartbeat does, only writes to the dict: when the old entry of the heap comes up, it is
compared with the dict and pushed again. The heap has at most one live entry per key and one dead
entry per cancellation; it is rebuilt when most entries are dead.
"""

import heapq
from typing import Final

from ottla.coordinators.decision import TimerKey
from ottla.protocol.types import Millis

# Rebuild the heap only if it has more entries than this.
_DEAD_MIN: Final = 64


class Timers:
    """When each key is due, on a monotonic clock."""

    def __init__(self) -> None:
        self._due: dict[TimerKey, Millis] = {}
        self._queued: dict[TimerKey, Millis] = {}
        self._heap: list[tuple[Millis, int, TimerKey]] = []
        self._number = 0  # keeps keys of equal time in the order they were set

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: TimerKey, due: Millis) -> None:
        """Set or move a timer."""
        self._due[key] = due
        queued = self._queued.get(key)
        if queued is None or due < queued:
            self._push(key, due)

    def cancel(self, key: TimerKey) -> None:
        """Remove a timer, if it is set."""
        self._due.pop(key, None)
        if len(self._heap) > _DEAD_MIN and len(self._heap) > 2 * len(self._due):
            self._rebuild()

    def due(self, key: TimerKey) -> Millis | None:
        """Return when a timer is due; None if it is not set."""
        return self._due.get(key)

    def next(self) -> Millis | None:
        """Return when the next timer is due, or a little earlier; None if none is set."""
        return self._heap[0][0] if self._due and self._heap else None

    def take_due(self, now: Millis, count_max: int) -> list[TimerKey]:
        """Return up to ``count_max`` keys that are due, earliest first; they are no longer set."""
        found: list[TimerKey] = []
        while len(found) < count_max and self._heap and self._heap[0][0] <= now:
            time, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != time:
                continue  # moved to an earlier time since
            del self._queued[key]
            due = self._due.get(key)
            if due is None:
                continue
            if due > now:
                self._push(key, due)
                continue
            del self._due[key]
            found.append(key)
        return found

    def _push(self, key: TimerKey, due: Millis) -> None:
        self._number += 1
        self._queued[key] = due
        heapq.heappush(self._heap, (due, self._number, key))

    def _rebuild(self) -> None:
        self._heap.clear()
        self._queued.clear()
        for key, due in self._due.items():
            self._push(key, due)
