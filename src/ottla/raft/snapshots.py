"""Snapshots of the metadata log: ``<offset>-<epoch>.checkpoint`` files (KIP-630).

    00000000000000001500-0000000007.checkpoint      everything before offset 1500, epoch 7

    control batch   SnapshotHeader, and KRaftVersion and Voters where kraft.version > 0
    batches         metadata records, framed as in the log
    control batch   SnapshotFooter

Offsets inside count from 0 without gaps, and every batch has the snapshot's epoch. A file is named
``.part`` while it is written and synced before it is renamed, so a file with its final name is
complete. ``bootstrap.checkpoint`` beside the log's directory, written by formatting, has the same
layout; it holds the records that a first leader appends and is not a snapshot of the quorum.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from ottla.protocol.faults import CorruptBatch, Fault
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.records.batch import is_crc_valid
from ottla.protocol.records.control import ControlType
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, Offset
from ottla.raft.control_batches import (
    control_kinds,
    controls_of_batch,
    last_log_timestamp,
    snapshot_foot,
    snapshot_head,
)
from ottla.raft.core.log_view import BOOTSTRAP_SNAPSHOT, LogPosition
from ottla.raft.core.messages import KRaftVersionAt, VotersAt
from ottla.raft.core.voters import VoterSet
from ottla.runtime.ports import Disk, File, OpenMode
from ottla.storage.log.scan import StoredBatch, cause, whole_batches
from ottla.storage.log.set_aside import set_file_aside

BOOTSTRAP_NAME: Final = "bootstrap.checkpoint"
PART_SUFFIX: Final = ".part"
# Kafka's bound on one batch of the metadata log and of a snapshot.
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class CorruptSnapshot(Exception):
    """A snapshot failed its checks: torn, damaged, or not a snapshot."""


def snapshot_name(snapshot: LogPosition) -> str:
    """Return the file name of a snapshot."""
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> LogPosition | None:
    """Return the snapshot of a file name; None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) >= 2**63 or int(match[2]) >= 2**31:
        return None
    return LogPosition(LeaderEpoch(int(match[2])), Offset(int(match[1])))


class SnapshotHead(msgspec.Struct, frozen=True):
    """The content of a snapshot's first batch. ``voters`` is None if it contains none."""

    last_timestamp: Millis
    kraft_version: int
    voters: VoterSet | None


class SnapshotBatch(msgspec.Struct, frozen=True):
    """Metadata records of a snapshot, decoded."""

    records: tuple[Versioned, ...]


class SnapshotReader:
    """Reads one snapshot and verifies everything it reads. Close it afterwards."""

    def __init__(self, file: File, snapshot: LogPosition) -> None:
        self.snapshot = snapshot
        self._file = file

    def head(self) -> SnapshotHead:
        """Return the content of the first batch.

        Raises:
            CorruptSnapshot: the first batch is not a snapshot header.
        """
        for whole in self._wholes():
            return _read_head(whole)
        raise CorruptSnapshot(f"{self._file.path}: empty")

    def batches(self) -> Iterator[SnapshotBatch]:
        """Yield the records, with one batch in memory at a time.

        Raises:
            CorruptSnapshot: it is damaged from here on; what was yielded before is no snapshot.
        """
        for whole in self._wholes():
            if not whole.header.is_control:
                yield SnapshotBatch(tuple(self._decoded(whole)))

    def check(self) -> Iterator[None]:
        """Verify all of it in small steps; a caller that reaches the end knows that it is intact.

        Raises:
            CorruptSnapshot: it is not intact.
        """
        for _ in self.batches():
            yield

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _decoded(self, whole: StoredBatch) -> Iterator[Versioned]:
        try:
            for record in read_records(whole.buffer, whole.start):
                yield decode_metadata_record(record.value or b"")
        except Fault as error:
            raise CorruptSnapshot(f"{self._file.path}: {error}") from error

    def _wholes(self) -> Iterator[StoredBatch]:
        """Yield the batches; raise unless they are a header, records, and a footer."""
        expected = 0
        is_ended = False
        try:
            for whole in whole_batches(self._file, 0, self._file.size()):
                header = whole.header
                if is_ended:
                    raise CorruptSnapshot(f"{self._file.path}: bytes after the footer")
                _check_batch(whole, expected)
                kinds = control_kinds(whole.buffer, whole.start) if header.is_control else []
                if (expected == 0) != (ControlType.SNAPSHOT_HEADER in kinds):
                    raise CorruptSnapshot(f"{self._file.path}: missing or repeated snapshot header")
                yield whole
                is_ended = ControlType.SNAPSHOT_FOOTER in kinds
                expected = header.next_offset
        except Fault as error:
            raise CorruptSnapshot(f"{self._file.path}: {cause(error, self._file.path)}") from error
        if not is_ended:
            raise CorruptSnapshot(f"{self._file.path}: the footer is missing")


