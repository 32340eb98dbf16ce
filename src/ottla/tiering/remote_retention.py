"""Which remote segments to delete. Pure; the rules are those of Kafka's RemoteLogManager.

A segment is deleted when it lies below the log's start, when its newest record is older than
``retention.ms``, when the log, remote and local, is larger than ``retention.bytes`` without it, or
when all its epochs are older than the oldest of the log. The first three apply only to segments of
the log's own history, oldest first, and stop at the first one that stays.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.tiering.lineage import Epochs, epochs_with_records, is_within_lineage
from ottla.tiering.segment_metadata import SegmentId, SegmentMetadata, SegmentState

UNLIMITED = -1


class RemoteLogState(NamedTuple):
    """The log whose remote segments expire.

    ``only_local_bytes``: local segments that are not in remote storage. -1 is unlimited.
    """

    epochs: Sequence[EpochEntry]
    log_start: Offset
    log_end: Offset
    only_local_bytes: int
    retention_ms: int
    retention_bytes: int


class DeletionPlan(msgspec.Struct, frozen=True):
    """Delete these segments; the log then starts at ``log_start``, None if that does not change."""

    segments: tuple[SegmentMetadata, ...]
    log_start: Offset | None = None


def plan_remote_retention(
    state: RemoteLogState,
    segments: Sequence[SegmentMetadata],
    of_epoch: Callable[[LeaderEpoch], Sequence[SegmentMetadata]],
    copying: Collection[SegmentId],
    now: Millis,
) -> DeletionPlan:
    """Decide which of all ``segments`` to delete; ``copying`` are being copied by this broker."""
    lineage = epochs_with_records(state.epochs)
    retention = _Retention(state, lineage, of_epoch, now)
    retention.expire(copying)
    # Epochs that the log no longer has at all: unclean elections, and history before its start.
    if lineage:
        first = next(iter(lineage))
        for metadata in segments:
            is_stale = all(entry.epoch < first for entry in metadata.epochs)
            if is_stale and metadata.segment_id not in copying:
                retention.due.setdefault(metadata.segment_id, metadata)
    return DeletionPlan(tuple(retention.due.values()), retention.log_start)


class _Retention:
    """The walk over the segments of the log's own epochs."""

    def __init__(
        self,
        state: RemoteLogState,
        lineage: Epochs,
        of_epoch: Callable[[LeaderEpoch], Sequence[SegmentMetadata]],
        now: Millis,
    ) -> None:
        self._state = state
        self._lineage = lineage
        self._of_epoch = of_epoch
        self._expired_until = (
            None if state.retention_ms == UNLIMITED else Millis(now - state.retention_ms)
        )
        self._excess = self._excess_bytes()
        self.due: dict[SegmentId, SegmentMetadata] = {}
        self.log_start: Offset | None = None

    def _excess_bytes(self) -> int:
        if self._state.retention_bytes == UNLIMITED:
            return 0
        counted = {
            metadata.segment_id: metadata.size
            for epoch in self._lineage
            for metadata in self._of_epoch(epoch)
            if metadata.state is SegmentState.COPY_SEGMENT_FINISHED and self._is_valid(metadata)
        }
        whole = sum(counted.values()) + self._state.only_local_bytes
        return max(0, whole - self._state.retention_bytes)

    def _is_valid(self, metadata: SegmentMetadata) -> bool:
        return is_within_lineage(metadata, self._state.log_end, self._lineage)

    def expire(self, copying: Collection[SegmentId]) -> None:
        """Collect what is due, until a segment of the log stays or is being copied."""
        for epoch in self._lineage:
            for metadata in self._of_epoch(epoch):
                if metadata.segment_id in copying:
                    return
                if metadata.segment_id in self.due:
                    continue
                if metadata.state is SegmentState.DELETE_SEGMENT_STARTED:
                    self.due[metadata.segment_id] = metadata
                    continue
                is_below = self._is_below_start(metadata)
                is_valid = not is_below and self._is_valid(metadata)
                if is_below or (is_valid and (self._is_old(metadata) or self._is_excess(metadata))):
                    self.due[metadata.segment_id] = metadata
                elif is_valid:
                    return

    def _is_below_start(self, metadata: SegmentMetadata) -> bool:
        first = next(iter(self._lineage))
        is_before = all(entry.epoch <= first for entry in metadata.epochs)
        return is_before and metadata.end_offset < self._state.log_start

    def _is_old(self, metadata: SegmentMetadata) -> bool:
        if self._expired_until is None or metadata.max_timestamp > self._expired_until:
            return False
        self._excess = max(0, self._excess - metadata.size)
        self._starts_after(metadata)
        return True

    def _is_excess(self, metadata: SegmentMetadata) -> bool:
        if self._excess <= 0 or self._excess < metadata.size:
            return False
        self._excess -= metadata.size
        self._starts_after(metadata)
        return True

    def _starts_after(self, metadata: SegmentMetadata) -> None:
        if metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
            self.log_start = max(self.log_start or Offset(0), Offset(metadata.end_offset + 1))
