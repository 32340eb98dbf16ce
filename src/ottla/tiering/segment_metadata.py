"""The metadata of remote segments, and the transitions of their states. Pure.

    COPY_SEGMENT_STARTED --> COPY_SEGMENT_FINISHED --> DELETE_SEGMENT_STARTED --> _FINISHED
                    `-------------------------------------^

A segment can be read only in COPY_SEGMENT_FINISHED. A state may be repeated: records of the
metadata topic are delivered at least once.
"""

import enum
from typing import Final, NamedTuple

import msgspec

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.storage.log.leader_epochs import EpochEntry


class SegmentState(enum.IntEnum):
    """The state of a remote segment, with Kafka's numbers."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(enum.IntEnum):
    """The state of a partition whose remote segments are deleted, with Kafka's numbers."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_SEGMENT_NEXT: Final[dict[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_SEGMENT_STARTED}),
    SegmentState.COPY_SEGMENT_STARTED: frozenset(
        {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED}
    ),
    SegmentState.COPY_SEGMENT_FINISHED: frozenset({SegmentState.DELETE_SEGMENT_STARTED}),
    SegmentState.DELETE_SEGMENT_STARTED: frozenset({SegmentState.DELETE_SEGMENT_FINISHED}),
    SegmentState.DELETE_SEGMENT_FINISHED: frozenset(),
}
_PARTITION_NEXT: Final[dict[PartitionDeleteState | None, PartitionDeleteState | None]] = {
    None: PartitionDeleteState.DELETE_PARTITION_MARKED,
    PartitionDeleteState.DELETE_PARTITION_MARKED: PartitionDeleteState.DELETE_PARTITION_STARTED,
    PartitionDeleteState.DELETE_PARTITION_STARTED: PartitionDeleteState.DELETE_PARTITION_FINISHED,
    PartitionDeleteState.DELETE_PARTITION_FINISHED: None,
}


def is_valid_transition(state: SegmentState | None, target: SegmentState) -> bool:
    """Say whether a segment may change to ``target``; None: it is not known yet."""
    return state is target or target in _SEGMENT_NEXT[state]


def is_valid_deletion(state: PartitionDeleteState | None, target: PartitionDeleteState) -> bool:
    """Say whether the deletion of a partition may change to ``target``."""
    return state is target or target is _PARTITION_NEXT[state]


class SegmentId(NamedTuple):
    """A remote segment. Each attempt to copy a local segment has an id of its own."""

    partition: TopicIdPartition
    id: Uuid


class SegmentMetadata(msgspec.Struct, frozen=True):
    """What is known of a remote segment; offsets are inclusive.

    ``epochs`` are the leader epochs of its records; the first starts at ``start_offset``.
    ``custom`` is what the store keeps of its objects (`segment_objects.py`).
    """

    segment_id: SegmentId
    topic: str
    start_offset: Offset
    end_offset: Offset
    max_timestamp: Millis
    broker_id: NodeId
    event_timestamp: Millis
    size: int
    epochs: tuple[EpochEntry, ...]
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    custom: bytes | None = None
    is_txn_index_empty: bool = False

    @property
    def partition(self) -> TopicIdPartition:
        """The partition it belongs to."""
        return self.segment_id.partition

    def end_of_epoch(self, epoch: LeaderEpoch) -> Offset:
        """Return the last offset of an epoch in this segment."""
        later = [entry.start_offset for entry in self.epochs if entry.epoch > epoch]
        return Offset(min(later) - 1) if later else self.end_offset


class SegmentUpdate(msgspec.Struct, frozen=True):
    """A change of the state of a segment."""

    segment_id: SegmentId
    topic: str
    event_timestamp: Millis
    state: SegmentState
    broker_id: NodeId
    custom: bytes | None = None


class PartitionDeletion(msgspec.Struct, frozen=True):
    """A change of the state of a partition that is deleted in remote storage."""

    partition: TopicIdPartition
    topic: str
    state: PartitionDeleteState
    event_timestamp: Millis
    broker_id: NodeId


def updated(metadata: SegmentMetadata, update: SegmentUpdate) -> SegmentMetadata:
    """Return the metadata after an update; what the store keeps stays unless it is given."""
    return msgspec.structs.replace(
        metadata,
        state=update.state,
        event_timestamp=update.event_timestamp,
        broker_id=update.broker_id,
        custom=metadata.custom if update.custom is None else update.custom,
    )
