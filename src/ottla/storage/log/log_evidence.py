"""What is known of a log besides its segments, and what follows from it. Pure.

    recovery point, high watermark, log start    the checkpoints of the log directory
    leader epochs                                where the oldest one starts
    segment-inventory                            what was durable and not removed since

Each is a file that can be damaged, stale or missing. Of two that contradict each other the one
that the log itself wrote durably before it removed anything is believed: a log start that only a
checkpoint names hides records, and a leader with it would have its followers delete theirs.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from ottla.protocol.types import Offset
from ottla.storage.log.files import Kind, file_name
from ottla.storage.log.inventory import (
    FoundSegment,
    Inventory,
    MissingRange,
    find_missing,
    merge_ranges,
)

NOTHING: Final = Offset(0)


class LogCheckpoint(msgspec.Struct, frozen=True):
    """What the checkpoints of a log directory say about one log.

    ``is_clean``: the log was closed, and the directory marked clean afterwards.
    ``recovery_point``: everything below is synced. ``log_start_offset`` may be ahead of the first
    segment. ``high_watermark``: everything below was acknowledged. ``is_future``: a copy that is
    being moved to this directory, so whatever it lacks is copied again and nothing is lost.
    ``is_new``: the directory was created just now, and nothing in it needs to be durable yet.
    ``keeps_inventory``: the log has a `segment-inventory`; the metadata log has none.
    """

    is_clean: bool = False
    recovery_point: Offset = NOTHING
    log_start_offset: Offset = NOTHING
    high_watermark: Offset = NOTHING
    is_future: bool = False
    is_new: bool = False
    keeps_inventory: bool = False

    @property
    def reached(self) -> Offset:
        """The end up to which the log is known to have existed."""
        if self.is_future:
            return NOTHING
        return max(self.recovery_point, self.high_watermark, self.log_start_offset)


class LogEvidence:
    """The evidence of one log. ``epochs_start`` is where its oldest leader epoch starts."""

    def __init__(
        self, checkpoint: LogCheckpoint, found: Inventory | None, epochs_start: Offset | None
    ) -> None:
        self._checkpoint = checkpoint
        self._epochs_start = epochs_start
        # A log that is being copied here has all it needs in its source.
        self.inventory = None if checkpoint.is_future else found

    @property
    def reached(self) -> Offset:
        """The end up to which the log is known to have existed.

        After a clean stop the inventory says it, and a single checkpoint does not count: both name
        what the inventory does.
        """
        checkpoint = self._checkpoint
        if not checkpoint.keeps_inventory:
            return checkpoint.reached
        if checkpoint.is_future:
            return NOTHING
        points = checkpoint.recovery_point, checkpoint.high_watermark
        if self.inventory is None or self.inventory.log_end is None:
            return max(points)
        decide = min if checkpoint.is_clean else max
        return max(self.inventory.log_end, decide(points))

    def start(self, first: Offset | None, log_end: Offset) -> Offset:
        """Decide where the log starts; ``first`` is the base of its first segment, if any.

        The inventory and the leader epochs are durable before the checkpoint is written. A start
        beyond the end is right only if both say so: a power failure has cut the log below it. If
        checkpoint and epochs agree on a later start than the inventory, another broker wrote them.
        """
        checkpoint, epochs_start = self._checkpoint, self._epochs_start
        start = checkpoint.log_start_offset
        if not checkpoint.keeps_inventory:
            return start
        if self.inventory is not None:
            kept = self.inventory.log_start
            is_beyond = kept > log_end and first is not None
            if not is_beyond or epochs_start == kept:
                return start if start == epochs_start and start > kept else kept
        if epochs_start is None or first is None:
            return start
        if start > log_end:
            return start if epochs_start >= start else min(epochs_start, log_end)
        return max(start, min(epochs_start, first))

    def is_as_closed(self, newest: FoundSegment) -> bool:
        """Whether the newest segment has the length that a clean stop left, if that is known."""
        if self.inventory is None or self.inventory.log_end is None:
            return True
        sizes = {entry.base_offset: entry.size for entry in self.inventory.segments}
        return sizes.get(newest.base_offset, newest.size) == newest.size

    def missing(
        self, present: Sequence[FoundSegment], log_start: Offset, directory: str, *, is_tiered: bool
    ) -> list[MissingRange]:
        """Return the ranges of offsets that the log had and that its segments lack."""
        if not self._checkpoint.keeps_inventory or self._checkpoint.is_future:
            return []
        first, ranges = present[0].base_offset, list[MissingRange]()
        if log_start < first and not is_tiered:
            path = f"{directory}/{file_name(log_start, Kind.LOG)}"
            ranges.append(MissingRange(log_start, first, path, "the first segments are missing"))
        if self.inventory is not None:
            ranges += find_missing(self.inventory, present, log_start, directory)
        return merge_ranges(ranges)
