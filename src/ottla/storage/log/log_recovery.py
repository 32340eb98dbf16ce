"""Open a log: trust what a clean stop left, check what a crash left.

After a clean stop the files are as the log last wrote them: only the end of the newest segment and
the newest producer snapshot are read. Otherwise the CRC of each batch from the recovery point on is
checked; the log ends before the first one that is torn, zeroed or out of order, and later segments
are dropped: what is left is a prefix of what was written, with everything that was synced. All
indexes from there on are rebuilt.

Everything that is not kept is in the report as a `Loss`. A loss below the recovery point or the
high watermark is not the torn write of a crash: its bytes are set aside (`set_aside.py`).

Before that, files in a temporary state are handled: ``.deleted`` and ``.cleaned`` are removed,
``.swap`` replaces the segments it covers.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from ottla.protocol.faults import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, is_crc_valid, read_header
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.atomic_file import TEMPORARY_SUFFIX
from ottla.runtime.ports import OpenMode
from ottla.storage.directory.checkpoints import (
    LEADER_EPOCH,
    CorruptCheckpoint,
    read_epochs,
    write_epochs,
)
from ottla.storage.log.batch_checks import marker_of
from ottla.storage.log.files import INDEXES, FileName, Kind, LogFiles, State, parse_name
from ottla.storage.log.inventory import (
    FoundSegment,
    LogInventory,
    MissingRange,
    epochs_crc,
    read_inventory,
)
from ottla.storage.log.kept_until import FILE_NAME as KEPT_UNTIL
from ottla.storage.log.kept_until import read_kept_until
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint, LogEvidence
from ottla.storage.log.producer_replay import apply_batch, note_aborted, rebuild_txn_index, replay
from ottla.storage.log.producer_snapshots import Snapshots
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.log.scan import StoredBatch, cause, whole_batches
from ottla.storage.log.segment import Segment
from ottla.storage.log.segments import Segments
from ottla.storage.log.set_aside import set_bytes_aside, set_file_aside
from ottla.storage.scrub.epoch_check import are_epochs_true

_NOTHING: Final = Offset(0)
_PIECE_BYTES: Final = 1 << 20


class Cut(NamedTuple):
    """Bytes that recovery cut off a segment, and the reason."""

    base_offset: Offset
    position: int
    length: int
    reason: str


class Loss(NamedTuple):
    """Records that were lost, from ``first_offset`` on. One per cause.

    ``known_end``: the end up to which the log is known to have existed; not above ``first_offset``
    for the torn tail of a crash. ``length`` counts the bytes that were cut, ``kept`` names the
    files that hold them.
    """

    first_offset: Offset
    known_end: Offset
    path: str
    position: int
    length: int
    reason: str
    kept: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the lost records were acknowledged, or known to be durable."""
        return self.known_end > self.first_offset


class RecoveryReport(msgspec.Struct):
    """What opening a log found and changed, for the operator's log."""

    losses: list[Loss] = msgspec.field(default_factory=list)
    cuts: list[Cut] = msgspec.field(default_factory=list)
    segments_checked: list[Offset] = msgspec.field(default_factory=list)
    segments_dropped: list[Offset] = msgspec.field(default_factory=list)
    files_removed: list[str] = msgspec.field(default_factory=list)
    swaps_completed: list[Offset] = msgspec.field(default_factory=list)
    # What the log once had inside its range, and where it began: other replicas may have it.
    missing: list[MissingRange] = msgspec.field(default_factory=list)
    known_start: Offset = _NOTHING
    known_end: Offset = _NOTHING
    # The producers were read from batches among which some are missing.
    has_partial_producers: bool = False
    rebuilt: list[str] = msgspec.field(default_factory=list)  # files made again from batches

    @property
    def is_loss(self) -> bool:
        """Whether written records, though never acknowledged as synced, were removed."""
        return bool(self.cuts or self.segments_dropped)


class _FileRange(NamedTuple):
    """A range of bytes of a file."""

    path: str
    position: int
    length: int = 0


class BrokenBatch(Exception):
    """The batch at which recovery stops, and what is wrong with it."""


