"""Which dead letters of a partition were sent back or dropped. Pure.

Kept as the committed offset of a group: everything below it is handled, and its metadata has the
ranges above, as in ``12-15,20``, which a redrive of selected letters leaves behind.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from ottla.protocol.types import Offset

METADATA_LENGTH_MAX: Final = 4096
"""The default of ``offset.metadata.max.bytes``."""


class TooScattered(Exception):
    """The handled letters are in too many ranges to be remembered."""


class HandledLetters:
    """Offsets that are handled: all below ``position``, and ranges above it."""

    def __init__(self, position: Offset, metadata: str = "") -> None:
        self.position = position
        self._ranges = [_parsed(each) for each in metadata.split(",") if each]

    def __contains__(self, offset: int) -> bool:
        """Whether a letter is handled."""
        place = bisect_right(self._ranges, (offset, offset + 1)) if self._ranges else 0
        near = self._ranges[max(0, place - 1) : place + 1]
        return offset < self.position or any(first <= offset <= last for first, last in near)

    def add(self, offset: int) -> None:
        """Note that a letter is handled."""
        if offset not in self:
            self.add_all([(offset, offset)])

    def add_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that the letters in ``ranges``, inclusive, are handled, or that there are none."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted([*self._ranges, *ranges]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self._ranges = merged
        self.skip_to(self.position)

    def skip_to(self, position: int) -> None:
        """Raise the position, and further over ranges that begin there."""
        self.position = Offset(max(self.position, position))
        while self._ranges and self._ranges[0][0] <= self.position:
            self.position = Offset(max(self.position, self._ranges.pop(0)[1] + 1))

    @property
    def metadata(self) -> str:
        """The ranges above the position, for a committed offset. Raises `TooScattered`."""
        text = ",".join(f"{a}-{b}" if a != b else str(a) for a, b in self._ranges)
        if len(text) > METADATA_LENGTH_MAX:
            raise TooScattered(
                f"{len(self._ranges)} ranges of letters are handled; redrive or drop older ones "
                "first, so that fewer remain between them"
            )
        return text

    def count_between(self, start: int, end: int) -> int:
        """Return how many letters from ``start`` to ``end``, exclusive, are not handled."""
        first = max(start, self.position)
        above = sum(max(0, min(b + 1, end) - max(a, first)) for a, b in self._ranges)
        return max(0, end - first - above)


def _parsed(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)
