"""Spans of consecutive records of a share partition in the same state, and their sequence.

    start                                end
      |  Span 5-9  |  Span 10-10  |  ...  |

The sequence covers every offset from its start to its end without gaps, so a record is found by
bisection, and the state of a span is stored once, however long it is.
"""

import enum
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import msgspec

from ottla.protocol.types import Millis, Offset

NOBODY: Final = ""
NO_DEADLINE: Final = Millis(0)


class RecordState(enum.IntEnum):
    """The delivery state of a record; the numbers are those of stored batches."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be done about it."""
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class Span(msgspec.Struct):
    """Records ``first`` to ``last``, inclusive.

    While ACQUIRED, ``member`` holds the lock until ``deadline`` (monotonic). ``is_dirty``: the
    stored state of the records is older than this.
    """

    first: Offset
    last: Offset
    state: RecordState
    deliveries: int = 0
    member: str = NOBODY
    deadline: Millis = NO_DEADLINE
    is_dirty: bool = False

    @property
    def size(self) -> int:
        """The number of records."""
        return self.last - self.first + 1

    def is_like(self, other: "Span") -> bool:
        """Whether both could be merged, if they are adjacent."""
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.member == other.member
            and self.deadline == other.deadline
            and self.is_dirty == other.is_dirty
        )


class SpanSequence:
    """Adjacent spans. Splitting and merging them changes nothing about any record."""

    __slots__ = ("_firsts", "_spans", "end", "start")

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.end = start
        self._spans: list[Span] = []
        self._firsts: list[Offset] = []

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def at(self, offset: Offset) -> Span | None:
        """Return the span that contains an offset."""
        if not self.start <= offset < self.end:
            return None
        return self._spans[bisect_right(self._firsts, offset) - 1]

    def between(self, first: Offset, last: Offset) -> list[Span]:
        """Return the spans that overlap ``first`` to ``last``, not split."""
        if first > last or not self._spans:
            return []
        begin = max(0, bisect_right(self._firsts, first) - 1)
        until = bisect_right(self._firsts, last)
        return [span for span in self._spans[begin:until] if span.last >= first]

    def cut(self, first: Offset, last: Offset) -> list[Span]:
        """Return spans that make up exactly ``first`` to ``last``, within the sequence."""
        first, last = Offset(max(first, self.start)), Offset(min(last, self.end - 1))
        if first > last:
            return []
        self._split(first)
        self._split(Offset(last + 1))
        begin = bisect_right(self._firsts, first) - 1
        return self._spans[begin : bisect_right(self._firsts, last)]

    def _split(self, offset: Offset) -> None:
        """Split so that a span begins at ``offset``."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or offset >= self.end or self._firsts[index] == offset:
            return
        left = self._spans[index]
        right = msgspec.structs.replace(left, first=offset)
        left.last = Offset(offset - 1)
        self._spans.insert(index + 1, right)
        self._firsts.insert(index + 1, offset)

    def extend(self, span: Span) -> None:
        """Append a span."""
        assert span.first == self.end, "a row has no holes"
        self._spans.append(span)
        self._firsts.append(span.first)
        self.end = Offset(span.last + 1)

    def drop_below(self, offset: Offset) -> None:
        """Start the sequence at ``offset``, which may be beyond its end."""
        if offset <= self.start:
            return
        self._split(offset)
        keep = [span for span in self._spans if span.first >= offset]
        self.start, self.end = offset, Offset(max(self.end, offset))
        self._set(keep)

    def join(self) -> None:
        """Merge adjacent equal spans."""
        joined: list[Span] = []
        for span in self._spans:
            if joined and joined[-1].is_like(span):
                joined[-1].last = span.last
            else:
                joined.append(span)
        if len(joined) != len(self._spans):
            self._set(joined)

    def _set(self, spans: list[Span]) -> None:
        self._spans = spans
        self._firsts = [span.first for span in spans]
