"""What a log has lost: the inventory that shows it, and putting it back from other replicas."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import Offset
from ottla.runtime.trusted_time import TrustedClock
from ottla.storage.log.files import LogFiles
from ottla.storage.log.flushing import Unsynced
from ottla.storage.log.inventory import LogInventory, MissingRange
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.log_appends import LogAppends
from ottla.storage.log.log_recovery import RecoveryReport
from ottla.storage.log.producer_replay import rebuild_txn_index, replay
from ottla.storage.log.producer_snapshots import Snapshots
from ottla.storage.log.segment import Segment
from ottla.storage.scrub.damaged_ranges import DamagedRanges

_FIRST: Final = Offset(0)


class LogLosses(LogAppends):
    """What was lost, and its repair. `Log` initializes every field."""

    epochs: LeaderEpochs
    damaged_ranges: DamagedRanges
    report: RecoveryReport
    _clock: TrustedClock
    _files: LogFiles
    _high_watermark: Offset
    _inventory: LogInventory
    _log_start: Offset
    _lost_end: Offset
    _recovery_point: Offset
    _snapshots: Snapshots
    _unsynced: Unsynced

    def _note_sealed(self) -> None:
        """Add the segments that were sealed and made durable to the inventory.

        Raises nothing: after a failure every later call does.
        """
        with suppress(StorageFailed), self._health:
            self._health.check()
            if self._inventory.note_sealed(
                self._segments, self._recovery_point, may_have_gap=self._config.is_compacted
            ):
                self._write_inventory(is_synced=False)

    def _write_inventory(self, log_end: Offset | None = None, *, is_synced: bool = True) -> None:
        """Write the inventory; before anything that it names is removed, it must be durable."""
        if self.is_end_lost:
            log_end = self._lost_end
        with self._health:
            entries = self.epochs.entries
            self._inventory.write(self._log_start, entries, log_end, is_synced=is_synced)

    @property
    def lost_end(self) -> Offset:
        """The end that the log once had, if that is above its present end."""
        return self._lost_end

    @property
    def is_end_lost(self) -> bool:
        """Whether the log is shorter than it once was, and has not grown to that end again."""
        return self._lost_end > self.log_end_offset

    def expect_missing(self) -> None:
        """Remember what this replica has lost: other replicas have it.

        The log starts where it once did. Missing ranges cannot be read until they are repaired.
        """
        report = self.report
        self._lost_end = report.known_end
        self._log_start = min(self._log_start, report.known_start)
        for each in report.missing:
            self.damaged_ranges.add_missing(each)
        self._write_inventory()

    def expect_end(self, offset: Offset) -> None:
        """Remember that other replicas may have records up to ``offset`` that belong here."""
        self._lost_end = offset

    def accept_end(self) -> None:
        """Go on at the present end: no other replica has what came after it."""
        self._lost_end = _FIRST
        self._write_inventory()

    def accept_losses(self) -> None:
        """Go on with what is left: no other replica has the rest."""
        self._lost_end = _FIRST
        for each in self.report.missing:
            self._inventory.forget_range(each.start, each.end)
        self.epochs.truncate_from_start(self._log_start)
        self._write_epochs()
        self._write_inventory()

    def _note_again(self, segments: Iterable[Segment]) -> None:
        """Add sealed segments to the inventory as they are now; the gaps after them are known."""
        with self._health:
            for segment in segments:
                following = self._segments.end_of(segment, self.log_end_offset)
                if segment is not self._segments.active:
                    self._inventory.note(segment, following, may_have_gap=True)
        self._write_inventory(is_synced=False)

    # -- damage --------------------------------------------------------------

    def is_hole_after(self, segment: Segment, end: Offset) -> bool:
        """Whether a sealed segment whose batches end at ``end`` should reach further."""
        entry = self._inventory.entry(segment)
        if entry is not None:
            return end != entry.end_offset
        following = self._segments.end_of(segment, self.log_end_offset)
        return end < following and not self._config.is_compacted

    def check_aborted(self, segment: Segment) -> bool:
        """Rebuild the transaction index of a segment if it was changed; True if it was."""
        with self._health:
            if segment.txn_index.is_intact():
                return False
            rebuild_txn_index(segment, self._segments, self._snapshots)
        return True

    def restore(self, missing: MissingRange, fresh: Sequence[Segment]) -> None:
        """Put segments of another replica in place of what is left of a missing range.

        ``fresh`` are ``.cleaned``, sealed and synced; none if other replicas have nothing there.
        """
        self._health.check()
        # All before the log's start may go; any other segment before the range is whole.
        is_first = missing.start <= self._log_start
        left = [
            each
            for each in self._segments
            if each.base_offset < missing.end and (is_first or each.base_offset >= missing.start)
        ]
        assert self._segments.active not in left, missing
        with self._health:
            for segment in left if fresh else ():
                if not self._files.disk.exists(segment.path):
                    segment.close()
                    self._segments.remove(segment)
                    self._unsynced.forget(segment)
        self._inventory.forget_range(missing.start, missing.end)
        if fresh:
            bases = [each.base_offset for each in left if each in set(self._segments)]
            self.replace_segments(fresh, bases)
            with self._health:
                for segment in fresh:
                    rebuild_txn_index(segment, self._segments, self._snapshots)
        self.damaged_ranges.remove_missing(missing)
        self.forget_removed_damage()
        if self.report.has_partial_producers:
            self._reload_producers(missing.start)
        self._note_again(fresh or left)

    def _reload_producers(self, offset: Offset) -> None:
        """Determine the producer state again: snapshots above ``offset`` are incomplete."""
        with self._health:
            self._snapshots.remove_above(offset)
            self.producers.clear(self._segments.first.base_offset)
            self._snapshots.load(self.producers, self.log_end_offset, self._clock.expiry())
            replay(self.producers, self._segments, self.log_end_offset)
        self.producers.on_high_watermark(self._high_watermark)

    # -- of `Log` ------------------------------------------------------------

    def forget_removed_damage(self) -> None:
        """Forget damaged ranges that are no longer part of the log."""
        raise NotImplementedError

    def replace_segments(self, fresh: Sequence[Segment], base_offsets: Sequence[Offset]) -> None:
        """Replace segments by others with the same offsets."""
        raise NotImplementedError

    def _write_epochs(self) -> None:
        raise NotImplementedError
