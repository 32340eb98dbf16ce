"""Passes committed records to the listener: in order, each record once per process, in small steps.

The listener first gets a snapshot if the log no longer starts at offset 0, or if loading the
snapshot is cheaper; then batch after batch up to the high watermark. Records of the log are decoded
only here. A record that cannot be decoded stops the node: skipping it would leave this node in a
different state from all others.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.records.batch import BatchHeader, batches
from ottla.protocol.records.reader import iter_records
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.core.effects import RoleChanged
from ottla.raft.core.log_view import LogPosition
from ottla.raft.metadata_log import MetadataLog
from ottla.raft.snapshots import SnapshotReader

# Bytes read at once; a batch is never split.
STEP_BYTES: Final = 64 * 1024
# Records decoded before the event loop runs other tasks; each takes about 0.01 ms.
STEP_RECORDS: Final = 256


class CommittedBatch(msgspec.Struct, frozen=True):
    """One committed batch of the log; ``records`` is empty for a control batch.

    ``size`` is the length in the log, in bytes.
    """

    base_offset: Offset
    next_offset: Offset
    epoch: LeaderEpoch
    append_time: Millis
    records: tuple[Versioned, ...]
    size: int = 0


class MetadataListener(Protocol):
    """Receives roles and committed records. An exception it raises stops the node."""

    def on_role(self, change: RoleChanged) -> None:
        """Handle a new role, epoch or leader, at once: committed records may follow later.

        A new leader may decide once `on_committed` has reached ``change.epoch_start_offset``.
        """
        ...

    async def on_committed(self, committed: Sequence[CommittedBatch]) -> None:
        """Apply batches that continue the earlier ones without a gap."""
        ...

    async def on_snapshot(self, reader: SnapshotReader) -> None:
        """Drop all state and start from a snapshot. The reader is closed afterwards."""
        ...


class Applier:
    """Follows the high watermark. `applied` never decreases."""

    def __init__(self, log: MetadataLog, listener: MetadataListener) -> None:
        self.applied = Offset(0)
        self._log = log
        self._listener = listener
        self._committed = Offset(0)
        self._wake = asyncio.Event()

    def advance(self, committed: Offset) -> None:
        """Record that everything below ``committed`` is committed."""
        self._committed = committed
        self._wake.set()

    async def run(self) -> None:
        """Apply committed records until cancelled."""
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
        committed = [await _decoded(data, start, header) for start, header in batches(data)]
        assert committed, f"nothing to read at {self.applied} below {self._committed}"
        assert committed[0].base_offset == self.applied, "a gap between batches"
        await self._listener.on_committed(committed)
        self.applied = committed[-1].next_offset


async def _decoded(data: bytes, start: int, header: BatchHeader) -> CommittedBatch:
    records: list[Versioned] = []
    if not header.is_control:
        for record in iter_records(data, start):
            records.append(decode_metadata_record(record.value or b""))
            if len(records) % STEP_RECORDS == 0:
                await asyncio.sleep(0)
    return CommittedBatch(
        header.base_offset,
        header.next_offset,
        header.leader_epoch,
        header.max_timestamp,
        tuple(records),
        header.size,
    )
