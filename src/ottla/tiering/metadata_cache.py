"""The remote segments of one partition, found by leader epoch and offset. Pure.

Every leader epoch has its own table of segments by start offset, since a log that was truncated has
several segments with the same offsets: only those of an epoch that wrote the offset are right. A
segment that a later copy covers, one that is still being copied and one that is being deleted is
*unreferenced*: it is listed, so that it can be deleted, and never read.
"""

from bisect import bisect_right, insort

from ottla.protocol.types import LeaderEpoch, Offset, Uuid
from ottla.tiering.segment_metadata import (
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    is_valid_transition,
    updated,
)


class EpochSegments:
    """The segments that hold records of one leader epoch."""

    __slots__ = ("_by_offset", "_offsets", "highest_offset", "unreferenced")

    def __init__(self) -> None:
        self._offsets: list[Offset] = []
        self._by_offset: dict[Offset, Uuid] = {}
        self.unreferenced: set[Uuid] = set()
        self.highest_offset: Offset | None = None

    @property
    def ids(self) -> list[Uuid]:
        """The ids of all segments."""
        return [*self._by_offset.values(), *self.unreferenced]

    def floor(self, offset: Offset) -> Uuid | None:
        """Return the readable segment that starts at or below ``offset``."""
        at = bisect_right(self._offsets, offset)
        return self._by_offset[self._offsets[at - 1]] if at else None

    def copied(self, start: Offset, end: Offset, segment: Uuid) -> None:
        """Make a segment readable; those that it covers no longer are."""
        while self._offsets and self._offsets[-1] >= start:
            if self.highest_offset is not None and self.highest_offset > end:
                break
            self.unreferenced.add(self._by_offset.pop(self._offsets.pop()))
        replaced = self._by_offset.get(start)
        if replaced is None:
            insort(self._offsets, start)
        elif replaced != segment:
            self.unreferenced.add(replaced)
        self._by_offset[start] = segment
        self.unreferenced.discard(segment)
        self.highest_offset = max(end, self.highest_offset or end)

    def deleting(self, start: Offset, segment: Uuid) -> None:
        """Make a segment unreadable."""
        if self._by_offset.get(start) == segment:
            del self._by_offset[start]
            self._offsets.remove(start)
        self.unreferenced.add(segment)


class MetadataCache:
    """The remote segments of one partition."""

    def __init__(self) -> None:
        self._segments: dict[Uuid, SegmentMetadata] = {}
        self._epochs: dict[LeaderEpoch, EpochSegments] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, segment: Uuid) -> SegmentMetadata | None:
        """Return a segment by its id."""
        return self._segments.get(segment)

    def add(self, metadata: SegmentMetadata) -> bool:
        """Add a segment that is being copied; False if it is known in another state."""
        segment = metadata.segment_id.id
        known = self._segments.get(segment)
        state = None if known is None else known.state
        if metadata.state is not SegmentState.COPY_SEGMENT_STARTED:
            return False
        if not is_valid_transition(state, metadata.state):
            return False
        self._segments[segment] = metadata
        for entry in metadata.epochs:
            self._epoch(entry.epoch).unreferenced.add(segment)
        return True

    def update(self, update: SegmentUpdate) -> bool:
        """Change the state of a segment; False if it is unknown or may not change so."""
        known = self._segments.get(update.segment_id.id)
        if known is None or not is_valid_transition(known.state, update.state):
            return False
        self._move(updated(known, update))
        return True

    def load(self, metadata: SegmentMetadata) -> None:
        """Add a segment in any state: it comes from a snapshot."""
        self._move(metadata)

    def _move(self, metadata: SegmentMetadata) -> None:
        segment = metadata.segment_id.id
        self._segments[segment] = metadata
        for entry in metadata.epochs:
            epoch = self._epoch(entry.epoch)
            match metadata.state:
                case SegmentState.COPY_SEGMENT_STARTED:
                    epoch.unreferenced.add(segment)
                case SegmentState.COPY_SEGMENT_FINISHED:
                    epoch.copied(entry.start_offset, metadata.end_of_epoch(entry.epoch), segment)
                case SegmentState.DELETE_SEGMENT_STARTED:
                    epoch.deleting(entry.start_offset, segment)
                case SegmentState.DELETE_SEGMENT_FINISHED:
                    epoch.deleting(entry.start_offset, segment)
                    epoch.unreferenced.discard(segment)
        if metadata.state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[segment]

    def _epoch(self, epoch: LeaderEpoch) -> EpochSegments:
        return self._epochs.setdefault(epoch, EpochSegments())

    # -- lookups -----------------------------------------------------------------

    def find(self, epoch: LeaderEpoch, offset: Offset) -> SegmentMetadata | None:
        """Return the readable segment that holds ``offset`` as written in ``epoch``."""
        known = self._epochs.get(epoch)
        segment = None if known is None else known.floor(offset)
        if segment is None:
            return None
        metadata = self._segments[segment]
        return metadata if offset <= metadata.end_of_epoch(epoch) else None

    def highest_offset(self, epoch: LeaderEpoch) -> Offset | None:
        """Return the largest offset of ``epoch`` that was ever copied."""
        known = self._epochs.get(epoch)
        return None if known is None else known.highest_offset

    def of_epoch(self, epoch: LeaderEpoch) -> list[SegmentMetadata]:
        """Return all segments with records of an epoch, in any state, by start offset."""
        known = self._epochs.get(epoch)
        found = [] if known is None else [self._segments[segment] for segment in known.ids]
        return sorted(found, key=_place)

    def all(self) -> list[SegmentMetadata]:
        """Return all segments, in any state, by start offset."""
        return sorted(self._segments.values(), key=_place)


def _place(metadata: SegmentMetadata) -> tuple[Offset, Offset, Uuid]:
    return metadata.start_offset, metadata.end_offset, metadata.segment_id.id
