"""Write the batches of another replica into segments that replace a missing range of a log.

The segments are written under ``.cleaned`` names, as the cleaner does, and synced before they are
put in place: a crash leaves the range missing, or restores it.
"""

from contextlib import suppress

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.types import Buffer, Millis, Offset
from ottla.runtime.ports import Disk
from ottla.storage.log.files import INDEXES, Kind, LogFiles, State
from ottla.storage.log.flushing import PathSync
from ottla.storage.log.inventory import MissingRange
from ottla.storage.log.log import Log
from ottla.storage.log.segment import Segment


class RangeRestore:
    """The restore of one missing range, from ``start`` on. Disk failures are ``OSError``."""

    def __init__(self, disk: Disk, log: Log, missing: MissingRange, start: Offset) -> None:
        self.missing = missing
        self._files = LogFiles(disk, log.directory)
        self._log = log
        self._next_base = start
        self._segments: list[Segment] = []

    def add(self, data: Buffer, header: BatchHeader, now: Millis) -> None:
        """Write a batch. Batches arrive in the order of their offsets and are sound."""
        segment = self._segments[-1] if self._segments else None
        config = self._log.config
        if (
            segment is None
            or segment.size + header.size > config.segment_bytes
            or not segment.may_hold(header.last_offset)
        ):
            base = header.base_offset
            if segment is None:
                base = min(base, self._next_base)
            segment = Segment.create(self._files, base, config, now=now, state=State.CLEANED)
            self._segments.append(segment)
        segment.write(data)
        segment.note(header.last_offset, header.max_timestamp, header.size)

    def seal(self) -> list[PathSync]:
        """Complete the segments; return the files to sync before `finish`."""
        paths = []
        for segment in self._segments:
            segment.seal()
            paths += [
                self._files.path(segment.base_offset, kind, State.CLEANED)
                for kind in (Kind.LOG, *INDEXES)
            ]
        return [PathSync(self._files.disk, path) for path in paths]

    def finish(self) -> None:
        """Put the segments in place. Raises StorageFailed: the range is missing, or restored."""
        segments, self._segments = self._segments, []
        self._log.restore(self.missing, segments)

    def discard(self) -> None:
        """Remove what was written, unless it is in place. A crash leaves it to the next start."""
        for segment in self._segments:
            segment.close()
            with suppress(OSError):
                for kind in (Kind.LOG, *INDEXES):
                    self._files.remove_if_there(segment.base_offset, kind, State.CLEANED)
        self._segments = []
