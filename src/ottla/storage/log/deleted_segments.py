"""Segments that are no longer part of their log and whose files wait to be removed.

A reader may have found a slice in such a segment just before it was deleted, so its file stays
under ``.deleted`` for ``file.delete.delay.ms``. After a crash no reader is left, and opening the
log removes the file.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock
from ottla.storage.log.segment import Segment


class _DeletedSegment(NamedTuple):
    due: Millis  # monotonic
    segment: Segment


class DeletedSegments:
    """Deleted segments, in the order of their deletion."""

    __slots__ = ("_clock", "_segments")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._segments: list[_DeletedSegment] = []

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Schedule the removal of segments that are marked deleted."""
        due = Millis(self._clock.monotonic() + delay_ms)
        self._segments += [_DeletedSegment(due, segment) for segment in segments]

    def purge(self) -> int:
        """Remove the files of the segments that are due; return how many segments."""
        now = self._clock.monotonic()
        due = [deleted for deleted in self._segments if deleted.due <= now]
        for deleted in due:
            self._segments.remove(deleted)
            deleted.segment.remove()
        return len(due)

    def close(self) -> None:
        """Close the files without removing them: the next start does."""
        for deleted in self._segments:
            deleted.segment.close()