def _check_batch(whole: StoredBatch, expected: int) -> None:
    header = whole.header
    if not is_crc_valid(whole.buffer, whole.start, header):
        raise CorruptBatch(f"CRC does not match at {whole.position}")
    if header.base_offset != expected or header.records_count != header.last_offset_delta + 1:
        raise CorruptBatch(f"offset {header.base_offset}, expected {expected}")
    if header.records_count <= 0:
        raise CorruptBatch(f"empty batch at {whole.position}")


def _read_head(whole: StoredBatch) -> SnapshotHead:
    controls = controls_of_batch(whole.buffer, whole.start)
    level = next((c.level for c in controls if isinstance(c, KRaftVersionAt)), 0)
    voters = next((c.voters for c in controls if isinstance(c, VotersAt)), None)
    return SnapshotHead(last_log_timestamp(whole.buffer[whole.start :]), level, voters)


class SnapshotWriter:
    """Writes one snapshot: `append` batch after batch, then `freeze`, or `abandon`.

    No file has the snapshot's name before `freeze`.
    """

    def __init__(self, files: "SnapshotFiles", snapshot: LogPosition, now: Millis) -> None:
        self.snapshot = snapshot
        self._files = files
        self._now = now
        self._path = files.part_path(snapshot, "own")
        self._file = files.disk.open(self._path, OpenMode.CREATE)
        self._file.truncate(0)
        self._position = 0
        self._next = Offset(0)

    def begin(self, last_timestamp: Millis, kraft_version: int, voters: VoterSet) -> None:
        """Write the header. ``last_timestamp`` is that of the newest record in the snapshot."""
        epoch = self.snapshot.epoch
        head = snapshot_head(epoch, self._now, last_timestamp, kraft_version, voters)
        self._write(head, 3 if kraft_version > 0 else 1)

    def append(self, values: Sequence[bytes]) -> None:
        """Write one batch of encoded records, which the caller keeps below `BATCH_BYTES_MAX`."""
        if values:
            position = LogPosition(self.snapshot.epoch, self._next)
            self._write(data_batch(position, self._now, values), len(values))

    def finish(self) -> None:
        """Write the footer. Sync the file and call `freeze` next."""
        self._write(snapshot_foot(LogPosition(self.snapshot.epoch, self._next), self._now), 1)

    def _write(self, data: Buffer, count: int) -> None:
        self._file.pwrite(data, self._position)
        self._position += len(data)
        self._next = Offset(self._next + count)

    @property
    def file(self) -> File:
        """The file, to be synced before `freeze`."""
        return self._file

    def freeze(self) -> None:
        """Rename the synced file to its final name, durably."""
        self._file.close()
        self._files.disk.rename(self._path, self._files.path(self.snapshot))
        self._files.add(self.snapshot)

    def abandon(self) -> None:
        """Delete the file."""
        self._file.close()
        with suppress(FileNotFoundError):
            self._files.disk.remove(self._path)


def data_batch(position: LogPosition, now: Millis, values: Sequence[bytes]) -> bytes:
    """Return one batch of encoded metadata records, starting at ``position``."""
    records = [
        Record(Offset(position.offset + index), now, None, value)
        for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, base_offset=position.offset, leader_epoch=position.epoch))


