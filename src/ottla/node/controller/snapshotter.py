"""Service: writes a snapshot of the metadata when one is due, in small steps."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ottla.metadata.image import Image
from ottla.metadata.snapshot_policy import SinceSnapshot, SnapshotLimits, decide_snapshot
from ottla.metadata.snapshot_records import snapshot_values
from ottla.protocol.types import Offset
from ottla.raft.core.log_view import LogPosition
from ottla.runtime.ports import Clock

log = logging.getLogger(__name__)


class SnapshotStore(Protocol):
    """Stores snapshots."""

    async def take_snapshot(
        self, end: Offset, batches: Iterator[Sequence[bytes]]
    ) -> LogPosition | None:
        """Write a snapshot; None if there is one at that offset or later."""
        ...


class Snapshotter:
    """Counts what the loader loads, and writes a snapshot at the limits or on request."""

    name = "metadata-snapshots"

    def __init__(
        self, store: SnapshotStore, image: Callable[[], Image], limits: SnapshotLimits, clock: Clock
    ) -> None:
        self._store = store
        self._image = image
        self._limits = limits
        self._clock = clock
        self._since = SinceSnapshot(clock.monotonic())
        self._wake = asyncio.Event()
        self.written: LogPosition | None = None

    def batch_loaded(self, size: int, records: int) -> None:
        """Count a batch; wake the service if a snapshot is due."""
        self._since = self._since.with_batch(size, records)
        if decide_snapshot(self._since, self._limits, self._clock.monotonic()) is not None:
            self._wake.set()

    def snapshot_loaded(self, snapshot: LogPosition) -> None:
        """Start counting again."""
        self._since = SinceSnapshot(self._clock.monotonic())

    def request(self) -> None:
        """Request a snapshot; it is written later."""
        self._since = self._since.with_request()
        self._wake.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Write a snapshot whenever one is due."""
        ready()
        while True:
            interval_s = self._limits.interval_ms / 1000 if self._limits.interval_ms else None
            try:
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self._write_if_due()

    async def _write_if_due(self) -> None:
        reason = decide_snapshot(self._since, self._limits, self._clock.monotonic())
        image = self._image()
        if reason is None or image.features.metadata_version() is None:
            return
        # Batches that arrive during the write count for the next snapshot.
        self._since = SinceSnapshot(self._clock.monotonic())
        end = Offset(image.provenance.offset + 1)
        self.written = await self._store.take_snapshot(end, snapshot_values(image))
        log.info("metadata snapshot end_offset=%d reason=%s", end, reason.value)
