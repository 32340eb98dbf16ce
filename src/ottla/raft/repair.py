"""Operator-requested repair of a damaged metadata log: rejoin the quorum, or truncate.

Both truncate the log before the first invalid batch and move what follows aside (`set_aside.py`).

A voter that lost records it once acknowledged must not vote based on what is left: it could help to
elect a leader that lacks committed records. So a rejoining voter has a marker file, ``rejoining``:
until it has caught up with a leader it neither votes nor becomes a candidate (`core/quorum.py`).
Its quorum state is kept, so it never votes twice in an epoch. Truncation without rejoining writes
no marker: it is for a single voter, and for a quorum that lost more than a minority.
"""

import logging
from contextlib import suppress
from typing import Final

import msgspec

from ottla.protocol.types import NodeId, Offset
from ottla.raft.control_batches import controls_of_batch
from ottla.raft.core.messages import VotersAt
from ottla.raft.core.voters import VoterSet
from ottla.raft.damage import find_invalid_batch, segment_bases
from ottla.raft.metadata_log import DIRECTORY_NAME, UnusableMetadataLog
from ottla.raft.recovery_point import RecoveryPoint
from ottla.raft.snapshots import SnapshotFiles
from ottla.runtime.atomic_file import replace_file
from ottla.runtime.ports import Disk, File, OpenMode
from ottla.storage.log.files import Kind, LogFiles
from ottla.storage.log.scan import whole_batches
from ottla.storage.log.set_aside import set_bytes_aside, set_file_aside

log = logging.getLogger(__name__)

MARK_NAME: Final = "rejoining"


class Repair(msgspec.Struct, frozen=True):
    """The requested repair. ``truncate_at`` is the offset from which on everything is discarded."""

    is_rejoining: bool = False
    truncate_at: Offset | None = None


NO_REPAIR: Final = Repair()


class RejoinMark:
    """Records, across restarts, that a voter lost records and has not caught up yet."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._directory = f"{log_dir}/{DIRECTORY_NAME}"
        self._path = f"{self._directory}/{MARK_NAME}"

    @property
    def is_set(self) -> bool:
        """Whether this replica must catch up before it votes."""
        return self._disk.exists(self._path)

    def set(self) -> None:
        """Set it, durably. Raises OSError."""
        replace_file(self._disk, self._path, b"until it has caught up with a leader\n")

    def clear(self) -> None:
        """Remove it, durably. Raises OSError."""
        with suppress(FileNotFoundError):
            self._disk.remove(self._path)
        self._disk.sync_dir(self._directory)


def repair_log(disk: Disk, log_dir: str, repair: Repair, static: VoterSet, node_id: NodeId) -> None:
    """Perform the requested repair if the log is damaged; an intact log is left unchanged.

    Raises:
        UnusableMetadataLog: it is not possible. OSError: the disk failed.
    """
    directory = f"{log_dir}/{DIRECTORY_NAME}"
    if repair == NO_REPAIR or not disk.exists(directory):
        return
    damage = _Damage(disk, directory)
    if damage.is_whole:
        log.warning("metadata log is intact, nothing to repair path=%s", directory)
        return
    if repair.is_rejoining:
        if damage.voters(static).ids == (node_id,):
            raise UnusableMetadataLog(
                f"{directory}: node {node_id} is the only voter, so there is no quorum to rejoin; "
                "restore a backup, or use `--truncate-metadata-at OFFSET`"
            )
        RejoinMark(disk, log_dir).set()
        damage.cut(damage.end)
    elif repair.truncate_at is not None:
        if repair.truncate_at != damage.end:
            raise UnusableMetadataLog(
                f"{directory}: the valid records end at offset {damage.end}, so "
                f"`--truncate-metadata-at` must be {damage.end}, not {repair.truncate_at}"
            )
        damage.cut(damage.end)


class _Damage:
    """A log with its snapshots, as far as they are valid."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._snapshots = SnapshotFiles(disk, directory)
        self._snapshots.load()
        self._point = RecoveryPoint(disk, directory)
        self.end, self._wrong = find_invalid_batch(disk, directory)
        self._bad = [each for each in self._snapshots.all if self._snapshots.fault(each)]
        good = [each.offset for each in self._snapshots.all if each not in self._bad]
        self._covered = max(good, default=Offset(0))
        bases = segment_bases(disk, directory)
        self._has_gap = bool(bases) and bases[0] > self._covered
        if self._has_gap:
            self.end = self._covered
        self._is_short = max(self.end, self._covered) < (self._point.offset or 0)

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing to repair."""
        return self._wrong is None and not (self._bad or self._has_gap or self._is_short)

    def voters(self, static: VoterSet) -> VoterSet:
        """Return the newest voters in the valid part."""
        found = static
        for snapshot in self._snapshots.all:
            if snapshot not in self._bad:
                reader = self._snapshots.open(snapshot)
                try:
                    found = reader.head().voters or found
                finally:
                    reader.close()
        files = LogFiles(self._disk, self._directory)
        for base in segment_bases(self._disk, self._directory):
            if base >= self.end:
                break
            file = self._disk.open(files.path(base, Kind.LOG), OpenMode.READ)
            try:
                found = _voters_in(file, self._size_of_right(files.path(base, Kind.LOG))) or found
            finally:
                file.close()
        return found

    def _size_of_right(self, path: str) -> int:
        wrong = self._wrong
        is_cut_here = wrong is not None and wrong.path == path
        return wrong.position if wrong is not None and is_cut_here else self._disk.size(path)

    def cut(self, end: Offset) -> None:
        """Move aside everything that is invalid or behind it."""
        disk, files = self._disk, LogFiles(self._disk, self._directory)
        self._point.lower_to(max(end, self._covered))
        self._point.close()
        kept = [self._snapshots.set_aside(each) for each in self._bad]
        bases = segment_bases(disk, self._directory)
        for base in reversed(bases):
            path = files.path(base, Kind.LOG)
            if self._has_gap or base > end:
                kept.append(set_file_aside(disk, path))
            elif self._wrong is not None and self._wrong.path == path:
                kept.append(set_bytes_aside(disk, path, self._wrong.position))
                file = disk.open(path, OpenMode.READ_WRITE)
                try:
                    file.truncate(self._wrong.position)
                    file.sync()
                finally:
                    file.close()
        disk.sync_dir(self._directory)
        log.warning(
            "metadata log truncated at offset=%d, the rest moved aside path=%s files=%s",
            end, self._directory, [each for each in kept if each is not None],
        )  # fmt: skip


def _voters_in(file: File, size: int) -> VoterSet | None:
    found = None
    for whole in whole_batches(file, 0, size):
        if whole.header.is_control:
            for control in controls_of_batch(whole.buffer, whole.start):
                if isinstance(control, VotersAt):
                    found = control.voters
    return found
