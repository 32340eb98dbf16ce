"""Where the metadata of remote segments is kept: the interface, and the one in memory.

Until a manager has read what it keeps of a partition, every call about it raises
`MetadataNotReady`: nothing is copied, so that no object is stored twice, and readers retry.
"""

from collections.abc import Iterable
from typing import Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from ottla.tiering.metadata_cache import MetadataCache
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentUpdate


class MetadataNotReady(Fault):
    """The metadata of remote segments has not been read yet; clients retry."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class UpdateRejected(Fault):
    """The state of a segment changed in between: another leader is at work."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class RemoteLogMetadataManager(Protocol):
    """The metadata of remote segments."""

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep the metadata of these partitions, which this broker leads or follows."""
        ...

    async def add(self, metadata: SegmentMetadata) -> None:
        """Record that a segment is being copied; returns once `cache` has it.

        Raises:
            MetadataNotReady, UpdateRejected
        """
        ...

    async def update(self, update: SegmentUpdate) -> None:
        """Record a new state of a segment; returns once `cache` has it.

        Raises:
            MetadataNotReady. UpdateRejected: the segment may not change to it any more.
        """
        ...

    def cache(self, partition: TopicIdPartition) -> MetadataCache:
        """Return the segments of a partition.

        Raises:
            MetadataNotReady: they are not all known yet.
        """
        ...

    def known(self) -> dict[TopicIdPartition, MetadataCache]:
        """Return all that is known, complete or not."""
        ...

    def is_responsible(self, partition: TopicIdPartition) -> bool:
        """Say whether this broker deletes the segments of a topic that no longer exists."""
        ...


class InMemoryMetadata:
    """`RemoteLogMetadataManager` in the memory of this process: for tests and a single node.

    A restart forgets everything, and remote segments with it.
    """

    def __init__(self) -> None:
        self._caches: dict[TopicIdPartition, MetadataCache] = {}

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Do nothing: everything is known."""

    async def add(self, metadata: SegmentMetadata) -> None:
        """Record that a segment is being copied."""
        if not self.cache(metadata.partition).add(metadata):
            raise UpdateRejected(f"{metadata.segment_id}: known already")

    async def update(self, update: SegmentUpdate) -> None:
        """Record a new state of a segment."""
        if not self.cache(update.segment_id.partition).update(update):
            raise UpdateRejected(f"{update.segment_id}: cannot become {update.state.name}")

    def cache(self, partition: TopicIdPartition) -> MetadataCache:
        """Return the segments of a partition."""
        return self._caches.setdefault(partition, MetadataCache())

    def known(self) -> dict[TopicIdPartition, MetadataCache]:
        """Return all that is known."""
        return self._caches

    def is_responsible(self, partition: TopicIdPartition) -> bool:
        """Return True: no other broker knows of them."""
        return True


def find_segment(
    metadata: RemoteLogMetadataManager,
    partition: TopicIdPartition,
    epoch: LeaderEpoch | None,
    offset: Offset,
) -> SegmentMetadata | None:
    """Return the readable segment with ``offset`` as written in ``epoch``, None if there is none.

    Raises:
        MetadataNotReady
    """
    cache = metadata.cache(partition)
    return None if epoch is None else cache.find(epoch, offset)
