"""The segments of one log in order of their base offsets; never empty once the log is open."""

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence

from ottla.protocol.types import Offset
from ottla.storage.log.files import State
from ottla.storage.log.segment import Segment


class Segments:
    """Sorted by base offset, searched by bisection. The last one is active: it is appended to."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self) -> None:
        self.active: Segment  # the newest one
        self._bases: list[Offset] = []
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def base_offsets(self) -> tuple[Offset, ...]:
        """All base offsets, oldest first."""
        return tuple(self._bases)

    def add(self, segment: Segment) -> Segment | None:
        """Add a segment; return the one it replaces, which had the same base offset."""
        at = bisect_right(self._bases, segment.base_offset)
        if at and self._bases[at - 1] == segment.base_offset:
            replaced = self._segments[at - 1]
            self._segments[at - 1] = segment
            self.active = self._segments[-1]
            return replaced
        self._bases.insert(at, segment.base_offset)
        self._segments.insert(at, segment)
        self.active = self._segments[-1]
        return None

    def remove(self, segment: Segment) -> None:
        """Remove a segment from the list."""
        at = self._segments.index(segment)
        del self._bases[at]
        del self._segments[at]
        if self._segments:
            self.active = self._segments[-1]

    def replace(self, fresh: Sequence[Segment], base_offsets: Container[Offset]) -> list[Segment]:
        """Replace segments by cleaned ones; return the old ones, marked deleted.

        Each step is durable before the next. Until the first of ``fresh`` is ``.swap`` a crash
        discards them all, which is why they are renamed newest first; from then on opening the
        log completes the swap.
        """
        assert fresh
        old = [segment for segment in self._segments if segment.base_offset in base_offsets]
        for segment in reversed(fresh):
            segment.change_state(State.SWAP)
        for segment in old:
            segment.mark_deleted()
            self.remove(segment)
        for segment in fresh:
            segment.change_state(State.LIVE)
            self.add(segment)
        return old

    def from_floor(self, offset: Offset) -> list[Segment]:
        """Return the segment that would hold ``offset``, and all later ones."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def above(self, offset: Offset) -> list[Segment]:
        """Return the segments with a base offset above ``offset``."""
        return self._segments[bisect_right(self._bases, offset) :]

    def end_of(self, segment: Segment, log_end: Offset) -> Offset:
        """Return the end of a segment's offsets: the next one's base, or the log's end."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else log_end

    def close(self) -> None:
        """Release every file; slices that are still being sent keep theirs open."""
        for segment in self._segments:
            segment.close()
