"""The history before a remote segment's end, for a follower that begins to replicate after it.

A new follower does not copy what is in remote storage. It takes over the leader epochs and
producers as of the end of the last remote segment before the leader's local log, and fetches from
there on.
"""

from ottla.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from ottla.storage.directory.checkpoints import CorruptCheckpoint, decode_epochs
from ottla.storage.log.log import TierHistory
from ottla.storage.log.producer_snapshot_format import CorruptSnapshot
from ottla.storage.log.producer_snapshot_format import decode as decode_producers
from ottla.tiering.metadata_manager import RemoteLogMetadataManager, find_segment
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import ObjectDamaged, SegmentStore


class AuxiliaryStates:
    """Reads the state of followers from remote storage."""

    def __init__(self, metadata: RemoteLogMetadataManager, store: SegmentStore) -> None:
        self._metadata = metadata
        self._store = store

    async def find(
        self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: Offset
    ) -> TierHistory | None:
        """Return the history up to the end of the segment with ``offset``; None if there is none.

        Raises:
            MetadataNotReady, RemoteStorageFailed
        """
        metadata = find_segment(self._metadata, partition, epoch, offset)
        if metadata is None:
            return None
        epochs = await self._store.read(metadata, ObjectKind.LEADER_EPOCHS)
        producers = await self._store.read(metadata, ObjectKind.SNAPSHOT)
        try:
            return TierHistory(
                Offset(metadata.end_offset + 1),
                tuple(decode_epochs(epochs)),
                tuple(decode_producers(producers)),
            )
        except (CorruptCheckpoint, CorruptSnapshot) as error:
            key = self._store.key(metadata, ObjectKind.SNAPSHOT)
            raise ObjectDamaged(key, str(error)) from error
