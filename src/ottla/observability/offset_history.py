"""When a partition had grown to an offset, from a bounded number of observations. Pure.

The lag of a group in seconds is the age of the first record that it has not read. The time of that
record is interpolated between two observations of the partition's end, so nothing is read from the
log. Recent observations are kept one by one and older ones further apart, so that a few dozen reach
back for days.
"""

from bisect import bisect_right
from typing import Final

OBSERVATIONS_MAX: Final = 48


class OffsetHistory:
    """The ends of one partition over time; times in milliseconds of a monotonic clock."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._ends: list[int] = []

    def observe(self, now_ms: int, end: int) -> None:
        """Record that the partition ends at ``end`` now. A smaller end than before starts over:
        the log was truncated or the topic created again.
        """
        if self._ends and end < self._ends[-1]:
            self._times.clear()
            self._ends.clear()
        if len(self._ends) >= 2 and self._ends[-1] == self._ends[-2] == end:
            self._times[-1] = now_ms  # nothing was written: the pause only gets longer
            return
        self._times.append(now_ms)
        self._ends.append(end)
        if len(self._ends) > OBSERVATIONS_MAX:
            self._thin()

    def _thin(self) -> None:
        """Drop every second observation of the older half."""
        half = OBSERVATIONS_MAX // 2
        dropped = range(1, half, 2)
        self._times = [time for at, time in enumerate(self._times) if at not in dropped]
        self._ends = [end for at, end in enumerate(self._ends) if at not in dropped]

    def seconds_behind(self, offset: int, now_ms: int) -> float:
        """Return the age of the record at ``offset``, at least as old as the first observation
        if it was written before that; 0 if the partition does not reach it.
        """
        if not self._ends or offset >= self._ends[-1]:
            return 0.0
        # The record was written between the last observation at or below it and the next one.
        after = bisect_right(self._ends, offset)
        if after == 0:
            return max(0, now_ms - self._times[0]) / 1000
        low, high = self._ends[after - 1], self._ends[after]
        share = (offset - low) / (high - low)
        written = self._times[after - 1] + share * (self._times[after] - self._times[after - 1])
        return max(0.0, now_ms - written) / 1000
