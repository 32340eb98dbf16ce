"""One segment of a log: a file of batches and its indexes.

The file is authoritative and the indexes are a cache of it. A segment opened from disk does not
trust them: an entry is used only if the batch it points at agrees, and an index that is short,
long, zeroed or wrong is rebuilt when it is first used. So opening a segment costs nothing, and a
bad index costs time but never a wrong result. The same holds for an index whose file is removed or
cut while the segment is in use (`LostIndex`).

Invariant: ``[0, size)`` of the file is complete batches with ascending offsets. Bytes after
``size`` are reserved space or a failed write, and are never read.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, read_header
from ottla.protocol.types import NO_TIMESTAMP, Millis, Offset
from ottla.runtime.ports import File, OpenMode
from ottla.storage.log.files import INDEXES, Kind, LogFiles, State
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from ottla.storage.log.scan import LocatedBatch, headers
from ottla.storage.log.segment_tail import SegmentTail
from ottla.storage.log.sparse_index import LostIndex
from ottla.storage.log.time_index import TimeIndex, TimestampOffset
from ottla.storage.log.transaction_index import TransactionIndex

T = TypeVar("T")


class Segment(SegmentTail):
    """A segment that starts at ``base_offset``. Every disk failure is an ``OSError``.

    Does not sync: the log decides what must be durable when.
    """

    __slots__ = ("_are_offsets_checked", "_files", "state", "txn_index")

    size: int
    base_offset: Offset
    created: Millis
    jitter_ms: int
    offset_index: OffsetIndex
    time_index: TimeIndex
    _config: LogConfig
    _file: File | None
    _first_timestamp: Millis | None
    _is_full: bool | None

    def __init__(
        self,
        files: LogFiles,
        base_offset: Offset,
        config: LogConfig,
        *,
        has_txn_index: bool,
        state: State = State.LIVE,
    ) -> None:
        disk = files.disk
        self._files = files
        self._config = config
        self._age_ms_max = config.segment_ms_max
        self._is_full = None  # None: compute it again
        self._file = None
        self._reserved = 0
        self._bytes_since_index = 0
        self._are_offsets_checked = False
        self.forget_recent()
        self._largest = None  # None: not known yet
        self._first_timestamp = None
        self.base_offset = base_offset
        self.state = state
        self.size = 0
        self.created = Millis(0)  # wall time; used only while no batch has a timestamp
        self.jitter_ms = 0
        index_bytes = config.segment_index_bytes
        path = files.path(base_offset, Kind.OFFSET_INDEX, state)
        self.offset_index = OffsetIndex(disk, path, base_offset, index_bytes)
        path = files.path(base_offset, Kind.TIME_INDEX, state)
        self.time_index = TimeIndex(disk, path, base_offset, index_bytes)
        path = files.path(base_offset, Kind.TXN_INDEX, state)
        self.txn_index = TransactionIndex(disk, path, base_offset, exists=has_txn_index)

    @classmethod
    def create(
        cls,
        files: LogFiles,
        base_offset: Offset,
        config: LogConfig,
        *,
        now: Millis,
        state: State = State.LIVE,
    ) -> "Segment":
        """Create an empty segment; existing files of that name are emptied or removed."""
        files.remove_if_there(base_offset, Kind.TXN_INDEX, state)
        segment = cls(files, base_offset, config, has_txn_index=False, state=state)
        segment.offset_index.reset()
        segment.time_index.reset()
        segment._file = files.disk.open(segment.path, OpenMode.CREATE)
        segment._file.truncate(0)
        segment.created = now
        segment._are_offsets_checked = True
        segment._largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        return segment

    @classmethod
    def open(
        cls,
        files: LogFiles,
        base_offset: Offset,
        config: LogConfig,
        *,
        has_txn_index: bool,
        state: State = State.LIVE,
    ) -> "Segment":
        """Open a segment as it is on disk. Reads nothing but the file's length."""
        segment = cls(files, base_offset, config, has_txn_index=has_txn_index, state=state)
        segment.size = segment._reserved = files.disk.size(segment.path)
        return segment

    # -- properties ----------------------------------------------------------

    @property
    def path(self) -> str:
        """The path of the ``.log`` file."""
        return self._files.path(self.base_offset, Kind.LOG, self.state)

    @property
    def file(self) -> File:
        """The ``.log`` file, opened when first needed and kept open until `close`."""
        if self._file is None:
            self._file = self._files.disk.open(self.path, OpenMode.READ_WRITE)
        return self._file

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the offset of its batch; -1 if no batch has a timestamp."""
        if self._largest is None:
            self._largest = self._find_largest()
        return self._largest

    @property
    def modified(self) -> Millis:
        """The time of the last write to the file."""
        return self._files.disk.modified(self.path)

    @property
    def largest_timestamp(self) -> Millis:
        """The timestamp for retention: the largest, or else the time of the last write."""
        timestamp = self.largest.timestamp
        return timestamp if timestamp >= 0 else self.modified

    @property
    def first_timestamp(self) -> Millis | None:
        """The largest timestamp of the first batch, from which ``segment.ms`` counts."""
        if self._first_timestamp is None and self.size:
            first = next(headers(self.file, 0, self.size))
            self._first_timestamp = first.header.max_timestamp
        return self._first_timestamp

    def may_hold(self, offset: Offset) -> bool:
        """Whether the indexes can represent ``offset``."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def configure(self, config: LogConfig) -> None:
        """Apply new settings from the next append on."""
        self._config = config
        self._age_ms_max = config.segment_ms_max

    # -- writing -------------------------------------------------------------

    def drop_unnoted(self) -> None:
        """Cut off bytes that were written and never recorded with `note`."""
        self.file.truncate(self.size)
        self._reserved = self.size

    def seal(self) -> None:
        """Complete the files: add the last entry of the time index, release reserved space."""
        if self._largest is not None and self._largest.timestamp >= 0:
            self.time_index.append(self._largest)
        self.offset_index.write_out()
        self.time_index.write_out()
        if self._file is not None and self._reserved > self.size:
            self.drop_unnoted()

    def truncate_to(self, offset: Offset) -> int:
        """Remove the batches that hold or follow ``offset``, durably; return how many bytes.

        Syncs: if old bytes came back after a power failure, batches appended later could end up
        between batches of another history.
        """
        found = self.find(offset)
        self._indexed(lambda: self._truncate_indexes(offset))
        self.txn_index.truncate_to(offset)
        self._is_full = None
        cut = 0 if found is None else self.size - found.position
        self.size -= cut
        self.drop_unnoted()
        self.file.sync()
        self._bytes_since_index = 0
        self._largest = self._find_largest()
        if not self.size:
            self._first_timestamp = None
        return cut

    def _truncate_indexes(self, offset: Offset) -> None:
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)

    # -- search --------------------------------------------------------------

    def find(self, offset: Offset) -> LocatedBatch | None:
        """Return the first batch that ends at or above ``offset``; None when none does.

        Raises:
            CorruptBatch, UnsupportedMagic: the file is damaged before that batch.
        """
        recent = self._find_recent(offset)
        if recent is not None:
            return recent
        return self._indexed(lambda: self._find_indexed(offset))

    def _find_indexed(self, offset: Offset) -> LocatedBatch | None:
        self._check_offsets()
        entry_offset, position = self.offset_index.lookup(offset)
        batches = headers(self.file, position, self.size)
        if position != 0:
            first = self._checked_first(batches, entry_offset, position)
            if first is None:
                self.rebuild_indexes()
                batches = headers(self.file, self.offset_index.lookup(offset)[1], self.size)
            elif first.header.last_offset >= offset:
                return first
        for found in batches:
            if found.header.last_offset >= offset:
                return found
        return None

    def position_of(self, offset: Offset) -> int:
        """Return the position of the batch that `find` returns; the segment's size if none is.

        Raises:
            CorruptBatch, UnsupportedMagic: as `find`; a recent batch is not read.
        """
        recent = self.find_recent(offset)
        if recent is not None:
            return recent[0]
        found = self.find(offset)
        return self.size if found is None else found.position

    def _find_recent(self, offset: Offset) -> LocatedBatch | None:
        """Read the header of a recent batch; None if it is another, or is damaged."""
        recent = self.find_recent(offset)
        if recent is None:
            return None
        position, size = recent
        try:
            header = read_header(self.file.pread(HEADER_BYTES, position))
        except (CorruptBatch, UnsupportedMagic):
            return None
        is_whole = header.size == size and header.last_offset >= offset
        return LocatedBatch(position, header) if is_whole else None

    def indexed_below(self, limit: int) -> int:
        """Return the position of the last indexed batch that begins below ``limit``; 0 if none."""
        return self._indexed(lambda: self.offset_index.last_position_below(limit))

    def batches_from(self, position: int) -> Iterator[LocatedBatch]:
        """Yield the batches from ``position`` on; one must begin there."""
        if not self.size:
            return iter(())  # the file of an idle partition is not opened
        return headers(self.file, position, self.size)

    def next_offset(self) -> Offset:
        """Return the offset after the last batch; the base offset when there is none.

        Raises:
            CorruptBatch, UnsupportedMagic: the file is damaged after the last index entry.
        """
        if not self.size:
            return self.base_offset  # the file of an idle partition is not opened
        self._check_offsets()
        upto = self.base_offset
        for found in headers(self.file, self._last_indexed(), self.size):
            upto = found.header.next_offset
        return upto

    def _last_indexed(self) -> int:
        """Return the position of the last indexed batch; rebuilds an index that is wrong there."""
        relative, position = self._indexed(self.offset_index.last) or (0, 0)
        if not self._is_entry_true(Offset(self.base_offset + relative), position):
            self.rebuild_indexes()
            position = (self.offset_index.last() or (0, 0))[1]
        return position

    def find_timestamp(self, timestamp: Millis, start: Offset) -> LocatedBatch | None:
        """Return the first batch at or after ``start`` with a record at or after ``timestamp``."""
        entry = self._indexed(lambda: self.time_index.lookup(timestamp))
        if entry is not None and not self._is_time_true(entry):
            self.rebuild_indexes()
            entry = self.time_index.lookup(timestamp)
        first = self.find(start if entry is None else max(start, entry.offset))
        if first is None:
            return None
        for found in headers(self.file, first.position, self.size):
            if found.header.max_timestamp >= timestamp:
                return found
        return None

    # -- indexes that may be wrong -------------------------------------------

    def _indexed(self, use: Callable[[], T]) -> T:
        """Use the indexes; if one was lost under this segment, rebuild them and try again."""
        try:
            return use()
        except LostIndex:
            self.rebuild_indexes()
            return use()

    def _check_offsets(self) -> None:
        """Check once whether the offset index of a segment from disk is plausible."""
        if not self._are_offsets_checked:
            self._are_offsets_checked = True
            if not self._are_offsets_plausible():
                self.rebuild_indexes()

    def recheck_indexes(self) -> None:
        """Check the offset index again before its next use: the batches were repaired."""
        self._are_offsets_checked = False
        self.forget_recent()

    def _are_offsets_plausible(self) -> bool:
        try:
            if self.offset_index.stored_bytes() % self.offset_index.ENTRY.size:
                return False
        except FileNotFoundError:
            return False
        try:
            last = self.offset_index.last()
        except LostIndex:
            return False
        relative, position = (0, 0) if last is None else last
        if not self._is_entry_true(Offset(self.base_offset + relative), position):
            return False
        return not self._is_index_short(position)

    def _is_index_short(self, position: int) -> bool:
        """Whether a batch lies so far after the last entry that it should have one."""
        interval = self._config.index_interval_bytes
        try:
            return any(
                found.position - position > interval
                for found in headers(self.file, position, self.size)
            )
        except (CorruptBatch, UnsupportedMagic):
            return False  # damage in the file, not in the index: its reader finds out

    def _is_entry_true(self, offset: Offset, position: int) -> bool:
        """Whether a batch begins at ``position`` that starts at or below ``offset``."""
        if position == 0:
            return True
        batches = headers(self.file, position, self.size)
        return self._checked_first(batches, offset, position) is not None

    def _checked_first(
        self, batches: Iterator[LocatedBatch], offset: Offset, position: int
    ) -> LocatedBatch | None:
        """Return the first of the batches from ``position`` on; None if an index entry is wrong.

        The entry claims that a batch begins at ``position`` that starts at or below ``offset``.
        """
        if not 0 < position < self.size:
            return None
        try:
            found = next(batches)
        except (CorruptBatch, UnsupportedMagic):
            return None
        return found if self.base_offset <= found.header.base_offset <= offset else None

    def _is_time_true(self, entry: TimestampOffset) -> bool:
        """Whether the batch at the entry's offset has the entry's timestamp."""
        if entry.offset < self.base_offset:
            return False
        found = self.find(entry.offset)
        return found is not None and found.header.max_timestamp == entry.timestamp

    def _find_largest(self) -> TimestampOffset:
        """Read the last entry of the time index, and the batches appended after it."""
        try:
            is_whole = self.time_index.stored_bytes() % self.time_index.ENTRY.size == 0
        except FileNotFoundError:
            is_whole = False
        newest = self._indexed(self.time_index.newest) if is_whole else None
        if not is_whole or (newest is not None and not self._is_time_true(newest)):
            return self.rebuild_indexes()
        largest = newest or TimestampOffset(NO_TIMESTAMP, self.base_offset)
        first = self.find(largest.offset)
        for found in headers(self.file, first.position if first else 0, self.size):
            if found.header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(found.header.max_timestamp, found.header.last_offset)
        return largest

    def rebuild_indexes(self) -> TimestampOffset:
        """Rebuild offset and time index from the batch headers; return the largest timestamp.

        Raises:
            CorruptBatch, UnsupportedMagic: damage; the indexes then cover what precedes it.
        """
        size = self.size
        self.restart_indexes()
        self.forget_recent()
        try:
            for found in headers(self.file, 0, size):
                header = found.header
                self.note(header.last_offset, header.max_timestamp, header.size)
            self.seal_indexes()
        finally:
            self.size = size
        return self.largest

    def restart_indexes(self) -> None:
        """Empty both indexes and reset ``size`` to 0."""
        self.offset_index.reset()
        self.time_index.reset()
        self._are_offsets_checked = True
        self._is_full = None
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._bytes_since_index = 0
        self.size = 0

    def seal_indexes(self) -> None:
        """Write out both indexes; the largest timestamp is the last entry."""
        if self.largest.timestamp >= 0:
            self.time_index.append(self.largest)
        self.offset_index.write_out()
        self.time_index.write_out()

    # -- the files -----------------------------------------------------------

    def change_state(self, state: State) -> None:
        """Rename every file of the segment, the batches first. Open files stay usable."""
        disk, before = self._files.disk, self.state
        for kind in (Kind.LOG, *INDEXES):
            if kind is Kind.TXN_INDEX and self.txn_index.is_empty:
                self._files.remove_if_there(self.base_offset, kind, before)
                continue
            path = self._files.path(self.base_offset, kind, before)
            disk.rename(path, self._files.path(self.base_offset, kind, state))
        self._set_state(state)

    def mark_deleted(self) -> None:
        """Remove the segment from the log: rename its batches to ``.deleted``, for readers that
        found them before; remove its indexes at once.

        The rename comes first and is durable: from then on the segment is not part of the log,
        and an index left behind by a crash is removed when the log is opened.
        """
        source = self.path
        target = self._files.path(self.base_offset, Kind.LOG, State.DELETED)
        with suppress(FileNotFoundError):  # removed under a running node: nothing is left to keep
            self._files.disk.rename(source, target)
        for kind in INDEXES:
            self._files.remove_if_there(self.base_offset, kind, self.state)
        self.state = State.DELETED

    def remove(self) -> None:
        """Close the segment and remove the file that `mark_deleted` left."""
        self.close()
        self._files.remove_if_there(self.base_offset, Kind.LOG, self.state)

    def close(self) -> None:
        """Release the file. It is closed when the last slice of it has been sent."""
        self._file = None

    def _set_state(self, state: State) -> None:
        self.state = state
        for kind, index in (
            (Kind.OFFSET_INDEX, self.offset_index),
            (Kind.TIME_INDEX, self.time_index),
            (Kind.TXN_INDEX, self.txn_index),
        ):
            index.path = self._files.path(self.base_offset, kind, state)
