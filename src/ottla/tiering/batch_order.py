"""Whether the batches of a remote segment are in their places. Pure.

The CRC of a batch covers neither its base offset nor its leader epoch. Both follow from what has a
checksum of its own: the first batch begins at the segment's start offset, an entry of the offset
index names the last offset of the batch at its position, each batch begins where the one before it
ended, and the metadata names the leader epochs.

A log that was compacted before it was tiered has gaps, so a batch out of place is a doubt, not yet
damage: the caller compares the whole object with its checksum.
"""

from typing import Final

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.types import Offset
from ottla.tiering.segment_metadata import SegmentMetadata

OFFSET_MAX: Final = 2**63 - 1


class BatchOutOfPlace(CorruptBatch):
    """A batch whose base offset or leader epoch does not follow from what is known."""


class BatchOrder:
    """Follows the batches of a segment: the next one begins at ``first``.

    ``last_offset`` is that of the next batch, by the offset index, and says where it begins.
    """

    __slots__ = ("_epoch", "_epoch_end", "_epochs", "_last_offset", "_next")

    def __init__(
        self, metadata: SegmentMetadata, first: Offset, last_offset: Offset | None = None
    ) -> None:
        self._epochs = metadata.epochs
        self._last_offset = last_offset
        self._next = first
        self._epoch, self._epoch_end = -1, -1

    def check(self, base: int, delta: int, epoch: int) -> None:
        """Check the next batch.

        Raises:
            BatchOutOfPlace
        """
        if self._last_offset is not None:
            self._next = Offset(self._last_offset - delta)
            self._last_offset = None
        if base != self._next:
            raise BatchOutOfPlace(f"a batch begins at offset {base}, not at {self._next}")
        if base >= self._epoch_end:
            self._enter_epoch(base)
        if epoch != self._epoch:
            raise BatchOutOfPlace(
                f"the batch at offset {base} has leader epoch {epoch}, not {self._epoch}"
            )
        self._next = Offset(base + delta + 1)

    def _enter_epoch(self, offset: int) -> None:
        """Find the leader epoch of an offset, and where it ends."""
        self._epoch, self._epoch_end = -1, OFFSET_MAX
        for entry in self._epochs:
            if entry.start_offset > offset:
                self._epoch_end = entry.start_offset
                return
            self._epoch = entry.epoch
