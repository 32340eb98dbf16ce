"""One partition's log: append, read, truncate, roll, flush.

Synchronous and without locks: it has one caller, and no call waits for anything but the disk. A
call that returned has its effect in memory and in the page cache; it is durable once the caller
has synced a `flush_plan`. A disk failure is final: from then on every write raises
`StorageFailed`, and reads are still served.

    log_start <= recovery_point <= log_end          log_start <= last_stable <= high_watermark
        |              |              |             high_watermark <= log_end
        |    synced    |  page cache  |             the next record gets log_end

Invariant: every offset in [local_log_start, log_end) that was not compacted away is in exactly one
segment, at the place that `append_*` returned for it. The local log start differs from the log
start only in a log with segments in remote storage (KIP-405): those before it are only there.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.protocol.faults import OffsetMovedToTieredStorage, OffsetOutOfRange, StorageFailed
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset
from ottla.runtime.ports import Clock, Disk, Random
from ottla.runtime.trusted_time import TrustedClock
from ottla.storage.directory.checkpoints import LEADER_EPOCH, write_epochs, write_epochs_unsynced
from ottla.storage.directory.disk_health import DiskHealth
from ottla.storage.log.deleted_segments import DeletedSegments
from ottla.storage.log.files import LogFiles
from ottla.storage.log.flushing import FlushPlan, Unsynced, creation_of
from ottla.storage.log.inventory import InventoryDraft
from ottla.storage.log.kept_until import write_kept_until
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint
from ottla.storage.log.log_losses import LogLosses
from ottla.storage.log.log_recovery import LogLoader
from ottla.storage.log.log_tail import NO_BATCH
from ottla.storage.log.producer_replay import collect_aborted, replay
from ottla.storage.log.producer_snapshot_format import encode as encode_producers
from ottla.storage.log.producer_state import ProducerEntry, ProducerState
from ottla.storage.log.read import (
    CorruptStoredBatch,
    Slice,
    SliceRequest,
    TimestampedOffset,
    empty_slice,
    find_max_timestamp,
    find_slice,
    find_timestamp,
)
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments
from ottla.storage.log.transaction_index import AbortedTxn
from ottla.storage.scrub.damaged_ranges import DamagedRanges

NEW: Final = LogCheckpoint()
FIRST: Final = Offset(0)


class TierHistory(NamedTuple):
    """What a log takes over from the part before ``end_offset``, which is in remote storage."""

    end_offset: Offset
    epochs: tuple[EpochEntry, ...]
    producers: tuple[ProducerEntry, ...]


class Log(LogLosses):
    """A log in ``directory``. Open one with `Log.open`."""

    log_end_offset: Offset
    producers: ProducerState
    epochs: LeaderEpochs
    _health: DiskHealth
    _appended_epoch: int
    has_deleted_segments: bool
    has_unsynced_roll: bool
    _segments: Segments
    _log_start: Offset
    _recovery_point: Offset
    _high_watermark: Offset

    def __init__(self, files: LogFiles, config: LogConfig, clock: Clock, loaded: LogLoader) -> None:
        self._files = files
        self._config = config
        self._clock = TrustedClock.of(clock)
        self._random: Random | None = None
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._health = DiskHealth(files.directory)
        self._appended_epoch = NO_BATCH
        self._are_epochs_written = loaded.are_epochs_written
        # A log without a batch may be a new one, created by this process or an earlier one.
        self._is_created_durably = any(segment.size for segment in loaded.segments)
        self._unsynced = Unsynced(files)
        self.deleted_segments = DeletedSegments(clock)
        self.has_deleted_segments = self.has_unsynced_roll = False
        self._kept_until = Millis(0)  # monotonic; see `keep_segments`
        self._log_start = loaded.log_start
        self._recovery_point = loaded.recovery_point
        self._high_watermark = max(loaded.log_start, loaded.segments.first.base_offset)
        self.remote_end = Offset(0)  # everything below is in remote storage; its manager sets it
        self.log_end_offset = self._opened_end = loaded.log_end
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.report = loaded.report
        self.damaged_ranges = DamagedRanges()
        self._inventory = loaded.inventory
        self._lost_end = FIRST  # the log was once longer, and other replicas may have that
        self._schedule_removal(loaded.dropped)
        self._is_delay_known = loaded.kept_ms is not None
        if loaded.kept_ms:
            self._kept_until = Millis(self._clock.monotonic() + loaded.kept_ms)
            self._schedule_removal(loaded.kept, loaded.kept_ms)
        if self._recovery_point < self.log_end_offset:
            self.has_unsynced_roll = True
            for segment in loaded.unsynced():
                self._unsynced.add_segment(segment)
            self._unsynced.add_names(f"{files.directory}/{LEADER_EPOCH}")
        self.producers.on_high_watermark(self._high_watermark)
        if self._inventory.begin(self._segments.active, self.log_end_offset):
            self._write_inventory()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        clock: Clock,
        checkpoint: LogCheckpoint = NEW,
        random: Random | None = None,
    ) -> "Log":
        """Open or create the log in ``directory``; see `log_recovery.py` for the steps.

        ``random`` spreads rolling over ``segment.jitter.ms``. A failing disk raises StorageFailed.
        """
        clock = TrustedClock.of(clock)
        loader = LogLoader(files := LogFiles(disk, directory), config, checkpoint, clock.expiry())
        try:
            loader.load()
        except OSError as error:
            raise StorageFailed(directory, str(error)) from error
        log = cls(files, config, clock, loader)
        log._random = random
        for segment in log._segments:
            segment.jitter_ms = log._jitter_ms()
        return log

    # -- state ---------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return self._files.directory

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._config

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed; the log start if an open transaction began before it."""
        return max(self._log_start, self.producers.last_stable_offset(self._high_watermark))

    @property
    def local_log_start_offset(self) -> Offset:
        """The first offset that may be read from this disk."""
        return max(self._log_start, self._segments.first.base_offset)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; the last one is active."""
        return tuple(self._segments)

    @property
    def size(self) -> int:
        """Bytes of the batches of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def is_failed(self) -> bool:
        """Whether the disk failed; nothing can be written any more."""
        return self._health.failure is not None

    def configure(self, config: LogConfig) -> None:
        """Apply new settings."""
        self._config = config
        self.producers.expiration_ms = config.producer_id_expiration_ms
        for segment in self._segments:
            segment.configure(config)

    # -- leader epochs -------------------------------------------------------

    def start_epoch(self, epoch: LeaderEpoch) -> None:
        """Record that the leader of ``epoch`` takes over at the log's end, before it writes.

        In memory only: a log that is opened again drops epochs without a batch.
        """
        self._health.check()
        if epoch >= 0 and self.epochs.assign(epoch, self.log_end_offset):
            self._are_epochs_written = False

    def _begin_epoch(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """Write the leader epochs before the first batch of a new one; see ADR 0064.

        They become durable with the batch: until then, recovery reads them from the batches. The
        names of a new log are durable before it holds a batch.
        """
        if not self._is_created_durably:
            with self._health:
                for file in creation_of(self._files):
                    file.sync()
            self._is_created_durably = True
        if epoch >= 0 and self.epochs.assign(epoch, offset):
            self._are_epochs_written = False
        if not self._are_epochs_written:
            with self._health:
                entries = self.epochs.entries
                path = write_epochs_unsynced(self._files.disk, self.directory, entries)
            self._unsynced.add_names(path)
            self._are_epochs_written = True
        self._appended_epoch = epoch

    def _write_epochs(self) -> None:
        """Write the leader epochs durably, after a change to those of existing batches."""
        self._appended_epoch = NO_BATCH
        with self._health:
            write_epochs(self._files.disk, self.directory, self.epochs.entries)
        self._are_epochs_written = True

    # -- roll ----------------------------------------------------------------

    def roll(self, base: Offset = FIRST) -> None:
        """Start a new segment, unless the active one is empty; at ``base`` if that is ahead."""
        self._health.check()
        self._roll(max(base, self.log_end_offset), self._clock.now())
        self.log_end_offset = max(base, self.log_end_offset)

    def _roll(self, base: Offset, now: Millis) -> Segment:
        """Seal the active segment and start one at ``base``.

        ``base`` is the log's end even where the next batch leaves a gap, unless the gap is too
        large: a segment that begins at the end of the previous one shows that nothing was lost.
        """
        active = self._segments.active
        if active.size == 0 and active.base_offset == base:
            return active
        with self._health:
            active.seal()
            segment = Segment.create(self._files, base, self._config, now=now)
            segment.jitter_ms = self._jitter_ms()
            self._segments.add(segment)
            self.has_unsynced_roll = True
            self.producers.skip_to(base)
            taken = self._snapshots.take(self.producers)
        self._unsynced.add_segment(active)
        self._unsynced.add_names(*taken)
        return segment

    def _jitter_ms(self) -> int:
        limit = min(self._config.segment_jitter_ms, self._config.segment_ms)
        return self._random.below(limit) if self._random is not None and limit > 0 else 0

    # -- durability ----------------------------------------------------------

    def flush_plan(self) -> FlushPlan:
        """Return what to sync so that everything in the log now is durable.

        Pass the plan to `flushed` afterwards.
        """
        self._health.check()
        plan = self._unsynced.plan(self._segments.active, self.log_end_offset)
        if self._is_created_durably:
            return plan
        return plan._replace(files=(*creation_of(self._files), *plan.files))

    def flushed(self, plan: FlushPlan) -> None:
        """Record that all files of ``plan`` were synced."""
        if self._unsynced.is_current(plan):
            self._unsynced.done(plan)
            self._is_created_durably = True
            self._recovery_point = max(self._recovery_point, plan.upto)
            self.has_unsynced_roll = self._segments.active.base_offset > self._recovery_point
            if self._inventory.noted_end < self._segments.active.base_offset:
                self._note_sealed()

    def flush(self) -> None:
        """Sync now, blocking; for shutdown. After one failure it never succeeds."""
        plan = self.flush_plan()
        with self._health:
            for file in plan.files:
                file.sync()
        self.flushed(plan)

    # -- read ----------------------------------------------------------------

    def read(
        self, offset: Offset, bytes_max: int, *, upto: Offset, minimum_one: bool = True
    ) -> Slice:
        """Locate the batches from ``offset`` on; empty at or after ``upto``.

        The slice begins with the batch that holds ``offset``, or with the next one where
        compaction has removed it. It ends before the first batch that is not entirely below
        ``upto``, with the segment, or anywhere at ``bytes_max``. A first batch larger than that is
        returned whole (``minimum_one``), otherwise nothing is.

        Raises:
            OffsetOutOfRange: below the log's start or above its end.
            OffsetMovedToTieredStorage: only in remote storage.
            CorruptBatch: the file is damaged there. StorageFailed: it cannot be read.
        """
        if not self._log_start <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.directory}: {offset} is not in {self._log_start}..{self.log_end_offset}"
            )
        if self.damaged_ranges:
            self.damaged_ranges.check(offset)
        if offset < self._segments.first.base_offset:
            start = self.local_log_start_offset
            raise OffsetMovedToTieredStorage(f"{self.directory}: {offset} is before {start}")
        wanted = SliceRequest(offset, bytes_max, min(upto, self.log_end_offset), minimum_one)
        with self._health:
            if offset >= wanted.upto:
                return empty_slice(self._segments, offset)
            try:
                found = find_slice(self._segments, wanted, self.log_end_offset)
            except FileNotFoundError as error:
                raise self._segment_lost(error, wanted.offset) from error
            return self.damaged_ranges.clip(found) if self.damaged_ranges else found

    def _segment_lost(self, error: FileNotFoundError, offset: Offset) -> CorruptStoredBatch:
        """Return the fault of a segment that was removed; the scrubber has it fetched again."""
        return CorruptStoredBatch(f"{self.directory}: {error}", offset)

    def offset_for_timestamp(self, timestamp: Millis) -> TimestampedOffset | None:
        """Return the first record by offset that is not older than ``timestamp``."""
        with self._health:
            try:
                size_max = self.config.max_decompressed_message_bytes
                return find_timestamp(self._segments, timestamp, self._log_start, size_max)
            except FileNotFoundError as error:
                raise self._segment_lost(error, self._log_start) from error

    def max_timestamp(self) -> TimestampedOffset | None:
        """Return the record with the largest timestamp; None when no record has one."""
        with self._health:
            try:
                size_max = self.config.max_decompressed_message_bytes
                return find_max_timestamp(self._segments, size_max)
            except FileNotFoundError as error:
                raise self._segment_lost(error, self._log_start) from error

    def collect_aborted(self, start: Offset, upto: Offset) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap ``[start, upto)``, for read_committed."""
        with self._health:
            return collect_aborted(self._segments, self._snapshots, start, upto)

    def producer_snapshot(self, offset: Offset) -> bytes:
        """Return a producer snapshot as of ``offset``, which must be the base of a segment."""
        with self._health:
            producers = ProducerState(self._config.producer_id_expiration_ms)
            producers.clear(self._segments.first.base_offset)
            self._snapshots.load(producers, offset, self._clock.now())
            replay(producers, self._segments, offset)
            return encode_producers(producers.entries())

    # -- damage --------------------------------------------------------------

    def forget_removed_damage(self) -> None:
        """Forget damaged ranges that are no longer part of the log."""
        if self.damaged_ranges:
            self.damaged_ranges.keep_current(self._segments, self._log_start, self.log_end_offset)

    def patch(self, segment: Segment, position: int, data: Buffer) -> None:
        """Overwrite damaged bytes with checked ``data``. Raises StorageFailed: not written.

        Bytes after the end of a sealed segment are part of the damage, and are cut off.
        """
        self._health.check()
        with self._health:
            segment.file.pwrite(data, position)
            if segment is not self._segments.active:
                segment.drop_unnoted()

    # -- truncate ------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> bool:
        """Remove every batch that holds or follows ``offset``; False when there is none.

        The log then ends where its last batch does, at ``offset`` or before. The recovery point
        falls with it: see `recovery_point` for what the caller must do.

        Raises:
            StorageFailed: the log is shorter, or as it was.
        """
        self._health.check()
        assert offset >= 0, offset
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):  # epochs without a batch
                self._appended_epoch, self._are_epochs_written = NO_BATCH, False
            return False
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._unsynced.truncated()
        self._inventory.forget_from(offset)
        self._lost_end = FIRST  # the leader's log decides now
        self._log_start = min(self._log_start, offset)
        self._write_inventory()
        gone = self._segments.above(offset)
        with self._health:
            self._remove_segments(reversed(gone))
            self._segments.active.truncate_to(offset)
            end = self._segments.active.next_offset()
        self._cut_to(end, [segment.base_offset for segment in gone])
        return True

    def truncate_fully_and_start_at(
        self, offset: Offset, log_start: Offset | None = None, *, keep_ms: int = 0
    ) -> None:
        """Remove everything and start at ``offset``, for a follower that lags too far behind.

        ``log_start`` is the log's start where it is in remote storage, below ``offset``. The
        files stay for ``keep_ms`` under ``.deleted``, or for ``file.delete.delay.ms`` if longer.
        """
        self._health.check()
        self._unsynced.truncated()
        self._inventory.forget_from(FIRST)
        self._lost_end = FIRST
        self._log_start = offset if log_start is None else min(log_start, offset)
        self._write_inventory()
        gone = list(self._segments)
        now = self._clock.now()
        with self._health:
            # Newest first: a crash leaves a prefix, or nothing.
            for segment in reversed(gone):
                segment.mark_deleted()
            segment = Segment.create(self._files, offset, self._config, now=now)
            self._files.disk.sync_dir(self.directory)
            for old in gone:
                self._segments.remove(old)
            self._segments.add(segment)
            self._schedule_removal(gone, keep_ms)
            self._snapshots.remove(self._snapshots.offsets)
        self.forget_removed_damage()
        self.epochs.clear()
        self._write_epochs()
        self.log_end_offset = self._high_watermark = self._recovery_point = offset
        self.remote_end = Offset(0)
        self.producers.clear(offset)

    def start_in_tier(self, history: "TierHistory", log_start: Offset) -> None:
        """Remove everything and start where a history in remote storage ends (KIP-405)."""
        self.truncate_fully_and_start_at(history.end_offset, log_start)
        for entry in history.epochs:
            self.epochs.assign(*entry)
        self.epochs.truncate_from_start(log_start)
        self._write_epochs()
        self.producers.load(history.producers, history.end_offset, self._clock.now())
        with self._health:
            taken = self._snapshots.take(self.producers)
        self._unsynced.add_names(*taken)

    def _cut_to(self, offset: Offset, gone: Sequence[Offset]) -> None:
        """Bring all derived state in step with a log that now ends at ``offset``."""
        self.log_end_offset = offset
        self.forget_removed_damage()
        self._log_start = min(self._log_start, offset)
        # What is appended now may differ from what was copied to remote storage.
        self.remote_end = min(self.remote_end, offset)
        self._high_watermark = min(self._high_watermark, offset)
        self._recovery_point = min(self._recovery_point, offset)
        if self.epochs.truncate_from_end(offset):
            self._write_epochs()
        with self._health:
            self._snapshots.remove_at(gone)
            self._snapshots.remove_above(offset)
            self.producers.clear(self._segments.first.base_offset)
            self._snapshots.load(self.producers, offset, self._clock.expiry())
            replay(self.producers, self._segments, offset)
        self.producers.on_high_watermark(self._high_watermark)

    # -- the front of the log ------------------------------------------------

    def keep_segments(self, delay_ms: int) -> None:
        """Keep segments below the log start for ``delay_ms``, unless retention deletes them.

        They cannot be read any more: the delay is for an operator, if the start is wrong. It
        goes on after a restart.
        """
        self._kept_until = Millis(self._clock.monotonic() + delay_ms)
        if self.has_unwritten_start:
            self._write_inventory()
        with self._health:
            until = Millis(self._clock.expiry() + delay_ms)
            write_kept_until(self._files.disk, self.directory, until)

    def resume_keeping(self, delay_ms: int) -> None:
        """Go on keeping what the log kept when it was closed, for ``delay_ms`` at most.

        If it is not known until when, the delay begins again.
        """
        limit = Millis(self._clock.monotonic() + delay_ms)
        if self._is_delay_known:
            self._kept_until = min(self._kept_until, limit)
        elif self.has_segments_below_start:
            self.keep_segments(delay_ms)

    @property
    def deletable_start(self) -> Offset:
        """The offset below which segments may be deleted, whatever the retention settings say."""
        is_kept = self._clock.monotonic() < self._kept_until
        return self._segments.first.base_offset if is_kept else self._log_start

    @property
    def has_segments_below_start(self) -> bool:
        """Whether a whole segment lies below the log start."""
        return len(self._segments) > 1 and self._segments.base_offsets[1] <= self._log_start

    @property
    def is_keeping_segments(self) -> bool:
        """Whether files below the log start are kept; see `keep_segments`."""
        if self._clock.monotonic() >= self._kept_until:
            return False
        return self.has_segments_below_start or self.has_deleted_segments

    def advance_log_start(self, offset: Offset) -> bool:
        """Make ``offset`` the first readable one; deletes nothing. False if it is not larger.

        In memory, unless the log keeps no inventory: see `has_unwritten_start`. A crash before
        it is written brings the old start back.

        Raises:
            OffsetOutOfRange: above the high watermark.
        """
        self._check_replicated(offset)
        if offset <= self._log_start:
            return False
        self._health.check()
        self._log_start = offset
        self.producers.on_log_start(offset)
        is_cut = self.epochs.truncate_from_start(offset)
        if not self._inventory.start_advanced(offset) and is_cut:
            self._write_epochs()
        self.forget_removed_damage()
        return True

    @property
    def has_unwritten_start(self) -> bool:
        """Whether the log start has advanced and the inventory must be written."""
        return self._inventory.is_stale

    def start_draft(self) -> InventoryDraft:
        """Return an inventory with the present log start, to be synced off the event loop."""
        return self._inventory.draft(self._log_start, self.epochs.entries)

    def place_start(self, draft: InventoryDraft) -> None:
        """Put a synced draft in place, unless the inventory was written meanwhile."""
        with self._health:
            if self._inventory.place(draft):
                self._write_truncated_epochs()

    def _write_truncated_epochs(self) -> None:
        """Write the leader epochs after the log start: they may name more than the log holds."""
        with self._health:
            path = write_epochs_unsynced(self._files.disk, self.directory, self.epochs.entries)
        self._unsynced.add_names(path)

    def _check_replicated(self, offset: Offset) -> None:
        if offset > self._high_watermark:
            raise OffsetOutOfRange(f"{offset} is above the high watermark {self._high_watermark}")

    def delete_segments(self, base_offsets: Iterable[Offset]) -> int:
        """Delete exactly these segments, which must be the oldest; the log starts after them.

        If the active segment is among them, a new one is started first: a log always has one. A log
        whose segments are copied to remote storage keeps its start: they can be read there.

        Raises:
            OffsetOutOfRange: they reach above the high watermark.
        """
        self._health.check()
        gone = self.segments[: len(list(bases := sorted(base_offsets)))]
        assert [segment.base_offset for segment in gone] == bases, bases
        if not gone:
            return 0
        upto = self._segments.end_of(gone[-1], self.log_end_offset)
        self._check_replicated(upto)
        if gone[-1] is self._segments.active:
            self._roll(self.log_end_offset, self._clock.now())
        self._inventory.forget(bases)
        if not self._config.is_copied:
            self.advance_log_start(upto)
        if self._inventory.is_kept:
            self._write_inventory()
            self._write_truncated_epochs()
        with self._health:
            self._remove_segments(gone)
            self._snapshots.remove_at(bases)
        return len(gone)

    def replace_segments(self, fresh: Sequence[Segment], base_offsets: Sequence[Offset]) -> None:
        """Replace segments by the cleaned ones made from them.

        ``fresh`` are ``.cleaned``, sealed and synced; see `Segments.replace`.
        """
        self._health.check()
        self._inventory.forget(base_offsets)
        self._write_inventory()
        with self._health:
            self._schedule_removal(self._segments.replace(fresh, set(base_offsets)))
            kept = {segment.base_offset for segment in fresh}
            self._snapshots.remove_at(base for base in base_offsets if base not in kept)
        self._note_again(fresh)

    def _remove_segments(self, segments: Iterable[Segment]) -> None:
        for segment in list(segments):
            segment.mark_deleted()
            self._segments.remove(segment)
            self._schedule_removal([segment])

    def _schedule_removal(self, segments: Sequence[Segment], keep_ms: int = 0) -> None:
        for segment in segments:
            self._unsynced.forget(segment)
        self.deleted_segments.add(segments, max(keep_ms, self._config.file_delete_delay_ms))
        self.has_deleted_segments |= bool(segments)

    def purge_deleted(self) -> int:
        """Remove files deleted ``file.delete.delay.ms`` ago; return how many segments."""
        with self._health:
            count = self.deleted_segments.purge()
        self.has_deleted_segments = bool(self.deleted_segments)
        return count

    # -- close and failure ---------------------------------------------------

    def close(self, *, is_discarded: bool = False) -> None:
        """Seal and sync the log if it has changed, so that the next start need not check it.

        A log that failed or ``is_discarded`` is not synced. Raises StorageFailed: the directory
        must not be marked clean.
        """
        try:
            if self._health.failure is None and not is_discarded and not self._is_as_opened():
                with self._health:
                    self._segments.active.seal()
                    taken = self._snapshots.take(self.producers)
                self._unsynced.add_segment(self._segments.active)
                self._unsynced.add_names(*taken)
                self.flush()
                self._write_closed()
        finally:
            self._segments.close()
            self.deleted_segments.close()
            self._health.failure = self._health.failure or "closed"

    def _write_closed(self) -> None:
        """Write an inventory of all segments, with the newest one as it stays."""
        with self._health:
            self._inventory.note(self._segments.active, self.log_end_offset, may_have_gap=True)
        is_cut = self.has_unwritten_start
        self._write_inventory(self.log_end_offset)
        if is_cut:
            self._write_epochs()

    def _is_as_opened(self) -> bool:
        """Whether the files are durable and complete as they are; so for every idle log."""
        if not self._opened_end == self.log_end_offset == self._recovery_point:
            return False
        is_noted = self._inventory.is_closed_at(self.log_end_offset)
        is_synced = self._unsynced.is_untouched and is_noted and not self.has_unwritten_start
        return is_synced and self._snapshots.has(self.producers.map_end_offset)

    def _undo(self, segment: Segment, before: int, error: OSError) -> StorageFailed:
        """Fail after a write that may have left part of a batch, and remove that part."""
        segment.size = before
        with suppress(OSError):
            segment.drop_unnoted()
        return self._health.fail(error)
