"""From committed batches to the image, and from there to the publishers.

    raft --committed batches, snapshots--> BatchLoader --delta, image--> publishers, in their order
    raft --role, epoch, leader-----------> followers of the quorum's leadership, in list order

One batch is one publication, so no publisher sees part of a batch. An exception of a publisher or
the loader stops the node: its view of the cluster would be wrong.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image, Provenance
from ottla.metadata.publishing import Publication, Publisher
from ottla.metadata.replay import replay_all
from ottla.metadata.transactions import BatchLoader
from ottla.protocol.types import Offset
from ottla.raft.applier import CommittedBatch
from ottla.raft.core.effects import RoleChanged
from ottla.raft.core.log_view import LogPosition
from ottla.raft.snapshots import SnapshotReader

RoleFollower = Callable[[RoleChanged], None]
AppliedFollower = Callable[[Offset], None]


class LoadEvents(Protocol):
    """Counts what is loaded, to know when a snapshot is due."""

    def batch_loaded(self, size: int, records: int) -> None:
        """Count a batch of ``size`` bytes."""
        ...

    def snapshot_loaded(self, snapshot: LogPosition) -> None:
        """Start counting from a snapshot that was loaded."""
        ...


class Followers(msgspec.Struct, frozen=True):
    """Who is notified of what. ``on_applied`` gets the last applied offset, after publishers."""

    publishers: Sequence[Publisher] = ()
    on_role: Sequence[RoleFollower] = ()
    on_applied: Sequence[AppliedFollower] = ()
    events: LoadEvents | None = None


class ImageLoader:
    """`MetadataListener` of a node, and the committed state its controller starts from.

    The quorum is constructed with the loader, and some followers with the quorum: so followers are
    installed afterwards, once, before the log is read.
    """

    def __init__(self) -> None:
        self._loader = BatchLoader()
        self._settled = self._loader.image
        self._publication: Publication | None = None
        self._followers = Followers()

    def install(self, followers: Followers) -> None:
        """Install the followers; each publisher gets the empty image first."""
        assert self._publication is None, "installed twice"
        self._publication = Publication(followers.publishers)
        self._publication.start(self._loader.image)
        self._followers = followers

    @property
    def image(self) -> Image:
        """The committed image that every publisher has applied."""
        return self._loader.image

    @property
    def settled(self) -> Image:
        """The newest image that the log counts as applied: where a snapshot may end.

        `image` may be ahead of it by batches of the same commit.
        """
        return self._settled

    def is_in_transaction(self) -> bool:
        """Whether the log has begun a transaction of records and not ended it."""
        return self._loader.is_in_transaction()

    def on_role(self, change: RoleChanged) -> None:
        """Notify followers of a new role, epoch or leader."""
        for follower in self._followers.on_role:
            follower(change)

    async def on_committed(self, committed: Sequence[CommittedBatch]) -> None:
        """Apply and publish batch by batch, yielding to the event loop in between."""
        assert self._publication is not None
        for batch in committed:
            provenance = Provenance(Offset(batch.next_offset - 1), batch.epoch, batch.append_time)
            delta = await self._load(batch, provenance)
            if delta is not None:
                self._publication.publish(delta)
            self._note_applied(provenance.offset)
            await asyncio.sleep(0)
        self._settled = self._loader.image
        if self._followers.events is not None:
            for batch in committed:
                self._followers.events.batch_loaded(batch.size, len(batch.records))

    async def _load(self, batch: CommittedBatch, provenance: Provenance) -> Delta | None:
        """Replay a batch; the loop runs between its steps."""
        steps = self._loader.loading([record.message for record in batch.records], provenance)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                delta: Delta | None = end.value
                return delta
            await asyncio.sleep(0)

    async def on_snapshot(self, reader: SnapshotReader) -> None:
        """Replace the image by a snapshot, as one publication."""
        assert self._publication is not None
        snapshot = reader.snapshot
        image = Image(
            provenance=Provenance(
                Offset(snapshot.offset - 1), snapshot.epoch, reader.head().last_timestamp
            )
        )
        for batch in reader.batches():
            image = replay_all(image, [record.message for record in batch.records])
            await asyncio.sleep(0)
        self._publication.publish(self._loader.reset(image))
        self._settled = image
        if self._followers.events is not None:
            self._followers.events.snapshot_loaded(snapshot)
        self._note_applied(image.provenance.offset)

    def _note_applied(self, offset: Offset) -> None:
        for follower in self._followers.on_applied:
            follower(offset)
