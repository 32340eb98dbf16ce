"""The checkpoint files of one log directory: what the next start needs to know of each log.

    log-start-offset-checkpoint        start of logs that begin inside a segment
    recovery-point-offset-checkpoint   end of the part of each log known to be durable
    replication-offset-checkpoint      high watermarks

Lines identify a log by topic and partition, not by topic id. A log that is created under the name
of a deleted one must not be opened with its predecessor's lines: records that were never synced
would count as durable, and those below an old log start would be lost. So the lines of a removed
log are durably gone before a log of its name is created.

Writes are created on the event loop and carried out later on a committer's thread. The newest one
wins: a write that runs after a newer one of the same file changes nothing.
"""

import itertools
import threading
from typing import Final, NamedTuple

from ottla.protocol.types import Offset, TopicPartition
from ottla.runtime.atomic_file import replace_file
from ottla.runtime.ports import Disk
from ottla.storage.directory.checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    CorruptCheckpoint,
    encode_offsets,
    read_offsets,
)

REMOVED_MAX: Final = 256
"""Names of removed logs, kept until a checkpoint without them is written."""

Offsets = dict[TopicPartition, Offset]


class Checkpoints(NamedTuple):
    """The content of a directory's checkpoint files, in the order in which they are written.

    A recovery point is useless to a log that is cut below it, so log starts come first.
    """

    log_starts: Offsets
    recovery_points: Offsets
    high_watermarks: Offsets


class CheckpointWrite:
    """`Syncable`: replaces a checkpoint file, unless it already holds this content or newer."""

    __slots__ = ("_data", "_files", "_number", "path")

    def __init__(self, files: "CheckpointFiles", path: str, data: bytes, number: int) -> None:
        self.path = path
        self._files = files
        self._data = data
        self._number = number

    def sync(self) -> None:
        """Write it durably. Raises OSError: the old file or the new one is there."""
        self._files.replace(self.path, self._data, self._number)


class CheckpointFiles:
    """The files of one directory. ``gone`` are removed logs that may still have lines in them."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._numbers = itertools.count()
        # The event loop and a committer's thread may write the same file, under one temporary name.
        self._turn = threading.Lock()
        self._written: dict[str, tuple[int, bytes]] = {}  # by path: the newest; guarded by _turn
        self.gone: set[TopicPartition] = set()

    def read(self, corrupt: list[str]) -> Checkpoints:
        """Read all of them; a corrupt one counts as absent, which is always safe.

        Raises:
            OSError: a file cannot be read.
        """
        return Checkpoints(*(self._read(name, corrupt) for name in _NAMES))

    def _read(self, name: str, corrupt: list[str]) -> Offsets:
        try:
            return read_offsets(self._disk, f"{self._directory}/{name}")
        except CorruptCheckpoint:
            corrupt.append(name)
            return {}

    def writes(
        self, tables: Checkpoints
    ) -> tuple[CheckpointWrite, CheckpointWrite, CheckpointWrite]:
        """Return the writes that store these tables, to be carried out in this order."""
        number = next(self._numbers)
        log_starts, recovery_points, high_watermarks = (
            CheckpointWrite(self, f"{self._directory}/{name}", encode_offsets(table), number)
            for name, table in zip(_NAMES, tables, strict=True)
        )
        return log_starts, recovery_points, high_watermarks

    def replace(self, path: str, data: bytes, number: int) -> None:
        """Replace a file unless a newer write did. Raises OSError, as `replace_file`."""
        with self._turn:
            newest, held = self._written.get(path, (-1, None))
            if number < newest:
                return
            if held != data:
                replace_file(self._disk, path, data)
            self._written[path] = (number, data)


_NAMES: Final = (LOG_START, RECOVERY_POINT, HIGH_WATERMARK)
