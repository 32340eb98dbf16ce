"""What must be synced before a log's records are durable.

The log does not wait for the disk: it returns the files that are not durable yet, the caller
syncs them (by group commit, or at once) and reports back to the log.
"""

from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.types import Offset
from ottla.runtime.ports import Disk, OpenMode, Syncable
from ottla.storage.directory.partition_metadata import FILE_NAME as TOPIC_ID_NAME
from ottla.storage.log.files import LogFiles
from ottla.storage.log.segment import Segment


class PathSync:
    """A file to be synced that is not kept open. If it was removed meanwhile, does nothing."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        """Sync what was written to the file through any descriptor."""
        try:
            file = self._disk.open(self.path, OpenMode.READ_WRITE)
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()


class DirectorySync:
    """A directory whose entries are to be made durable. If it was removed, does nothing."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        """Sync the directory itself."""
        with suppress(FileNotFoundError):
            self._disk.sync_dir(self.path)


class FlushPlan(NamedTuple):
    """Once all ``files`` are synced, everything below ``upto`` is durable.

    ``generation`` tells plans made before a truncation from those made after it.
    """

    files: tuple[Syncable, ...]
    upto: Offset
    generation: int


def by_path(plan: FlushPlan, disk: Disk) -> list[Syncable]:
    """Return what to sync, each file once and reopened by path.

    For a sync that runs later: a log that is closed or deleted meanwhile closes its files, and
    then there is nothing left to sync.
    """
    found: dict[str, Syncable] = {}
    for file in plan.files:
        is_named = isinstance(file, PathSync | DirectorySync)
        found[file.path] = file if is_named else PathSync(disk, file.path)
    return list(found.values())


def creation_of(files: LogFiles) -> tuple[Syncable, ...]:
    """Return what to sync before the first batch of a new log: its topic id and its names."""
    disk, directory = files
    return (
        PathSync(disk, f"{directory}/{TOPIC_ID_NAME}"),
        DirectorySync(disk, directory),
        DirectorySync(disk, directory.rpartition("/")[0]),
    )


class Unsynced:
    """The files of a log that were written and not synced, except the active segment's."""

    __slots__ = ("_directory", "_disk", "_files", "_generation")

    def __init__(self, files: LogFiles) -> None:
        self._disk = files.disk
        self._directory = files.directory
        # With the segment each belongs to, if any.
        self._files: list[tuple[Segment | None, Syncable]] = []
        self._generation = 0

    @property
    def is_untouched(self) -> bool:
        """Whether nothing waits to be synced, and the log was never truncated."""
        return not self._files and self._generation == 0

    def add_segment(self, segment: Segment) -> None:
        """Add the files of a sealed segment."""
        paths = [segment.offset_index.path, segment.time_index.path]
        if not segment.txn_index.is_empty:
            paths.append(segment.txn_index.path)
        self._files.append((segment, segment.file))
        self._files += [(segment, PathSync(self._disk, path)) for path in paths]

    def add_names(self, *paths: str) -> None:
        """Add newly created files, and the directory that has their names."""
        self._files += [(None, PathSync(self._disk, path)) for path in paths]
        self._files.append((None, DirectorySync(self._disk, self._directory)))

    def forget(self, segment: Segment) -> None:
        """Drop a deleted segment: its file will be closed."""
        self._files = [each for each in self._files if each[0] is not segment]

    def plan(self, active: Segment, upto: Offset) -> FlushPlan:
        """Return what to sync, sealed segments first, so that there is never a hole."""
        files = tuple(file for _, file in self._files)
        return FlushPlan((*files, active.file), upto, self._generation)

    def is_current(self, plan: FlushPlan) -> bool:
        """Whether the log was not truncated since the plan was made.

        After a truncation, offsets below the plan's end may hold other records.
        """
        return plan.generation == self._generation

    def done(self, plan: FlushPlan) -> None:
        """Drop what a plan has synced; later additions stay."""
        synced = {id(file) for file in plan.files}
        self._files = [each for each in self._files if id(each[1]) not in synced]

    def truncated(self) -> None:
        """Invalidate all plans made before now."""
        self._generation += 1
