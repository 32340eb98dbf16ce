"""``.timeindex``: maps timestamps to offsets of a segment.

Twelve bytes per entry, big-endian, both fields ascending:

    timestamp        int64   largest timestamp in the segment so far
    relative_offset  int32   last offset of the batch that has it, minus the base offset

Written along with an entry of the offset index, if the timestamp has grown since the last one, and
once more when the segment is sealed or closed: so the last entry of a sealed segment has its
largest timestamp.
"""

from struct import Struct
from typing import ClassVar, NamedTuple

from ottla.protocol.types import NO_TIMESTAMP, Millis, Offset
from ottla.storage.log.sparse_index import LostIndex, SparseIndex


class TimestampOffset(NamedTuple):
    """A timestamp and the last offset of the batch in which it is the largest."""

    timestamp: Millis
    offset: Offset


class TimeIndex(SparseIndex):
    """Maps timestamps to offsets."""

    __slots__ = ()

    ENTRY: ClassVar[Struct] = Struct(">qi")

    @property
    def is_full(self) -> bool:
        """One entry is reserved for sealing the segment."""
        return len(self) >= self.entries_max - 1

    def append(self, entry: TimestampOffset) -> None:
        """Add the largest timestamp so far, unless the last entry already has it.

        If the entries before are lost, this one is added all the same: a search that reads
        them finds that out, and the segment rebuilds the index.
        """
        try:
            last = self.last()
        except LostIndex:
            last = None
        if entry.timestamp > (NO_TIMESTAMP if last is None else last[0]):
            self.add((entry.timestamp, entry.offset - self.base_offset))

    def newest(self) -> TimestampOffset | None:
        """Return the last entry."""
        entry = self.last()
        return None if entry is None else self._absolute(*entry)

    def lookup(self, timestamp: Millis) -> TimestampOffset | None:
        """Return the last entry at or below ``timestamp``."""
        entry = self.floor(timestamp)
        return None if entry is None else self._absolute(*entry)

    def truncate_to(self, offset: Offset) -> None:
        """Drop entries of batches at or above ``offset``."""
        self.keep(self.count_below(1, offset - self.base_offset))

    def _absolute(self, timestamp: int, relative: int) -> TimestampOffset:
        return TimestampOffset(Millis(timestamp), Offset(self.base_offset + relative))
