"""``__cluster_metadata-0``: the replicated log of the quorum on disk, and its snapshots.

A log of `ottla.storage` in KIP-631 framing: batches of one leader epoch each, control batches among
them, no producers. Appended records are in the page cache; `flush` makes them durable.

    start <= committed <= end        a snapshot at o replaces everything before o

Four decisions specific to this log:

- At each start the CRC of every batch is checked, from the first segment on. An invalid batch is a
  torn write, or damage that a node must not start with (`damage.py`). The log is bounded by
  ``metadata.max.retention.*`` (100 MiB), so this takes well under a second. What remains is then
  synced: the core takes everything it finds at the start for durable.
- A truncation is durable when it returns, as the segments ensure: an old tail that reappeared
  behind records appended later would be a log that never existed.
- The epochs of the log are read from the batches at each start, not from the leader epoch
  checkpoint: the checkpoint is cut where the log was trimmed to, and the log then starts earlier,
  at its first segment.
- A snapshot whose position is not in the log replaces the log: this completes an installation that
  a crash interrupted before the log was emptied.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self

from ottla.protocol.faults import CorruptBatch, StorageFailed
from ottla.protocol.records.batch import BatchHeader, batches, is_crc_valid
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset
from ottla.raft.control_batches import control_batch, controls_of_batch
from ottla.raft.core.effects import AppendControl, AppendRecords
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import Batches, Control
from ottla.raft.core.voter_history import Membership
from ottla.raft.core.voters import VoterSet
from ottla.raft.damage import LastRun, find_invalid_batch, segment_bases
from ottla.raft.recovery_point import RecoveryPoint
from ottla.raft.snapshots import (
    BATCH_BYTES_MAX,
    SnapshotFiles,
    SnapshotHead,
    data_batch,
)
from ottla.runtime.ports import Clock, Committer, Disk
from ottla.runtime.trusted_time import TrustedClock
from ottla.storage.directory.checkpoints import LEADER_EPOCH
from ottla.storage.log.files import Kind, file_name
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.scan import whole_batches

log = logging.getLogger(__name__)

DIRECTORY_NAME: Final = "__cluster_metadata-0"


class UnusableMetadataLog(Exception):
    """Records are damaged or missing, and only other voters can have them."""


def _remedy(end: Offset) -> str:
    return (
        "The node does not start with it. If other voters have the records, start once with "
        "`--rejoin-quorum`; otherwise restore the file from a backup, or discard all metadata from "
        f"there on with `--truncate-metadata-at {end}`."
    )


class Retention(NamedTuple):
    """How much to keep behind the newest snapshot; -1 is unlimited. Bytes, milliseconds."""

    bytes_max: int = 100 * 1024 * 1024
    age_ms_max: int = 7 * 24 * 3600 * 1000


def metadata_log_config(segment_bytes: int = 1 << 30, segment_ms: int = 604_800_000) -> LogConfig:
    """Return the settings of a metadata log, from ``metadata.log.segment.*``."""
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        max_message_bytes=BATCH_BYTES_MAX,
        is_deleted=False,
    )


class MetadataLog:
    """The log and its snapshots; `LogView` for the core. Open one with `MetadataLog.open`."""

    def __init__(
        self, log: Log, snapshots: SnapshotFiles, clock: Clock, point: RecoveryPoint
    ) -> None:
        self._log = log
        self._point = point
        self.snapshots = snapshots
        self._clock = TrustedClock.of(clock)
        self._failure: StorageFailed | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        log_dir: str,
        clock: Clock,
        config: LogConfig | None = None,
        *,
        is_clean: bool = False,
    ) -> Self:
        """Recover the log below ``log_dir``, or create one; everything in it is then durable.

        ``is_clean``: the last run closed it, so anything invalid in it is damage.

        Raises:
            UnusableMetadataLog: it is damaged, or there is a gap between snapshot and log.
            StorageFailed, OSError: the disk failed.
        """
        directory = f"{log_dir}/{DIRECTORY_NAME}"
        disk.make_dirs(directory)
        snapshots = SnapshotFiles(disk, directory)
        snapshots.load()
        point = RecoveryPoint(disk, directory)
        end = _check_whole(disk, snapshots, LastRun(is_clean, point.offset))
        _check_snapshot(snapshots, end)
        with suppress(FileNotFoundError):
            disk.remove(f"{directory}/{LEADER_EPOCH}")
        log = Log.open(disk, directory, config or metadata_log_config(), clock=clock)
        log.flush()
        opened = cls(log, snapshots, clock, point)
        opened._fit_together()
        point.raise_to(log.log_end_offset)
        return opened

    def _fit_together(self) -> None:
        """Align the log with the newest snapshot."""
        latest, earliest = self.latest_snapshot(), self.earliest_snapshot()
        start = self._log.log_start_offset
        if latest is not None and latest.offset >= start and not self._has(latest):
            self._point.lower_to(latest.offset)
            self._log.truncate_fully_and_start_at(latest.offset)
            self._log.flush()
        elif start > 0 and (latest is None or latest.offset < start):
            raise UnusableMetadataLog(
                f"{self._log.directory}: the log starts at offset {start} and no snapshot reaches "
                f"it. {_remedy(Offset(0) if latest is None else latest.offset)}"
            )
        elif start > 0 and earliest is not None and earliest.offset > start:
            self._log.set_high_watermark(earliest.offset)
            self._log.advance_log_start(earliest.offset)

    def _has(self, snapshot: LogPosition) -> bool:
        """Return whether the log contains the position where a snapshot ends."""
        if snapshot.offset > self._log.log_end_offset:
            return False
        if snapshot.offset == self._log.log_start_offset:
            return True
        return self._epoch_of(Offset(snapshot.offset - 1)) == snapshot.epoch

    @property
    def directory(self) -> str:
        """The directory of log, snapshots and quorum state."""
        return self._log.directory

    # -- LogView -------------------------------------------------------------

    def start_offset(self) -> Offset:
        """Return the offset of the first record in the log."""
        return self._log.log_start_offset

    def end(self) -> LogPosition:
        """Return the end, unflushed records included; the latest snapshot's id when empty."""
        return LogPosition(self.epoch_before(self._log.log_end_offset), self._log.log_end_offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        """Return the largest epoch at or below ``epoch`` and its end offset."""
        end = self.end()
        if epoch >= end.epoch:
            return end
        entries = self._log.epochs.entries
        following = next((e for e in entries if e.epoch > epoch), None)
        assert following is not None, "no epoch follows one below the log's last"
        ends = max(following.start_offset, self.start_offset())
        return LogPosition(self.epoch_before(ends), ends)

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch of the record before ``offset``, or of the snapshot at the start."""
        if offset > self.start_offset():
            return self._epoch_of(Offset(offset - 1))
        at_start = [s.epoch for s in self.snapshots.all if s.offset == self.start_offset()]
        return at_start[-1] if at_start else LeaderEpoch(0)

    def _epoch_of(self, offset: Offset) -> LeaderEpoch:
        epoch = self._log.epochs.epoch_for_offset(offset)
        assert epoch is not None, f"no epoch for {offset}"
        return epoch

    def earliest_snapshot(self) -> LogPosition | None:
        """Return the oldest snapshot."""
        return next(iter(self.snapshots.all), None)

    def latest_snapshot(self) -> LogPosition | None:
        """Return the newest snapshot."""
        return next(reversed(self.snapshots.all), None)

    def snapshot_size(self, snapshot: LogPosition) -> int | None:
        """Return the size of a snapshot in bytes; None if it does not exist."""
        return self.snapshots.size(snapshot)

    # -- membership ----------------------------------------------------------

    def membership(self, static: VoterSet) -> Membership:
        """Return voters and ``kraft.version`` of snapshot and log.

        ``static`` are the voters of the configuration, in effect unless the snapshot or the log
        contains others.
        """
        found = Membership(static)
        after = Offset(0)
        if (latest := self.latest_snapshot()) is not None:
            head = self._head(latest)
            found.reset(latest.offset, head.kraft_version, head.voters)
            after = latest.offset
        for control in self._controls(after):
            found.note(control)
        return found

    def _head(self, snapshot: LogPosition) -> SnapshotHead:
        reader = self.snapshots.open(snapshot)
        try:
            return reader.head()
        finally:
            reader.close()

    def _controls(self, after: Offset) -> Iterator[Control]:
        for segment in self._log.segments:
            for whole in whole_batches(segment.file, 0, segment.size):
                if whole.header.is_control and whole.header.last_offset >= after:
                    for control in controls_of_batch(whole.buffer, whole.start):
                        if control.offset >= after:
                            yield control

    # -- append --------------------------------------------------------------

    def append_control(self, effect: AppendControl) -> None:
        """Append a leader's control batch."""
        position = LogPosition(effect.epoch, effect.base_offset)
        self._append(control_batch(position, self._clock.now(), effect.records))

    def append_records(self, effect: AppendRecords, values: Sequence[bytes]) -> None:
        """Append a leader's proposal, encoded, as one batch."""
        assert len(values) == effect.records_count
        position = LogPosition(effect.epoch, effect.base_offset)
        self._append(data_batch(position, self._clock.now(), values))

    def append_fetched(self, batches: Batches) -> None:
        """Append a leader's batches unchanged."""
        assert isinstance(batches.payload, bytes | bytearray | memoryview)
        self._append(batches.payload)
        assert self.end() == batches.end, (self.end(), batches.end)

    def _append(self, data: Buffer) -> None:
        self._log.append_at(data, now=self._clock.now())

    def truncate_to(self, offset: Offset) -> None:
        """Truncate the log to end at ``offset``, durably."""
        self._point.lower_to(offset)
        self._log.truncate_to(offset)
        assert self._log.log_end_offset == offset, "truncation within a batch"

    async def flush(self, committer: Committer) -> None:
        """Return once everything appended before this call is durable.

        Raises:
            StorageFailed: it never will be durable; see `close`.
        """
        plan = self._log.flush_plan()
        try:
            await committer.commit(plan.files)
        except StorageFailed as failure:
            self._failure = failure
            raise
        self._log.flushed(plan)
        self._point.raise_to(self._log.recovery_point)
        self._log.purge_deleted()

    def close(self) -> None:
        """Close the files. Unflushed records may be lost.

        A failed sync is never retried: the kernel may have dropped the pages it could not write,
        and a second sync would succeed without them.

        Raises:
            StorageFailed: an operation failed, now or earlier.
        """
        self._point.close()
        self._log.close(is_discarded=self._failure is not None)
        if self._failure is not None:
            raise self._failure

    # -- read ----------------------------------------------------------------

    def read(self, offset: Offset, bytes_max: int, upto: Offset | None = None) -> bytes:
        """Return whole batches from ``offset`` on, at least one if there is any.

        Raises:
            OffsetOutOfRange: it is not in the log.
        """
        end = self._log.log_end_offset if upto is None else min(upto, self._log.log_end_offset)
        found = self._log.read(offset, bytes_max, upto=end)
        data = found.file.pread(found.length, found.position)
        whole = 0
        for start, header in batches(data):
            whole = start + header.size
        return data[:whole]

    def last_timestamp(self, before: Offset) -> Millis:
        """Return the timestamp of the batch that holds ``before`` - 1; 0 if it was deleted."""
        if before <= self.start_offset():
            return Millis(0)
        data = self.read(Offset(before - 1), 1)
        return next((header.max_timestamp for _, header in batches(data)), Millis(0))

    def is_batch_end(self, offset: Offset) -> bool:
        """Return whether a batch ends right before ``offset``: only there may a snapshot end."""
        if offset <= self.start_offset():
            return offset == self.start_offset()
        data = self.read(Offset(offset - 1), 1)
        return any(header.next_offset == offset for _, header in batches(data))

    # -- snapshots -----------------------------------------------------------

    def replace_by(self, snapshot: LogPosition) -> None:
        """Empty the log and start it at an installed snapshot; delete older snapshots."""
        assert self.snapshots.size(snapshot) is not None, "the snapshot is not installed"
        self._point.lower_to(snapshot.offset)
        self._log.truncate_fully_and_start_at(snapshot.offset)
        self._log.flush()
        self.snapshots.delete(s for s in self.snapshots.all if s.offset < snapshot.offset)

    def trim(self, retention: Retention, committed: Offset) -> None:
        """Delete what the newest snapshots make unnecessary, oldest first (KIP-630).

        A snapshot is deleted once there is a newer one and the total size is too large or its
        newest record too old; the log then starts at the oldest remaining snapshot. The newest
        snapshot is always kept.
        """
        while (plan := self._oldest_to_drop(retention)) is not None:
            dropped, following = plan
            self.snapshots.delete([dropped])
            self._begin_at(following.offset, committed)
        earliest = self.earliest_snapshot()
        if earliest is not None and self._is_too_large(retention):
            self._begin_at(earliest.offset, committed)

    def _oldest_to_drop(self, retention: Retention) -> tuple[LogPosition, LogPosition] | None:
        known = self.snapshots.all
        if len(known) < 2:
            return None
        return (known[0], known[1]) if self._is_due(known[0], retention) else None

    def _is_due(self, snapshot: LogPosition, retention: Retention) -> bool:
        if self._is_too_large(retention):
            return True
        reader = self.snapshots.open(snapshot)
        try:
            newest = reader.head().last_timestamp
        finally:
            reader.close()
        return 0 <= retention.age_ms_max < self._clock.expiry() - newest

    def _is_too_large(self, retention: Retention) -> bool:
        sizes = [self.snapshots.size(snapshot) or 0 for snapshot in self.snapshots.all]
        return 0 <= retention.bytes_max < self._log.size + sum(sizes)

    def _begin_at(self, offset: Offset, committed: Offset) -> None:
        """Start the log at ``offset``; segments entirely before it are deleted."""
        self._log.set_high_watermark(committed)
        self._log.advance_log_start(offset)
        old = [
            segment.base_offset
            for segment, following in zip(self._log.segments, self._log.segments[1:], strict=False)
            if following.base_offset <= offset
        ]
        self._log.delete_segments(old)
        self._log.purge_deleted()


def _check_whole(disk: Disk, snapshots: SnapshotFiles, known: LastRun) -> Offset:
    """Return the end offset of the log; a torn write behind it will be truncated.

    Raises:
        UnusableMetadataLog: it is damaged.
    """
    end, wrong = find_invalid_batch(disk, snapshots.directory)
    if wrong is not None and wrong.is_damage(known):
        raise UnusableMetadataLog(f"{wrong}. {_remedy(end)}")
    reached = max([end, *(snapshot.offset for snapshot in snapshots.all)])
    if known.recovery_point is not None and reached < known.recovery_point:
        raise UnusableMetadataLog(
            f"{_last_segment(snapshots)}: the log ends at offset {reached} and was durable up to "
            f"{known.recovery_point}: segments are missing or truncated. "
            f"{_remedy(reached)}"
        )
    if wrong is not None:
        log.warning(
            "metadata log: truncated a torn write left by a crash path=%s position=%d offset=%d "
            "reason=%s",
            wrong.path, wrong.position, wrong.offset, wrong.reason,
        )  # fmt: skip
    return end


def _last_segment(snapshots: SnapshotFiles) -> str:
    bases = segment_bases(snapshots.disk, snapshots.directory)
    return (
        f"{snapshots.directory}/{file_name(bases[-1], Kind.LOG)}" if bases else snapshots.directory
    )


def _check_snapshot(snapshots: SnapshotFiles, end: Offset) -> None:
    """Check the newest snapshot; move it aside if the log still has everything that it covers.

    Raises:
            UnusableMetadataLog: it is damaged, and nothing here can replace it.
    """
    while snapshots.all:
        *older, newest = snapshots.all
        fault = snapshots.fault(newest)
        if fault is None:
            return
        bases = segment_bases(snapshots.disk, snapshots.directory)
        covered = max((each.offset for each in older), default=Offset(0))
        if not bases or bases[0] > covered or end < newest.offset or newest.offset == 0:
            raise UnusableMetadataLog(f"{fault}. {_remedy(covered)}")
        kept = snapshots.set_aside(newest)
        log.warning("damaged metadata snapshot not needed, moved to=%s reason=%s", kept, fault)


def checked_batches(data: Buffer) -> Batches | None:
    """Return the checked batches in the bytes of a Fetch reply; None if there is no whole batch.

    Raises:
        Fault: a CRC, an offset or an epoch is wrong: damaged in transit.
    """
    view = memoryview(data)
    first: BatchHeader | None = None
    last: BatchHeader | None = None
    whole = 0
    controls: list[Control] = []
    for start, header in batches(view):
        _check(view, start, header, last)
        if header.is_control:
            controls += controls_of_batch(view, start)
        first, last, whole = first or header, header, start + header.size
    if first is None or last is None:
        return None
    end = LogPosition(last.leader_epoch, last.next_offset)
    return Batches(first.base_offset, end, bytes(view[:whole]), tuple(controls))


def _check(view: memoryview, start: int, header: BatchHeader, last: BatchHeader | None) -> None:
    if not is_crc_valid(view, start, header):
        raise CorruptBatch(f"the batch at offset {header.base_offset} is damaged")
    if header.records_count != header.last_offset_delta + 1 or header.records_count <= 0:
        raise CorruptBatch(f"the batch at offset {header.base_offset} has gaps")
    if last is not None and header.base_offset != last.next_offset:
        raise CorruptBatch(f"offset {header.base_offset}, expected {last.next_offset}")
    if header.leader_epoch < (0 if last is None else last.leader_epoch):
        raise CorruptBatch(f"the batch at offset {header.base_offset} is of an older epoch")
