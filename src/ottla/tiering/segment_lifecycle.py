"""Copies segments to remote storage, or deletes one there, in steps that survive a crash.

    copy     metadata COPY_SEGMENT_STARTED -> objects -> read back -> COPY_SEGMENT_FINISHED
    delete   metadata DELETE_SEGMENT_STARTED -> remove objects -> DELETE_SEGMENT_FINISHED

A copy that is interrupted stays COPY_SEGMENT_STARTED, and the leader of the partition deletes it. A
leader that was replaced while it copied deletes its own copy: the new leader makes another one.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis, NodeId, TopicIdPartition
from ottla.runtime.ports import Random
from ottla.storage.directory.checkpoints import encode_epochs
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.storage.log.log import Log
from ottla.storage.log.segment import Segment
from ottla.tiering.copy_plan import Candidate, segment_epochs
from ottla.tiering.metadata_manager import RemoteLogMetadataManager, UpdateRejected
from ottla.tiering.segment_metadata import (
    SegmentId,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import (
    RemoteStorageFailed,
    SegmentCopy,
    SegmentFiles,
    SegmentStore,
)


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
        candidates: Sequence[Candidate],
        is_current: Callable[[], bool],
    ) -> list[SegmentMetadata]:
        """Copy sealed segments together; return those copied.

        Segments that are gone are left out; all of them if this broker no longer leads.

        Raises:
            RemoteStorageFailed, MetadataNotReady, UpdateRejected: not all of them were copied.
        """
        copies: list[SegmentCopy] = []
        try:
            for candidate in candidates:
                found = self._prepare(topic, at, local, candidate) if is_current() else None
                if found is not None:
                    copies.append(found)
                    self.copying.add(found.metadata.segment_id)
                    await self._metadata.add(found.metadata)
            customs = await self._store_objects(copies) if is_current() else []
            if not is_current():
                await self._delete_all(copies)
                return []
            for each, custom in zip(copies, customs, strict=True):
                await self._finish(each.metadata, custom)
        finally:
            self.copying.difference_update(each.metadata.segment_id for each in copies)
        return [each.metadata for each in copies]

    def _prepare(
        self, topic: str, at: TopicIdPartition, local: Log, candidate: Candidate
    ) -> SegmentCopy | None:
        segment = next((e for e in local.segments if e.base_offset == candidate.base_offset), None)
        if segment is None:
            return None
        metadata = self._describe(topic, at, local, segment, candidate)
        return SegmentCopy(metadata, _files(local, segment, candidate))

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

    async def _store_objects(self, copies: Sequence[SegmentCopy]) -> list[bytes]:
        """Store the objects; what was stored of copies that fail is deleted, if possible."""
        try:
            customs = await self._store.copy(copies)
            largest = max((len(each) for each in customs), default=0)
            if largest > self._ports.custom_bytes_max:
                raise CustomMetadataTooLarge(
                    f"{largest} bytes of custom metadata; raise "
                    "remote.log.metadata.custom.metadata.max.bytes"
                )
        except (Fault, OSError):
            with suppress(Fault, OSError):  # the metadata stays: deleted in a later round
                await self._delete_all(copies)
            raise
        return customs

    async def _delete_all(self, copies: Iterable[SegmentCopy]) -> None:
        for each in copies:
            await self.delete(each.metadata)

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
