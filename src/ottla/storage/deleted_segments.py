"""Segments that are no part of their log any more and whose files wait to be removed.

A reader may have found a slice in one just before: its file stays under ``.deleted`` for
``file.delete.delay.ms``. After a crash nobody reads it, and opening the log removes it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock
from ottla.storage.segment import Segment


class _DeletedSegment(NamedTuple):
    due: Millis  # monotonic
    segment: Segment


class DeletedSegments:
    """Deleted segments, oldest first."""

    __slots__ = ("_clock", "_segments")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._segments: list[_DeletedSegment] = []

    def bury(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Take in segments that are marked deleted."""
        due = Millis(self._clock.monotonic() + delay_ms)
        self._segments += [_DeletedSegment(due, segment) for segment in segments]

    def purge(self) -> int:
        """Remove the files of those whose time has come; return how many segments."""
        now = self._clock.monotonic()
        count = 0
        while self._segments and self._segments[0].due <= now:
            self._segments.pop(0).segment.remove()
            count += 1
        return count

    def close(self) -> None:
        """Close the files and leave them: the next start removes them."""
        for grave in self._segments:
            grave.segment.close()