class LogLoader:
    """Opens one log; used once. Every disk failure is an ``OSError``."""

    def __init__(
        self, files: LogFiles, config: LogConfig, checkpoint: LogCheckpoint, now: Millis
    ) -> None:
        self._files = files
        self._config = config
        self._checkpoint = checkpoint
        self._now = now
        self.report = RecoveryReport()
        self.segments = Segments()
        self.snapshots = Snapshots(files)
        self.producers = ProducerState(config.producer_id_expiration_ms)
        self.epochs = LeaderEpochs()
        self.are_epochs_written = True  # in the checkpoint
        self.dropped: list[Segment] = []
        self.kept: list[Segment] = []  # deleted ones that stay for ``kept_ms``; see `kept_until`
        self.kept_ms: int | None = None  # 0: the delay is over; None: nothing is known
        self.log_start = checkpoint.log_start_offset
        self.log_end = Offset(0)
        self.recovery_point = checkpoint.recovery_point
        self._has_gaps = False  # seen in the batches that were checked
        self._evidence = LogEvidence(checkpoint, None, None)
        self.inventory = LogInventory(files, None, is_kept=checkpoint.keeps_inventory)

    def load(self) -> None:
        """Clean up the files and determine the log's state."""
        if self._checkpoint.is_new:
            self._create()
            return
        self._open_segments(self._clean_up_files(self._list()))
        stored = self._load_evidence()
        self._find_end()
        self.report.known_start = self.log_start
        if not len(self.segments):
            self._begin_at(self.log_start)
        if not self._config.is_tiered:  # else what precedes the first segment is in remote storage
            self.log_start = max(self.log_start, self.segments.first.base_offset)
        self._find_missing()
        self._settle_epochs(stored if self._are_epochs_true(stored) else ())
        if stored and self._config.is_tiered and self.epochs.entries:
            # The checkpoint of the start is written now and then, the epochs whenever it advances.
            self.log_start = max(self.log_start, self.epochs.entries[0].start_offset)
        self._check_aborted()
        self._load_producers()
        self._close_files()

    def _close_files(self) -> None:
        """Close what was read to open the log: the first use of a segment opens it again.

        So a node can open more logs than it may have open files.
        """
        for segment in self.segments:
            segment.close()

    def _create(self) -> None:
        """Create an empty log without a sync and without an open file."""
        segment = Segment.create(self._files, _NOTHING, self._config, now=self._now)
        segment.close()
        self.segments.add(segment)

    def unsynced(self) -> list[Segment]:
        """Return the segments that hold something at or after the recovery point."""
        return self.segments.from_floor(self.recovery_point)

    # -- files in a temporary state ------------------------------------------

    def _list(self) -> list[str]:
        """Return the names in the directory of the log, which is created if it is missing."""
        disk, directory = self._files.disk, self._files.directory
        try:
            return disk.list(directory)
        except FileNotFoundError:
            disk.make_dirs(directory)
            return []

    def _clean_up_files(self, found: list[str]) -> list[FileName]:
        """Remove or rename files that a crash left half done; return the live files."""
        names: list[FileName] = []
        self._find_kept(found)
        for name in found:
            parsed = parse_name(name)
            if parsed is not None and parsed.state is not State.DELETED:
                names.append(parsed)
            elif parsed is not None and self.kept_ms and parsed.kind is Kind.LOG:
                self.kept.append(self._open_deleted(parsed.offset))
            elif parsed is not None or name.endswith(TEMPORARY_SUFFIX):
                self._remove_path(name)
        if all(name.state is State.LIVE for name in names):
            return names
        return self._finish_swaps(names)

    def _find_kept(self, found: list[str]) -> None:
        """Find out for how long the log keeps what precedes its start."""
        if KEPT_UNTIL in found:
            until = read_kept_until(self._files.disk, self._files.directory)
            self.kept_ms = None if until is None else max(0, until - self._now)
            if not self.kept_ms:
                self._remove_path(KEPT_UNTIL)

    def _open_deleted(self, base: Offset) -> Segment:
        return Segment.open(
            self._files, base, self._config, has_txn_index=False, state=State.DELETED
        )

    def _finish_swaps(self, names: list[FileName]) -> list[FileName]:
        """Complete each swap whose files were all renamed, discard the others.

        Segments become ``.swap`` newest first, so a ``.cleaned`` file means that its segment and
        all later ones are incomplete.
        """
        unfinished = [name.offset for name in names if name.state is State.CLEANED]
        limit = min(unfinished, default=None)
        swaps = []
        for name in names:
            if name.state is State.SWAP and (limit is None or name.offset < limit):
                swaps.append(name)
            elif name.state is not State.LIVE:
                self._remove(name)
        live = [name for name in names if name.state is State.LIVE]
        swaps = self._usable_swaps(swaps, live)
        live = self._drop_replaced(live, swaps)
        # The removals must be durable before a new segment appears among those it replaces.
        self._files.disk.sync_dir(self._files.directory)
        for name in swaps:
            self._files.disk.rename(self._files.path(*name), self._files.path(*name[:2]))
            if name.kind is Kind.LOG:
                self.report.swaps_completed.append(name.offset)
        renamed = {name._replace(state=State.LIVE) for name in swaps}
        return sorted({*live, *renamed})

    def _usable_swaps(self, swaps: list[FileName], live: list[FileName]) -> list[FileName]:
        """Return the swap segments that can be read; the others are set aside.

        An empty one is not needed while what it replaces exists: cleaning is done again.
        """
        bases = {name.offset for name in live if name.kind is Kind.LOG}
        bad: set[Offset] = set()
        for name in swaps:
            if name.kind is not Kind.LOG:
                continue
            path = self._files.path(*name)
            if not self._files.disk.size(path):
                bad |= {name.offset} & bases
                continue
            try:
                self._end_of_swap(name.offset)
            except (CorruptBatch, UnsupportedMagic) as error:
                bad.add(name.offset)
                size = self._files.disk.size(path)
                kept = set_file_aside(self._files.disk, path)
                names = () if kept is None else (kept,)
                reason = f"a segment written by the cleaner cannot be read: {cause(error, path)}"
                loss = Loss(name.offset, name.offset, path, 0, size, reason, names)
                self.report.losses.append(loss)
        for name in swaps:
            if name.offset in bad:
                self._remove(name)
        return [name for name in swaps if name.offset not in bad]

    def _drop_replaced(self, live: list[FileName], swaps: list[FileName]) -> list[FileName]:
        """Remove the live segments that the swap segments cover; return what is left."""
        bases = [name.offset for name in swaps if name.kind is Kind.LOG]
        if not bases:
            return live
        upto = max(self._end_of_swap(base) for base in bases)
        kept = []
        for name in live:
            if min(bases) <= name.offset < upto and name.kind is not Kind.SNAPSHOT:
                self._remove(name)
            else:
                kept.append(name)
        return kept

    def _end_of_swap(self, base: Offset) -> Offset:
        segment = Segment.open(
            self._files, base, self._config, has_txn_index=False, state=State.SWAP
        )
        try:
            return segment.next_offset()
        finally:
            segment.close()

    def _remove(self, name: FileName) -> None:
        self._files.remove_if_there(*name)
        self.report.files_removed.append(self._files.path(*name))

    def _remove_path(self, name: str) -> None:
        path = f"{self._files.directory}/{name}"
        with suppress(FileNotFoundError):
            self._files.disk.remove(path)
        self.report.files_removed.append(path)

    def _open_segments(self, names: list[FileName]) -> None:
        """Open a segment for each ``.log`` file; remove indexes that have none."""
        logs = {name.offset for name in names if name.kind is Kind.LOG}
        aborted = {name.offset for name in names if name.kind is Kind.TXN_INDEX}
        for offset in sorted(logs):
            segment = Segment.open(
                self._files, offset, self._config, has_txn_index=offset in aborted
            )
            segment.created = self._now
            self.segments.add(segment)
        for name in names:
            if name.kind in INDEXES and name.offset not in logs:
                self._remove(name)
        taken = [name.offset for name in names if name.kind is Kind.SNAPSHOT]
        self.snapshots = Snapshots(self._files, taken)

    # -- what the log once had -------------------------------------------------

    def _load_evidence(self) -> tuple[EpochEntry, ...]:
        """Read what the log is known to have held; return the checkpointed leader epochs."""
        files, checkpoint = self._files, self._checkpoint
        with suppress(CorruptCheckpoint):
            self.epochs = LeaderEpochs(read_epochs(files.disk, files.directory))
        stored = self.epochs.entries
        if checkpoint.keeps_inventory:
            found = read_inventory(files.disk, files.directory)
            self.inventory = LogInventory(files, found, is_kept=True)
            start = stored[0].start_offset if stored else None
            self._evidence = LogEvidence(checkpoint, found, start)
        return stored

    def _find_missing(self) -> None:
        """Find the ranges that the log once had and that its files lack."""
        evidence, directory = self._evidence, self._files.directory
        present = [FoundSegment(each.base_offset, each.size) for each in self.segments]
        self.report.missing = evidence.missing(
            present, self.report.known_start, directory, is_tiered=self._config.is_tiered
        )
        self.report.losses += [
            Loss(each.start, each.end, each.path, 0, 0, each.reason) for each in self.report.missing
        ]
        self.report.known_end = max(self.log_end, evidence.reached)

    def _are_epochs_true(self, stored: tuple[EpochEntry, ...]) -> bool:
        """Whether the checkpoint of the epochs is as it was written, or agrees with the batches."""
        if not self._checkpoint.keeps_inventory or not stored:
            return True
        found = self._evidence.inventory
        if found is not None:
            kept = LeaderEpochs(stored)
            kept.truncate_from_start(found.log_start)  # they are written after the log start
            if found.epochs_crc in (epochs_crc(stored), epochs_crc(kept.entries)):
                return True
        if are_epochs_true(stored, self.segments, self.log_end):
            return True
        self.report.rebuilt.append(f"{self._files.directory}/{LEADER_EPOCH}")
        return False

    def _check_aborted(self) -> None:
        """Rebuild the index of aborted transactions where it is not as it was written."""
        found = self._evidence.inventory
        entries = {} if found is None else {entry.base_offset: entry for entry in found.segments}
        for segment in self.segments:
            entry = entries.get(segment.base_offset)
            is_checked = segment.base_offset in self.report.segments_checked
            if entry is None or is_checked or entry.size != segment.size:
                continue
            if not segment.txn_index.is_as(entry.aborted_bytes, entry.aborted_crc):
                self.report.rebuilt.append(segment.txn_index.path)
                rebuild_txn_index(segment, self.segments, self.snapshots)

    # -- the end of the log --------------------------------------------------

    def _find_end(self) -> None:
        checkpoint, evidence = self._checkpoint, self._evidence
        if not len(self.segments):
            self.log_start = evidence.start(None, _NOTHING)
            if evidence.reached > self.log_start:
                place = _FileRange(self._files.directory, 0)
                self._lose(self.log_start, place, "all segments are missing", [])
            return
        active = self.segments.active
        if not checkpoint.is_clean:
            # Begin with the last synced record: its segment may have been sealed after that,
            # and its reserved space not been released.
            self._recover_from(Offset(max(0, checkpoint.recovery_point - 1)))
        elif not evidence.is_as_closed(FoundSegment(active.base_offset, active.size)):
            self._recover_from(active.base_offset)
        else:
            try:
                self.log_end = active.next_offset()
                self.recovery_point = self.log_end
            except (CorruptBatch, UnsupportedMagic):
                # Marked clean but damaged: trust the file.
                self._recover_from(active.base_offset)
        start = self.log_start = evidence.start(self.segments.first.base_offset, self.log_end)
        if self.log_end < start:
            end, reason = self.log_end, f"the log start checkpoint says {start}"
            place = _FileRange(self._files.directory, 0)
            self._lose(end, place, reason, list(self.segments))
        self._note_missing_end()

    def _note_missing_end(self) -> None:
        """Report that the log is shorter than it was, if no damage has shown it already."""
        if self.log_end < self._reached and not self.report.losses:
            segment = self.segments.active
            reason = f"the log ends at offset {self.log_end}: its end is missing"
            self._lose(self.log_end, _FileRange(segment.path, segment.size), reason, [])

    @property
    def _reached(self) -> Offset:
        """The end up to which the log is known to have existed."""
        if self._checkpoint.is_future:
            return _NOTHING
        return max(self._evidence.reached, self.log_start)

    def _begin_at(self, offset: Offset) -> None:
        """Create an empty log."""
        segment = Segment.create(self._files, offset, self._config, now=self._now)
        self._files.disk.sync_dir(self._files.directory)
        self.segments.add(segment)
        self.snapshots.remove(self.snapshots.offsets)
        self.log_end = self.log_start = offset
        self.recovery_point = offset
        self.epochs.clear()
        self.producers.clear(offset)

    def _recover_from(self, offset: Offset) -> None:
        """Check every batch from the segment of ``offset`` on; cut at the first bad one."""
        suspects = self.segments.from_floor(offset)
        start = suspects[0].base_offset
        # Later snapshots may be of a history that was truncated: they are taken again.
        self.snapshots.remove_above(start)
        self.producers.clear(min(start, self.segments.first.base_offset))
        self.snapshots.load(self.producers, start, self._now)
        replay(self.producers, self.segments, start)
        expected = start
        for at, segment in enumerate(suspects):
            if not self._may_follow(expected, segment):
                reason = f"offset {expected} is missing, the next segment begins after it"
                self._lose(expected, _FileRange(segment.path, 0), reason, suspects[at:])
                break
            limit = suspects[at + 1].base_offset if at + 1 < len(suspects) else None
            expected, cut = self._recover_segment(segment, expected, limit)
            if cut is not None:
                place = _FileRange(segment.path, cut.position, cut.length)
                self._lose(expected, place, cut.reason, suspects[at + 1 :])
                self._cut(segment)
                break
        self.log_end = expected
        self.recovery_point = min(self._checkpoint.recovery_point, expected)

    def _may_follow(self, expected: Offset, segment: Segment) -> bool:
        """Whether a segment may begin here.

        A gap means that the end of the previous segment was lost in a power failure, except
        where compaction, now or in the past, has left gaps.
        """
        if segment.base_offset == expected:
            return True
        return segment.base_offset > expected and (self._config.is_compacted or self._has_gaps)

    def _recover_segment(
        self, segment: Segment, expected: Offset, limit: Offset | None
    ) -> tuple[Offset, Cut | None]:
        """Index the good batches of a segment; return its end and what is to be cut off.

        ``limit`` is the base offset of the next segment.
        """
        length = segment.size
        segment.restart_indexes()
        segment.txn_index.reset()
        self.producers.skip_to(segment.base_offset)
        self.snapshots.take(self.producers)
        self.report.segments_checked.append(segment.base_offset)
        reason = ""
        expected = max(expected, segment.base_offset)
        try:
            for whole in _good_batches(segment, length, expected, limit):
                self._apply(segment, whole)
                self._has_gaps |= _is_gap(whole.header, expected)
                expected = whole.header.next_offset
        except (CorruptBatch, UnsupportedMagic, InvalidRecord) as error:
            reason = cause(error, segment.path)
        except BrokenBatch as error:
            reason = str(error)
        segment.seal_indexes()
        if segment.size == length:
            return expected, None
        cut = Cut(segment.base_offset, segment.size, length - segment.size, reason)
        self.report.cuts.append(cut)
        return expected, cut

    def _cut(self, segment: Segment) -> None:
        segment.drop_unnoted()
        # Otherwise a second crash could bring the cut bytes back after what is appended next.
        segment.file.sync()

    def _lose(self, end: Offset, place: "_FileRange", reason: str, later: list[Segment]) -> None:
        """Report that the log now ends at ``end``; ``later`` are the segments that are dropped.

        Space that was reserved and never written is not a loss.
        """
        known = max(end, self._reached)
        length = place.length + sum(segment.size for segment in later)
        if known == end and not later and self._is_unwritten(place):
            return
        kept: list[str | None] = []
        if known > end:
            if place.length:
                kept.append(set_bytes_aside(self._files.disk, place.path, place.position))
            kept += [self._set_aside(segment) for segment in reversed(later)]
        else:
            self._drop(later)
        names = tuple(name for name in kept if name is not None)
        self.report.losses.append(
            Loss(end, known, place.path, place.position, length, reason, names)
        )

    def _is_unwritten(self, place: "_FileRange") -> bool:
        file = self._files.disk.open(place.path, OpenMode.READ)
        try:
            return not any(
                any(file.pread(min(_PIECE_BYTES, place.length - at), place.position + at))
                for at in range(0, place.length, _PIECE_BYTES)
            )
        finally:
            file.close()

    def _set_aside(self, segment: Segment) -> str | None:
        """Take a segment out of the log and keep its batches; newest first, as in `_drop`."""
        kept = set_file_aside(self._files.disk, segment.path)
        if kept is None:
            self._drop([segment])
            return None
        segment.close()
        for kind in INDEXES:
            self._files.remove_if_there(segment.base_offset, kind)
        self.segments.remove(segment)
        self.report.segments_dropped.append(segment.base_offset)
        return kept

    def _apply(self, segment: Segment, whole: StoredBatch) -> None:
        header = whole.header
        marker = marker_of(whole.buffer, whole.start, header)
        segment.note(header.last_offset, header.max_timestamp, header.size)
        note_aborted(segment.txn_index, apply_batch(self.producers, header, marker))
        self._assign(header.leader_epoch, header.base_offset)

    def _drop(self, segments: list[Segment]) -> None:
        """Remove segments from the log, newest first so that a crash leaves a prefix."""
        for segment in reversed(segments):
            segment.mark_deleted()
            self.segments.remove(segment)
            self.dropped.append(segment)
            self.report.segments_dropped.append(segment.base_offset)

    # -- epochs and producers ------------------------------------------------

    def _settle_epochs(self, stored: tuple[EpochEntry, ...]) -> None:
        """Cut the epochs to the log, or rebuild them from its batches."""
        if not stored:
            self.epochs.clear()
            for segment in self.segments:
                for found in segment.batches_from(0):
                    self._assign(found.header.leader_epoch, found.header.base_offset)
        self.epochs.truncate_from_end(self.log_end)
        # Where the first segments are missing, the epochs still show where the log began.
        self.epochs.truncate_from_start(min(self.log_start, self.report.known_start))
        if self.epochs.entries == stored:
            return
        # Epochs without a batch are dropped on every start, and need not leave the file.
        if self.epochs.entries == tuple(e for e in stored if e.start_offset != self.log_end):
            self.are_epochs_written = False
        else:
            write_epochs(self._files.disk, self._files.directory, self.epochs.entries)

    def _assign(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """Take the epoch of a batch, and drop what the checkpoint says otherwise from there on."""
        if epoch < 0:
            return
        if self.epochs.epoch_for_offset(offset) not in (None, epoch):
            self.epochs.truncate_from_end(offset)
        latest = self.epochs.latest_epoch
        if latest is None or epoch > latest:
            self.epochs.assign(epoch, offset)

    def _load_producers(self) -> None:
        """Restore the state at the log's end from the newest usable snapshot."""
        self.snapshots.remove_above(self.log_end)
        if not self.report.segments_checked:
            self.producers.clear(self.segments.first.base_offset)
            self.snapshots.load(self.producers, self.log_end, self._now)
        replayed_from = self.producers.map_end_offset
        if self.report.segments_checked:
            replayed_from = self.segments.first.base_offset
        missing = self.report.missing
        self.report.has_partial_producers = any(each.end > replayed_from for each in missing)
        if self.producers.map_end_offset < self.log_end:
            replay(self.producers, self.segments, self.log_end)
        self.snapshots.remove_strays(self.segments.base_offsets)


def _is_gap(header: BatchHeader, expected: Offset) -> bool:
    """Whether records are missing before or inside a batch: the cleaner removed them."""
    return header.base_offset > expected or header.records_count <= header.last_offset_delta


def _good_batches(
    segment: Segment, end: int, expected: Offset, limit: Offset | None
) -> Iterator[StoredBatch]:
    """Yield batches while they are valid; raise on the first that is not."""
    for whole in whole_batches(segment.file, 0, end):
        header = whole.header
        if not is_crc_valid(whole.buffer, whole.start, header):
            raise BrokenBatch("CRC does not match")
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise BrokenBatch(f"offset {header.base_offset}, expected {expected}")
        if limit is not None and header.base_offset >= limit:
            raise BrokenBatch(f"offset {header.base_offset} belongs to a later segment")
        if not segment.may_hold(header.last_offset):
            raise BrokenBatch(f"offset {header.last_offset} is too far from the segment's base")
        if header.base_offset > expected:
            following = _offset_behind(segment, whole, end, limit)
            if following is not None and expected <= following < header.next_offset:
                raise BrokenBatch(f"offset {header.base_offset}, expected {expected}, "
                                  f"and {following} follows")  # fmt: skip
        yield whole
        expected = header.next_offset


def _offset_behind(
    segment: Segment, whole: StoredBatch, end: int, limit: Offset | None
) -> Offset | None:
    """Return the offset that follows a batch, by the next batch or segment; None if unknown.

    The CRC does not cover the base offset. A batch after a gap is right if the cleaner made the
    gap, and has a wrong base offset if the next batch belongs into the gap. Without a gap the
    next batch is the wrong one.
    """
    position = whole.position + whole.header.size
    if position >= end:
        return limit
    try:
        header = read_header(segment.file.pread(min(HEADER_BYTES, end - position), position))
        if header.base_offset >= whole.header.next_offset:
            return header.base_offset
        following = next(whole_batches(segment.file, position, end))
    except (CorruptBatch, UnsupportedMagic):
        return limit
    is_sound = is_crc_valid(following.buffer, following.start, header)
    return header.base_offset if is_sound else limit
