"""Copies one segment to remote storage, or deletes one there, in steps that survive a crash.

    copy     metadata COPY_SEGMENT_STARTED -> objects -> read back -> COPY_SEGMENT_FINISHED
    delete   metadata DELETE_SEGMENT_STARTED -> remove objects -> DELETE_SEGMENT_FINISHED

A copy that is interrupted stays COPY_SEGMENT_STARTED, and the leader of the partition deletes it. A
leader that was replaced while it copied deletes its own copy: the new leader makes another one.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis, NodeId, TopicIdPartition
from ottla.runtime.ports import Random
from ottla.storage.checkpoints import encode_epochs
from ottla.storage.leader_epochs import EpochEntry
from ottla.storage.log import Log
from ottla.storage.segment import Segment
from ottla.tiering.copy_plan import Candidate, segment_epochs
from ottla.tiering.metadata_manager import RemoteLogMetadataManager, UpdateRejected
from ottla.tiering.segment_metadata import (
    SegmentId,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import RemoteStorageFailed, SegmentFiles, SegmentStore


class CopierPorts(NamedTuple):
    """This broker, ``remote.log.metadata.custom.metadata.max.bytes``, the time, and randomness."""

    node_id: NodeId
    custom_bytes_max: int
    now: Callable[[], Millis]
    random: Random


class CustomMetadataTooLarge(RemoteStorageFailed):
    """``remote.log.metadata.custom.metadata.max.bytes`` is less than the store needs."""


class SegmentCopier:
    """Copies and deletes segments. ``copying`` are the copies in progress here."""

    def __init__(
        self, ports: CopierPorts, store: SegmentStore, metadata: RemoteLogMetadataManager
    ) -> None:
        self._ports = ports
        self._store = store
        self._metadata = metadata
        self.copying: set[SegmentId] = set()

    async def copy(
        self,
        topic: str,
        at: TopicIdPartition,
        local: Log,
        candidate: Candidate,
        is_current: Callable[[], bool],
    ) -> SegmentMetadata | None:
        """Copy a sealed segment; None if it is gone, or if this broker no longer leads.

        Raises:
            RemoteStorageFailed, MetadataNotReady, UpdateRejected: it was not copied.
        """
        segment = next((e for e in local.segments if e.base_offset == candidate.base_offset), None)
        if segment is None:
            return None
        metadata = self._describe(topic, at, local, segment, candidate)
        files = _files(local, segment, candidate)
        self.copying.add(metadata.segment_id)
        try:
            await self._metadata.add(metadata)
            custom = await self._store_objects(metadata, files)
            if not is_current():
                await self.delete(metadata)
                return None
            await self._finish(metadata, custom)
        finally:
            self.copying.discard(metadata.segment_id)
        return metadata

    def _describe(
        self, topic: str, at: TopicIdPartition, local: Log, segment: Segment, candidate: Candidate
    ) -> SegmentMetadata:
        epochs = segment_epochs(local.epochs, candidate.base_offset, candidate.next_offset)
        return SegmentMetadata(
            SegmentId(at, self._ports.random.uuid()),
            topic,
            candidate.base_offset,
            type(candidate.next_offset)(candidate.next_offset - 1),
            segment.largest_timestamp,
            self._ports.node_id,
            self._ports.now(),
            segment.size,
            epochs,
            is_txn_index_empty=segment.txn_index.is_empty,
        )

    async def _store_objects(self, metadata: SegmentMetadata, files: SegmentFiles) -> bytes:
        """Store the objects; what was stored of a copy that fails is deleted, if possible."""
        try:
            custom = await self._store.copy(metadata, files)
            if len(custom) > self._ports.custom_bytes_max:
                raise CustomMetadataTooLarge(
                    f"{len(custom)} bytes of custom metadata; raise "
                    "remote.log.metadata.custom.metadata.max.bytes"
                )
        except (Fault, OSError):
            with suppress(Fault, OSError):  # the metadata stays: deleted in a later round
                await self.delete(metadata)
            raise
        return custom

    async def _finish(self, metadata: SegmentMetadata, custom: bytes) -> None:
        finished = SegmentState.COPY_SEGMENT_FINISHED
        try:
            await self._metadata.update(self._update(metadata, finished, custom))
        except UpdateRejected:
            # Another leader took over and has given up this copy.
            await self._store.delete(metadata)
            raise

    async def delete(self, metadata: SegmentMetadata, *, is_last: bool = True) -> None:
        """Delete a segment in remote storage. May be repeated after any failure.

        ``is_last`` False: its metadata stays, because another broker may still be storing objects
        of it; they are deleted by a later call.

        Raises:
            RemoteStorageFailed, MetadataNotReady: it is not all deleted yet.
        """
        try:
            started = SegmentState.DELETE_SEGMENT_STARTED
            await self._metadata.update(self._update(metadata, started))
            await self._store.delete(metadata)
            if is_last:
                finished = SegmentState.DELETE_SEGMENT_FINISHED
                await self._metadata.update(self._update(metadata, finished))
        except UpdateRejected:
            # Another broker deleted it, too. Objects may be left from before.
            await self._store.delete(metadata)

    def _update(
        self, metadata: SegmentMetadata, state: SegmentState, custom: bytes | None = None
    ) -> SegmentUpdate:
        return SegmentUpdate(
            metadata.segment_id,
            metadata.topic,
            self._ports.now(),
            state,
            self._ports.node_id,
            metadata.custom if custom is None else custom,
        )


def _files(local: Log, segment: Segment, candidate: Candidate) -> SegmentFiles:
    """Return what to store of a segment. Reads the indexes, which are small."""
    segment.next_offset()  # checks the offset index, and rebuilds a damaged one
    assert segment.largest is not None  # so it does with the time index
    contents = {
        ObjectKind.OFFSET_INDEX: segment.offset_index.contents(),
        ObjectKind.TIME_INDEX: segment.time_index.contents(),
        ObjectKind.SNAPSHOT: local.producer_snapshot(candidate.next_offset),
        ObjectKind.LEADER_EPOCHS: encode_epochs(_history(local, candidate)),
    }
    if not segment.txn_index.is_empty:
        contents[ObjectKind.TXN_INDEX] = segment.txn_index.contents()
    return SegmentFiles(segment.path, segment.size, contents)


def _history(local: Log, candidate: Candidate) -> list[EpochEntry]:
    """Return all leader epochs up to the end of a segment: a follower may begin after it."""
    return [each for each in local.epochs.entries if each.start_offset < candidate.next_offset]
