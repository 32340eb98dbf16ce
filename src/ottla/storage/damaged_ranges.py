"""The known damaged ranges of one log; no reader is sent a byte of them.

Kept in memory only. After a restart the scrubber has to find them again; a broker that left the
ISR because of them checks its log first (`replication.repair_loop`).
"""

from collections.abc import Iterator

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.types import Offset
from ottla.storage.read import Slice
from ottla.storage.scrub import DamagedRange
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments


class DamagedRanges:
    """Damaged ranges by segment. False while none is known: a healthy read checks only that."""

    __slots__ = ("_dismissed", "_known")

    def __init__(self) -> None:
        self._known: list[tuple[Segment, DamagedRange]] = []
        self._dismissed: list[tuple[Segment, DamagedRange]] = []

    def __bool__(self) -> bool:
        return bool(self._known)

    def __iter__(self) -> Iterator[tuple[Segment, DamagedRange]]:
        return iter(tuple(self._known))

    def add(self, segment: Segment, damage: DamagedRange) -> bool:
        """Add a range; False if all of it is known already, or was dismissed."""
        if any(at is segment and other[:2] == damage[:2] for at, other in self._dismissed):
            return False
        for known, other in self._known:
            if known is segment and other.position <= damage.position and damage.end <= other.end:
                return False
        self._known = [
            (known, other)
            for known, other in self._known
            if known is not segment or other.end <= damage.position or damage.end <= other.position
        ]
        self._known.append((segment, damage))
        return True

    def remove(self, segment: Segment, damage: DamagedRange) -> None:
        """Forget a range that is repaired."""
        self._known = [each for each in self._known if each != (segment, damage)]

    def dismiss(self, segment: Segment, damage: DamagedRange) -> None:
        """Forget a range for good: other replicas have the same bytes there."""
        self.remove(segment, damage)
        self._dismissed.append((segment, damage))

    def keep_current(self, segments: Segments, log_start: Offset, log_end: Offset) -> None:
        """Forget ranges in removed segments, and outside of the log's offsets.

        A range that a truncation cut in two is forgotten, too: other bytes will follow there.
        """
        live = set(segments)
        self._dismissed = [each for each in self._dismissed if each[0] in live]
        self._known = [
            (segment, damage)
            for segment, damage in self._known
            if segment in live and log_start < damage.offset_end <= log_end
        ]

    def clip(self, found: Slice) -> Slice:
        """Shorten a slice so that it ends before the first damaged range.

        Raises:
            CorruptBatch: the slice begins in a damaged range.
        """
        end = found.position + found.length
        for segment, damage in self._known:
            if segment.file is not found.file or damage.end <= found.position:
                continue
            if damage.position <= found.position < damage.end and found.length:
                raise CorruptBatch(
                    f"{segment.path}: bytes {damage.position} to {damage.end}: {damage.cause}"
                )
            end = min(end, damage.position)
        return found._replace(length=max(0, end - found.position))
