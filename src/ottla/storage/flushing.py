"""What must be synced before a log's records may be called durable.

The log does not wait for the disk: it says which files hold what is not durable yet, the
caller has them synced (by group commit, or on the spot), and tells the log that it is done.
"""

from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.types import Offset
from ottla.runtime.ports import Disk, OpenMode, Syncable
from ottla.storage.files import LogFiles
from ottla.storage.segment import Segment


class PathSync:
    """A file that is not kept open, to be synced. Gone meanwhile, there is nothing to do."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        """Sync what was written to the file by whatever descriptor."""
        try:
            file = self._disk.open(self.path, OpenMode.READ_WRITE)
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()


class DirectorySync:
    """A directory whose new names are to be made durable. Gone meanwhile, it has none."""

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

    ``generation`` tells a plan from before a truncation from one made after it.
    """

    files: tuple[Syncable, ...]
    upto: Offset
    generation: int


def by_path(plan: FlushPlan, disk: Disk) -> list[Syncable]:
    """Return what to sync, each file once and opened anew.

    For a sync that takes its time: a log that is closed or deleted meanwhile closes its files,
    and then owes nothing.
    """
    found: dict[str, Syncable] = {}
    for file in plan.files:
        is_named = isinstance(file, PathSync | DirectorySync)
        found[file.path] = file if is_named else PathSync(disk, file.path)
    return list(found.values())


class Unsynced:
    """What of a log was written and not synced yet, the active segment's file left out."""

    __slots__ = ("_directory", "_disk", "_files", "_generation")

    def __init__(self, files: LogFiles) -> None:
        self._disk = files.disk
        self._directory = files.directory
        # With the segment each belongs to, if it does to one.
        self._files: list[tuple[Segment | None, Syncable]] = []
        self._generation = 0

    def add_segment(self, segment: Segment) -> None:
        """Note that a sealed segment's files are to be synced."""
        paths = [segment.offset_index.path, segment.time_index.path]
        if not segment.txn_index.is_empty:
            paths.append(segment.txn_index.path)
        self._files.append((segment, segment.file))
        self._files += [(segment, PathSync(self._disk, path)) for path in paths]

    def add_names(self, *paths: str) -> None:
        """Note that files were made, these among them."""
        self._files += [(None, PathSync(self._disk, path)) for path in paths]
        self._files.append((None, DirectorySync(self._disk, self._directory)))

    def forget(self, segment: Segment) -> None:
        """Leave a deleted segment alone: its file will be closed."""
        self._files = [each for each in self._files if each[0] is not segment]

    def plan(self, active: Segment, upto: Offset) -> FlushPlan:
        """Return what to sync, sealed segments before the active one: no hole at any time."""
        files = tuple(file for _, file in self._files)
        return FlushPlan((*files, active.file), upto, self._generation)

    def is_current(self, plan: FlushPlan) -> bool:
        """Say whether the log was not truncated since the plan was made.

        If it was, offsets below the plan's may be other records by now.
        """
        return plan.generation == self._generation

    def done(self, plan: FlushPlan) -> None:
        """Forget what a plan has synced; what was added since stays."""
        synced = {id(file) for file in plan.files}
        self._files = [each for each in self._files if id(each[1]) not in synced]

    def truncated(self) -> None:
        """Make plans from before now worthless."""
        self._generation += 1
