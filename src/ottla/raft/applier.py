"""Hands what is committed to the listener: in order, each record once per life, in small steps.

The listener gets a snapshot first where the log no longer begins at the start, or where that is
the shorter way; then batch after batch up to the high watermark. Only here are records of the
log decoded. A record that cannot be decoded ends the node: skipping it would leave this node
with another state than all others.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.records.batch import BatchHeader, batches
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.core.effects import RoleChanged
from ottla.raft.core.log_view import LogPosition
from ottla.raft.metadata_log import MetadataLog
from ottla.raft.snapshots import SnapshotReader

# Bytes that are read and decoded between two turns of the event loop; a batch is never split.
STEP_BYTES: Final = 64 * 1024


class CommittedBatch(msgspec.Struct, frozen=True):
    """One batch of the log, committed; without records where it is the quorum's own.

    ``size`` is its length in the log, in bytes.
    """

    base_offset: Offset
    next_offset: Offset
    epoch: LeaderEpoch
    append_time: Millis
    records: tuple[Versioned, ...]
    size: int = 0


class MetadataListener(Protocol):
    """Who wants to know. What it raises ends the node."""

    def on_role(self, change: RoleChanged) -> None:
        """Learn of a new role, epoch or leader, at once: committed records may come later.

        A new leader may decide once `on_committed` has reached ``change.reign_start``.
        """
        ...

    async def on_committed(self, committed: Sequence[CommittedBatch]) -> None:
        """Apply batches, which follow what came before without a gap."""
        ...

    async def on_snapshot(self, reader: SnapshotReader) -> None:
        """Forget everything and begin from a snapshot. The reader is closed after."""
        ...


class Applier:
    """Follows the high watermark. `applied` never falls."""

    def __init__(self, log: MetadataLog, listener: MetadataListener) -> None:
        self.applied = Offset(0)
        self._log = log
        self._listener = listener
        self._committed = Offset(0)
        self._wake = asyncio.Event()

    def advance(self, committed: Offset) -> None:
        """Learn that everything below ``committed`` is."""
        self._committed = committed
        self._wake.set()

    async def run(self) -> None:
        """Apply for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.applied < self._committed:
                snapshot = self._snapshot_to_load()
                if snapshot is not None:
                    await self._load(snapshot)
                else:
                    await self._apply_some()
                await asyncio.sleep(0)

    def _snapshot_to_load(self) -> LogPosition | None:
        latest = self._log.latest_snapshot()
        is_needed = self.applied == 0 or self.applied < self._log.start_offset()
        if latest is None or latest.offset <= self.applied or not is_needed:
            return None
        return latest

    async def _load(self, snapshot: LogPosition) -> None:
        reader = self._log.snapshots.open(snapshot)
        try:
            await self._listener.on_snapshot(reader)
        finally:
            reader.close()
        self.applied = snapshot.offset

    async def _apply_some(self) -> None:
        data = self._log.read(self.applied, STEP_BYTES, self._committed)
        committed = [_decoded(data, start, header) for start, header in batches(data)]
        assert committed, f"nothing to read at {self.applied} below {self._committed}"
        assert committed[0].base_offset == self.applied, "batches follow without a gap"
        await self._listener.on_committed(committed)
        self.applied = committed[-1].next_offset


def _decoded(data: bytes, start: int, header: BatchHeader) -> CommittedBatch:
    records: tuple[Versioned, ...] = ()
    if not header.is_control:
        records = tuple(
            decode_metadata_record(record.value or b"") for record in read_records(data, start)
        )
    return CommittedBatch(
        header.base_offset,
        header.next_offset,
        header.leader_epoch,
        header.max_timestamp,
        records,
        header.size,
    )
