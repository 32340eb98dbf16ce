"""The producer snapshots of one log: when one is taken, which one is loaded, which ones go.

One is taken whenever a segment begins, so that the segment can be replayed from there, and
one when the log is closed. A snapshot that cannot be read is removed: an older one and the
log behind it say the same.
"""

from collections.abc import Iterable

from ottla.protocol.types import Millis, Offset
from ottla.runtime.ports import OpenMode
from ottla.storage.files import Kind, LogFiles
from ottla.storage.producer_snapshot_format import CorruptSnapshot, decode, encode
from ottla.storage.producer_state import ProducerState


class Snapshots:
    """Which snapshots a log has, by the offset they are of. Disk failures are ``OSError``."""

    __slots__ = ("_files", "_offsets")

    def __init__(self, files: LogFiles, offsets: Iterable[Offset] = ()) -> None:
        self._files = files
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """All of them, oldest first."""
        return tuple(self._offsets)

    def path(self, offset: Offset) -> str:
        """Return where the snapshot of ``offset`` is."""
        return self._files.path(offset, Kind.SNAPSHOT)

    def take(self, producers: ProducerState) -> list[str]:
        """Write the producers as they are, unless that is done; return what was written.

        Not synced, and written in place: torn, its CRC gives it away.
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
        """Load the newest snapshot at or below ``upto`` that can be read; say if there is one."""
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
        """Remove the snapshots of these offsets."""
        for offset in list(offsets):
            self._files.remove_if_there(offset, Kind.SNAPSHOT)
            self._offsets.remove(offset)

    def remove_above(self, offset: Offset) -> None:
        """Remove what a truncation to ``offset`` has made untrue."""
        self.remove([taken for taken in self._offsets if taken > offset])

    def remove_at(self, base_offsets: Iterable[Offset]) -> None:
        """Remove the snapshots that belong to segments that are gone."""
        gone = set(base_offsets)
        self.remove([taken for taken in self._offsets if taken in gone])

    def remove_strays(self, base_offsets: Iterable[Offset]) -> None:
        """Keep one per segment, and the newest if it is behind the last segment's base."""
        bases = set(base_offsets)
        keep = bases | set(self._offsets[-1:] if self._offsets[-1:] > [max(bases)] else [])
        self.remove([taken for taken in self._offsets if taken not in keep])