class SnapshotFiles:
    """The snapshots in one directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self._known: dict[LogPosition, int] = {}

    def load(self) -> None:
        """Find the snapshots; delete those left unfinished when the node last stopped."""
        self._known.clear()
        for name in self.disk.list(self.directory):
            snapshot = parse_snapshot_name(name)
            if snapshot is not None:
                self.add(snapshot)
            elif name.endswith(f".checkpoint{PART_SUFFIX}"):
                self.disk.remove(f"{self.directory}/{name}")

    @property
    def all(self) -> list[LogPosition]:
        """All snapshots, oldest first."""
        return sorted(self._known, key=lambda snapshot: (snapshot.offset, snapshot.epoch))

    def size(self, snapshot: LogPosition) -> int | None:
        """Return a snapshot's size in bytes; None if it does not exist."""
        return self._known.get(snapshot)

    def path(self, snapshot: LogPosition) -> str:
        """Return the path of a snapshot, existing or not."""
        return f"{self.directory}/{snapshot_name(snapshot)}"

    def part_path(self, snapshot: LogPosition, infix: str) -> str:
        """Return the path of a snapshot being written; ``infix`` names the writer."""
        stem = snapshot_name(snapshot).removesuffix(".checkpoint")
        return f"{self.directory}/{stem}-{infix}.checkpoint{PART_SUFFIX}"

    def add(self, snapshot: LogPosition) -> None:
        """Register a file that got its final name."""
        self._known[snapshot] = self.disk.size(self.path(snapshot))

    def open(self, snapshot: LogPosition) -> SnapshotReader:
        """Open a snapshot for reading. Raises OSError, including FileNotFoundError."""
        return SnapshotReader(self.disk.open(self.path(snapshot), OpenMode.READ), snapshot)

    def read_chunk(self, snapshot: LogPosition, position: int, length: int) -> bytes:
        """Return bytes of a snapshot file."""
        file = self.disk.open(self.path(snapshot), OpenMode.READ)
        try:
            return file.pread(length, position)
        finally:
            file.close()

    def fault(self, snapshot: LogPosition) -> str | None:
        """Return what is wrong with a snapshot; None if it is intact. Raises OSError."""
        reader = self.open(snapshot)
        try:
            for _ in reader.check():
                pass
        except CorruptSnapshot as error:
            return str(error)
        finally:
            reader.close()
        return None

    def set_aside(self, snapshot: LogPosition) -> str | None:
        """Rename a damaged file so that no start reads it; return its new path."""
        kept = set_file_aside(self.disk, self.path(snapshot))
        self.delete([snapshot])
        return kept

    def delete(self, snapshots: Iterable[LogPosition]) -> None:
        """Delete snapshots."""
        for snapshot in list(snapshots):
            del self._known[snapshot]
            with suppress(FileNotFoundError):
                self.disk.remove(self.path(snapshot))


class SnapshotDownload:
    """A snapshot downloaded from the leader, chunk by chunk."""

    def __init__(self, files: SnapshotFiles, snapshot: LogPosition) -> None:
        self.snapshot = snapshot
        self._files = files
        self._path = files.part_path(snapshot, "fetched")
        self.file = files.disk.open(self._path, OpenMode.CREATE)
        self.file.truncate(0)

    def write(self, position: int, data: Buffer) -> None:
        """Write a chunk at its position."""
        self.file.pwrite(data, position)

    def reader(self) -> SnapshotReader:
        """Return a reader of what was received, to verify it; it shares the file."""
        return SnapshotReader(self.file, self.snapshot)

    def freeze(self) -> None:
        """Rename the verified and synced file to its final name, durably."""
        self.file.close()
        self._files.disk.rename(self._path, self._files.path(self.snapshot))
        self._files.add(self.snapshot)

    def abandon(self) -> None:
        """Delete it."""
        self.file.close()
        with suppress(FileNotFoundError):
            self._files.disk.remove(self._path)


def read_bootstrap(disk: Disk, log_dir: str) -> list[Versioned] | None:
    """Return the records that formatting wrote for the first leader; None without the file.

    Raises:
        CorruptSnapshot: it is damaged: the node must not start with part of them.
    """
    path = f"{log_dir}/{BOOTSTRAP_NAME}"
    if not disk.exists(path):
        return None
    reader = SnapshotReader(disk.open(path, OpenMode.READ), BOOTSTRAP_SNAPSHOT)
    try:
        return [record for batch in reader.batches() for record in batch.records]
    finally:
        reader.close()


def write_initial_snapshot(disk: Disk, directory: str, voters: VoterSet, now: Millis) -> None:
    """Write the snapshot (0, 0) with the first voters of a formatted directory, durably.

    Only for nodes that start a quorum; one that joins fetches the voters (KIP-853).
    """
    disk.make_dirs(directory)
    writer = SnapshotWriter(SnapshotFiles(disk, directory), BOOTSTRAP_SNAPSHOT, now)
    writer.begin(Millis(0), 1, voters)
    writer.finish()
    writer.file.sync()
    writer.freeze()
