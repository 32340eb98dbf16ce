"""Reads stored segments in the background and checks them, on a worker thread, at a bounded rate.

    pass      every ``log.scrub.interval.ms`` read each log hosted here once, from its first
              segment to its end
    suspect   a read failed at an offset, or a follower fetched the same offset again: check the
              batches there at once
    verify    a log must be sound before it may be used: read all of it at once

A segment that is deleted, compacted, truncated or moved meanwhile is not damaged: the result of its
check is dropped. Between passes only one timer is left.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ottla.protocol.faults import CorruptBatch, StorageFailed, UnsupportedMagic
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.replication.event_wait import wait_or_timeout
from ottla.replication.host import Host
from ottla.replication.partition import Partition
from ottla.storage.log.inventory import MissingRange
from ottla.storage.log.log import Log
from ottla.storage.log.segment import Segment
from ottla.storage.scrub.batch_check import Cursor, DamagedRange, Part, Window, scrub_step
from ottla.storage.scrub.scrub_plan import ScrubPlan
from ottla.storage.scrub.scrub_spans import spans

log = logging.getLogger(__name__)

FIRST_PASS_MS_MAX: Final = 600_000
"""The latest start of the first pass."""
SUSPECT_PAUSE_MS: Final = 10_000
"""The minimum time between two checks of one suspected partition."""
SUSPECT_WINDOWS_MAX: Final = 8

# Called with each damaged range: partition, segment, range.
Found = Callable[[Partition, Segment, DamagedRange], None]
# Called with each range of offsets that the log lacks.
FoundMissing = Callable[[Partition, MissingRange], None]


class ScrubSettings(msgspec.Struct, frozen=True):
    """``log.scrub.interval.ms`` and ``log.scrub.max.bytes.per.second``."""

    interval_ms: int
    bytes_per_second: float


class _Current(msgspec.Struct, frozen=True):
    """A segment that is being checked, as it was when its check began."""

    partition: Partition
    log: Log
    segment: Segment
    part: Part


class LogScrubber:
    """Service: checks until cancelled. ``bytes_read`` counts since the start."""

    name = "log-scrubber"

    def __init__(
        self,
        host: Host,
        settings: ScrubSettings,
        found: Found,
        found_missing: FoundMissing = lambda *_: None,
    ) -> None:
        self._host = host
        self._settings = settings
        self._found = found
        self._found_missing = found_missing
        first_ms = min(settings.interval_ms, FIRST_PASS_MS_MAX)
        first_at = Millis(host.clock.monotonic() + first_ms)
        self._plan = ScrubPlan(settings.interval_ms, first_at)
        self._suspects: dict[Partition, Offset] = {}
        self._suspected_at: dict[Partition, Millis] = {}
        self._to_verify: dict[Partition, Callable[[], None]] = {}
        self._was_cut: set[Partition] = set()
        self._changed = asyncio.Event()
        self.bytes_read = 0
        self.passes = 0
        host.log_events.on_truncated(self._was_cut.add)
        host.log_events.on_suspected(self.suspect)
        host.log_events.on_check(self.verify)

    # -- requests ----------------------------------------------------------------

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Check the batches at ``offset`` soon; at most once in ten seconds per partition."""
        now = self._host.clock.monotonic()
        last = self._suspected_at.get(partition)
        if last is None or now - last >= SUSPECT_PAUSE_MS:
            self._suspected_at[partition] = now
            self._suspects[partition] = offset
            self._changed.set()

    def verify(self, partition: Partition, done: Callable[[], None]) -> None:
        """Check a whole log soon, and call ``done`` afterwards."""
        before = self._to_verify.get(partition)
        self._to_verify[partition] = done if before is None else partial(_call_both, before, done)
        self._changed.set()

    # -- the loop --------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Check what is due, until cancelled."""
        ready()
        while True:
            await self._wait()
            await self._urgent()
            if not self._plan.wait_ms(self._host.clock.monotonic()):
                await self._scrub_next()

    async def _wait(self) -> None:
        """Wait until a pass is due, or a check is requested."""
        self._changed.clear()
        wait_ms = self._plan.wait_ms(self._host.clock.monotonic())
        if not wait_ms or self._suspects or self._to_verify:
            return
        await wait_or_timeout(self._changed, wait_ms)

    async def _urgent(self) -> None:
        """Run the requested checks."""
        while self._suspects:
            partition, offset = self._suspects.popitem()
            await self._check_at(partition, offset)
        while self._to_verify:
            partition, done = self._to_verify.popitem()
            await self._scrub(partition, is_urgent=True)
            done()

    async def _scrub_next(self) -> None:
        now = self._host.clock.monotonic()
        if not self._plan.is_passing:
            self._suspected_at.clear()
            self._plan.begin(self._shuffled(), now)
        name = self._plan.next(now)
        if name is not None:
            partition = self._host.partitions.get(*name)
            if partition is not None:
                await self._scrub(partition)
        self.passes += not self._plan.is_passing

    def _shuffled(self) -> list[TopicPartition]:
        """Return the logs here in random order: after each restart others come first."""
        names = [partition.name for partition in self._host.partitions]
        for at in range(len(names) - 1, 0, -1):
            other = self._host.ports.random.below(at + 1)
            names[at], names[other] = names[other], names[at]
        return names

    # -- one log ---------------------------------------------------------------

    async def _scrub(self, partition: Partition, *, is_urgent: bool = False) -> None:
        """Check a log from its start to its current end."""
        self._was_cut.discard(partition)
        checked = partition.log
        for segment, cursor, part in spans(checked):
            current = _Current(partition, checked, segment, part)
            if not await self._check(current, cursor):
                return
            if not is_urgent:
                await self._urgent_meanwhile()

    async def _urgent_meanwhile(self) -> None:
        if self._suspects or self._to_verify:
            await self._urgent()

    async def _check_at(self, partition: Partition, offset: Offset) -> None:
        """Check the batches at ``offset``; the whole segment if they are damaged.

        Only a check from the start of a segment knows which offsets a damaged batch should have.
        """
        self._was_cut.discard(partition)
        checked = partition.log
        if partition.offline is not None or partition.is_closed:
            return
        below = [each for each in spans(checked) if each.segment.base_offset <= offset]
        if not below:
            return
        segment, cursor, part = below[-1]
        current = _Current(partition, checked, segment, part)
        try:
            found = segment.find(offset)
        except (CorruptBatch, UnsupportedMagic, FileNotFoundError):
            found = None
        except OSError as error:
            self._host.storage_failed(partition.directory, str(error))
            return
        if found is not None:
            near: Cursor | None = Cursor(found.position, segment.base_offset, cursor.epoch)
            for _ in range(SUSPECT_WINDOWS_MAX):
                window = None if near is None else await self._step(current, near)
                if window is None:
                    return
                if window.damage is not None:
                    break
                near = window.cursor
            else:
                return
        await self._check(current, cursor)

    async def _check(self, current: _Current, cursor: Cursor | None) -> bool:
        """Check a segment from ``cursor`` on; False when it is no longer part of the log."""
        if not current.segment.size:
            self._check_end(current, current.segment.base_offset)
            return self._is_current(current)
        is_damaged = False
        while cursor is not None:
            window = await self._step(current, cursor)
            if window is None:
                break
            if window.damage is not None:
                is_damaged = True
                self._report(current, window.damage)
            if window.offset_end is not None and not is_damaged:
                self._check_end(current, window.offset_end)
            cursor = window.cursor
        return self._is_current(current)

    def _check_end(self, current: _Current, end: Offset) -> None:
        """Check that a sealed segment reaches the next one, and its index of aborted transactions.

        A segment that was cut at the border of two batches has only valid batches.
        """
        checked, segment = current.log, current.segment
        if segment is checked.segments[-1] or segment.size != current.part.end:
            return  # it was the active one when the check began: its end was not read
        if checked.is_hole_after(segment, end):
            self._report_missing(current, f"the segment ends at offset {end}")
        elif checked.check_aborted(segment):
            log.warning("transaction index rebuilt partition=%s file=%s",
                        current.partition, segment.txn_index.path)  # fmt: skip

    def _report_missing(self, current: _Current, reason: str) -> None:
        """Report that the offsets of a segment are not all there."""
        checked, segment = current.log, current.segment
        if segment is checked.segments[-1]:
            checked.roll()
        bases = (each.base_offset for each in checked.segments)
        end = min((base for base in bases if base > segment.base_offset), default=None)
        start = max(segment.base_offset, checked.log_start_offset)
        if end is not None and start < end:
            missing = MissingRange(start, end, segment.path, reason)
            self._found_missing(current.partition, missing)

    async def _step(self, current: _Current, cursor: Cursor) -> Window | None:
        """Check one window at the allowed rate; None at the end, or if the log has changed."""
        if cursor.position >= current.part.end or not self._is_current(current):
            return None
        disk, worker = self._host.ports.disk, self._host.ports.worker
        step = partial(scrub_step, disk, current.segment.path, cursor, current.part)
        try:
            window = await worker.run(step)
        except FileNotFoundError:
            if self._is_current(current):
                self._report_missing(current, "the segment is missing")
            return None
        except OSError as error:
            self._read_failed(current.partition, error)
            return None
        self.bytes_read += window.size
        await asyncio.sleep(window.size / self._settings.bytes_per_second)
        return window if self._is_current(current) else None

    def _report(self, current: _Current, damage: DamagedRange) -> None:
        if damage.offset_end > current.log.log_start_offset:
            self._found(current.partition, current.segment, damage)

    def _read_failed(self, partition: Partition, error: OSError) -> None:
        """Take the directory offline: a disk that cannot be read has failed."""
        fault = StorageFailed(partition.directory.path, str(error))
        self._host.storage_failed(partition.directory, fault.reason)

    def _is_current(self, current: _Current) -> bool:
        """Whether the checked bytes are still those of the log."""
        partition = current.partition
        return (
            partition.offline is None
            and not partition.is_closed
            and partition.log is current.log
            and not current.log.is_failed
            and partition not in self._was_cut
            and any(each is current.segment for each in current.log.segments)
        )


def _call_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()
