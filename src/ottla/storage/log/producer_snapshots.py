"""The producer snapshots of one log: when to take, load and remove them.

One is taken whenever a segment starts, so that the segment can be replayed from there, and one when
the log is closed. A snapshot that cannot be read is removed: an older one and the log after it
contain the same information.
"""

from collections.abc import Iterable

from ottla.protocol.types import Millis, Offset
from ottla.runtime.ports import OpenMode
from ottla.storage.log.files import Kind, LogFiles
from ottla.storage.log.producer_snapshot_format import CorruptSnapshot, decode, encode
from ottla.storage.log.producer_state import ProducerState


class Snapshots:
    """The snapshots of a log, by their offset. Disk failures are ``OSError``."""

    __slots__ = ("_files", "_offsets")

    def __init__(self, files: LogFiles, offsets: Iterable[Offset] = ()) -> None:
        self._files = files
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """All snapshot offsets, oldest first."""
        return tuple(self._offsets)

    def path(self, offset: Offset) -> str:
        """Return the path of the snapshot at ``offset``."""
        return self._files.path(offset, Kind.SNAPSHOT)

    def has(self, offset: Offset) -> bool:
        """Whether a start can do without another snapshot at ``offset``; so for an empty log."""
        return offset == 0 or (bool(self._offsets) and self._offsets[-1] >= offset)

    def take(self, producers: ProducerState) -> list[str]:
        """Write the producer state, unless a snapshot has it; return the paths written.

        Not synced, and written in place: a torn write fails the CRC check.
        """
        offset = producers.map_end_offset
        if self._offsets and self._offsets[-1] >= offset:
            return []
        path = self.path(offset)
        file = self._files.disk.open(path, OpenMode.CREATE)
        try:
            file.truncate(0)
            file.pwrite(encode(producers.entries()), 0)
        finally:
            file.close()
        self._offsets.append(offset)
        return [path]

    def load(self, producers: ProducerState, upto: Offset, now: Millis) -> bool:
        """Load the newest readable snapshot at or below ``upto``; False if there is none."""
        for offset in reversed([offset for offset in self._offsets if offset <= upto]):
            try:
                entries = decode(self._files.disk.read(self.path(offset)))
            except (CorruptSnapshot, FileNotFoundError):
                self.remove([offset])
                continue
            producers.load(entries, offset, now)
            return True
        return False

    def remove(self, offsets: Iterable[Offset]) -> None:
        """Remove the snapshots at these offsets."""
        for offset in list(offsets):
            self._files.remove_if_there(offset, Kind.SNAPSHOT)
            self._offsets.remove(offset)

    def remove_above(self, offset: Offset) -> None:
        """Remove the snapshots that a truncation to ``offset`` has made invalid."""
        self.remove([taken for taken in self._offsets if taken > offset])

    def remove_at(self, base_offsets: Iterable[Offset]) -> None:
        """Remove the snapshots that belong to removed segments."""
        gone = set(base_offsets)
        self.remove([taken for taken in self._offsets if taken in gone])

    def remove_strays(self, base_offsets: Iterable[Offset]) -> None:
        """Keep one per segment, and the newest if it is above the last segment's base."""
        bases = set(base_offsets)
        keep = bases | set(self._offsets[-1:] if self._offsets[-1:] > [max(bases)] else [])
        self.remove([taken for taken in self._offsets if taken not in keep])
