"""``.index``: maps offsets to positions in a segment file.

Eight bytes per entry, big-endian, in ascending order:

    relative_offset  int32   last offset of a batch, minus the segment's base offset
    position         int32   where in the ``.log`` that batch begins

A batch gets an entry when more than ``index.interval.bytes`` were appended since the last one;
the first batch of a segment never does. Older brokers wrote one entry for several batches
appended at once: the last offset of all with the position of the first. So an entry guarantees
only that the batch at its position starts at or below its offset.
"""

from struct import Struct
from typing import ClassVar

from ottla.protocol.types import Offset
from ottla.storage.log.sparse_index import SparseIndex

RELATIVE_OFFSET_MAX = 2**31 - 1


class OffsetIndex(SparseIndex):
    """Maps offsets to positions."""

    __slots__ = ()

    ENTRY: ClassVar[Struct] = Struct(">ii")

    def append(self, offset: Offset, position: int) -> None:
        """Add the batch that ends with ``offset`` and begins at ``position``."""
        self.add((offset - self.base_offset, position))

    def lookup(self, offset: Offset) -> tuple[Offset, int]:
        """Return the last entry at or below ``offset``; the segment's start when there is none."""
        entry = self.floor(offset - self.base_offset)
        if entry is None:
            return self.base_offset, 0
        return Offset(self.base_offset + entry[0]), entry[1]

    def last_position_below(self, limit: int) -> int:
        """Return the position of the last indexed batch that begins below ``limit``; 0 if none."""
        entry = self._find(1, limit)[1]
        return 0 if entry is None else entry[1]

    def truncate_to(self, offset: Offset) -> None:
        """Drop entries at or above ``offset``."""
        self.keep(self.count_below(0, offset - self.base_offset))
