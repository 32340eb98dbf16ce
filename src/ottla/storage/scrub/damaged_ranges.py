"""The known damaged ranges of one log; no reader is sent a byte of them.

A damaged range is a range of bytes of a segment. A missing range is a range of offsets whose
segments are gone or incomplete: whatever is left of them is not read, either.

Kept in memory only. After a restart the scrubber has to find them again; a broker that left the
ISR because of them checks its log first (`replication.repair_loop`).
"""

from collections.abc import Iterator

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.types import Offset
from ottla.storage.log.inventory import MissingRange, merge_ranges
from ottla.storage.log.read import Slice
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments
from ottla.storage.scrub.batch_check import DamagedRange


class DamagedRanges:
    """Damaged ranges by segment. False while none is known: a healthy read checks only that."""

    __slots__ = ("_dismissed", "_known", "_missing")

    def __init__(self) -> None:
        self._known: list[tuple[Segment, DamagedRange]] = []
        self._dismissed: list[tuple[Segment, DamagedRange]] = []
        self._missing: list[MissingRange] = []

    def __bool__(self) -> bool:
        return bool(self._known or self._missing)

    @property
    def missing(self) -> tuple[MissingRange, ...]:
        """The missing ranges, in order."""
        return tuple(self._missing)

    def add_missing(self, missing: MissingRange) -> bool:
        """Add a missing range; False if all of it is known already."""
        if any(each.start <= missing.start and missing.end <= each.end for each in self._missing):
            return False
        self._missing = merge_ranges([*self._missing, missing])
        return True

    def remove_missing(self, missing: MissingRange) -> None:
        """Forget a missing range that is repaired, or that no replica has."""
        self._missing = [each for each in self._missing if each != missing]

    def check(self, offset: Offset) -> None:
        """Raise if ``offset`` is in a missing range.

        Raises:
            CorruptBatch: it is.
        """
        for each in self._missing:
            if each.start <= offset < each.end:
                raise CorruptBatch(f"{each.path}: {each.reason}")

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
        self._missing = [
            each._replace(start=max(each.start, log_start))
            for each in self._missing
            if log_start < each.end <= log_end
        ]
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
        if found.length:
            self.check(found.base_offset)
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
