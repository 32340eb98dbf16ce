"""A sparse index of one segment: fixed-size ascending entries, searched by either field.

The newest entries are kept in memory and written out together: an index can be rebuilt from its
segment, so it need not be on disk before the segment is sealed, and an active segment holds no
descriptor for it. Entries on disk are read in small blocks when needed; a sealed segment's index
costs no memory.

Invariant: entries on disk come before those in memory, and none is in both.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from struct import Struct
from typing import ClassVar, Final

from ottla.protocol.types import Offset
from ottla.runtime.ports import Disk, File, OpenMode

# Entries buffered before they are written: 4 KiB of offsets, about 2 MiB of records.
TAIL_ENTRIES_MAX: Final = 512
# Entries read at once at the end of a search on disk.
_BLOCK_ENTRIES: Final = 256

Entry = tuple[int, int]


class LostIndex(FileNotFoundError):
    """The file is missing, or is shorter than what was written; its segment builds it again."""


class SparseIndex:
    """Entries of two integers, both ascending; subclasses define their meaning and packing.

    ``bytes_max`` is ``segment.index.bytes``. Nothing here is synced. Every method that
    touches the disk raises ``OSError``; entries in memory stay there when it does. Methods that
    read entries raise `LostIndex` if the file was damaged under a running node.
    """

    __slots__ = ("_disk", "_stored", "_tail", "base_offset", "entries_max", "path")

    ENTRY: ClassVar[Struct]

    def __init__(self, disk: Disk, path: str, base_offset: Offset, bytes_max: int) -> None:
        self._disk = disk
        self._stored: int | None = None  # entries on disk; None: read the file's size when needed
        self._tail: list[Entry] = []
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // self.ENTRY.size

    def reset(self) -> None:
        """Remove all entries, on disk too; creates the file if it is missing."""
        file = self._disk.open(self.path, OpenMode.CREATE)
        try:
            file.truncate(0)
        finally:
            file.close()
        self._stored = 0
        self._tail.clear()

    def contents(self) -> bytes:
        """Return all entries as they are, or will be, in the file."""
        stored = self._disk.read(self.path)[: self._stored_entries() * self.ENTRY.size]
        return stored + b"".join(self.ENTRY.pack(*entry) for entry in self._tail)

    # -- entries -------------------------------------------------------------

    def __len__(self) -> int:
        return self._stored_entries() + len(self._tail)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits into ``segment.index.bytes``: the segment must roll."""
        return len(self) >= self.entries_max

    def last(self) -> Entry | None:
        """Return the newest entry."""
        if self._tail:
            return self._tail[-1]
        stored = self._stored_entries()
        return self._read(stored - 1, 1)[0] if stored else None

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, oldest first."""
        stored = self._stored_entries()
        for start in range(0, stored, _BLOCK_ENTRIES):
            yield from self._read(start, min(_BLOCK_ENTRIES, stored - start))
        yield from list(self._tail)

    def add(self, entry: Entry) -> None:
        """Append an entry; the caller keeps the order."""
        self._tail.append(entry)
        if len(self._tail) >= TAIL_ENTRIES_MAX:
            self.write_out()

    def write_out(self) -> None:
        """Write the entries that are only in memory, so that the file is complete."""
        if not self._tail:
            return
        stored = self._stored_entries()
        pack = self.ENTRY.pack
        data = b"".join([pack(*entry) for entry in self._tail])
        file = self._disk.open(self.path, OpenMode.CREATE)
        try:
            file.pwrite(data, stored * self.ENTRY.size)
        finally:
            file.close()
        self._stored = stored + len(self._tail)
        self._tail.clear()

    def keep(self, count: int) -> None:
        """Remove all entries but the first ``count``."""
        stored = self._stored_entries()
        if count >= stored:
            del self._tail[count - stored :]
            return
        self._tail.clear()
        file = self._open(OpenMode.READ_WRITE)
        try:
            file.truncate(count * self.ENTRY.size)
        finally:
            file.close()
        self._stored = count

    # -- search --------------------------------------------------------------

    def floor(self, target: int) -> Entry | None:
        """Return the last entry whose first field is at or below ``target``."""
        return self._find(0, target + 1)[1]

    def count_below(self, field: int, limit: int) -> int:
        """Return how many entries have ``field`` (0 or 1) below ``limit``."""
        return self._find(field, limit)[0]

    def _find(self, field: int, limit: int) -> tuple[int, Entry | None]:
        """Return how many entries have ``field`` below ``limit``, and the last of them."""
        tail, stored = self._tail, self._stored_entries()
        if tail and tail[0][field] < limit:
            count = bisect_left(tail, limit, key=itemgetter(field))
            return stored + count, tail[count - 1]
        if not stored:
            return 0, None
        file = self._open(OpenMode.READ)
        try:
            return self._find_stored(file, field, limit)
        finally:
            file.close()

    def _find_stored(self, file: File, field: int, limit: int) -> tuple[int, Entry | None]:
        """Bisect the entries on disk until one block holds the result."""
        low, high = 0, self._stored_entries()
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._read_from(file, middle, 1)[0][field] < limit:
                low = middle
            else:
                high = middle
        block = self._read_from(file, low, high - low)
        count = bisect_left(block, limit, key=itemgetter(field))
        return low + count, block[count - 1] if count else None

    # -- the file ------------------------------------------------------------

    def stored_bytes(self) -> int:
        """Return the file's length; not a multiple of the entry size if it is damaged."""
        return self._disk.size(self.path)

    def _stored_entries(self) -> int:
        if self._stored is None:
            try:
                self._stored = self._disk.size(self.path) // self.ENTRY.size
            except FileNotFoundError:
                self._stored = 0  # the segment detects that, and rebuilds the index
        return self._stored

    def _open(self, mode: OpenMode) -> File:
        try:
            return self._disk.open(self.path, mode)
        except FileNotFoundError as error:
            raise LostIndex(str(error)) from error

    def _read(self, start: int, count: int) -> list[Entry]:
        file = self._open(OpenMode.READ)
        try:
            return self._read_from(file, start, count)
        finally:
            file.close()

    def _read_from(self, file: File, start: int, count: int) -> list[Entry]:
        size = self.ENTRY.size
        data = file.pread(count * size, start * size)
        if len(data) != count * size:
            raise LostIndex(f"{self.path} has shrunk while it was in use")
        return list(self.ENTRY.iter_unpack(data))
