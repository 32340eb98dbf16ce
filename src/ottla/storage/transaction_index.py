"""``.txnindex``: the aborted transactions that ended in a segment.

34 bytes per entry, big-endian, in the order of the markers:

    version             int16   0
    producer_id         int64
    first_offset        int64   of the transaction; may be in an earlier segment
    last_offset         int64   of the abort marker
    last_stable_offset  int64   what read_committed may reach once the marker is replicated

The file is created when a transaction aborts. Unlike in the other indexes an entry is written at
once: readers need it to skip aborted records.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.types import Offset, ProducerId
from ottla.runtime.ports import Disk, OpenMode

VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_BLOCK_BYTES: Final = 1024 * ENTRY_BYTES


class CorruptIndex(Exception):
    """An index that cannot be trusted; it is rebuilt from its segment."""


class AbortedTxn(NamedTuple):
    """A transaction whose records a read_committed reader skips."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """Aborted transactions of one segment. Disk failures are ``OSError``; nothing is synced."""

    __slots__ = ("_disk", "_size", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, exists: bool) -> None:
        self._disk = disk
        self._size: int | None = None if exists else 0
        self.path = path
        self.base_offset = base_offset

    @property
    def is_empty(self) -> bool:
        """Whether no transaction that ended in this segment was aborted."""
        return self._length() == 0

    def append(self, txn: AbortedTxn) -> None:
        """Add a transaction; its marker must be the newest in the segment."""
        size = self._length()
        file = self._disk.open(self.path, OpenMode.CREATE)
        try:
            file.pwrite(_ENTRY.pack(VERSION, *txn), size)
        finally:
            file.close()
        self._size = size + ENTRY_BYTES

    def collect(self, start: Offset, upto: Offset) -> tuple[list[AbortedTxn], bool]:
        """Return those that overlap ``[start, upto)``, and whether later segments have no more.

        Raises:
            CorruptIndex: an entry is invalid.
        """
        found = []
        for txn in self.entries():
            if txn.last_offset >= start and txn.first_offset < upto:
                found.append(txn)
            if txn.last_stable_offset >= upto:
                return found, True
        return found, False

    def entries(self) -> Iterator[AbortedTxn]:
        """Yield all entries, oldest marker first.

        Raises:
            CorruptIndex: the file is not a whole number of entries, or one is out of order.
        """
        size = self._length()
        if size == 0:
            return
        if size % ENTRY_BYTES:
            raise CorruptIndex(f"{self.path}: {size} bytes are not a whole number of entries")
        file = self._disk.open(self.path, OpenMode.READ)
        try:
            before = self.base_offset - 1
            for position in range(0, size, _BLOCK_BYTES):
                data = file.pread(min(_BLOCK_BYTES, size - position), position)
                for version, *fields in _ENTRY.iter_unpack(data):
                    txn = AbortedTxn(*fields)
                    self._check(version, txn, before)
                    before = txn.last_offset
                    yield txn
        finally:
            file.close()

    def contents(self) -> bytes:
        """Return the bytes of the file."""
        return b"" if self.is_empty else self._disk.read(self.path)

    def truncate_to(self, offset: Offset) -> None:
        """Drop transactions whose marker is at or above ``offset``."""
        kept = sum(txn.last_offset < offset for txn in self.entries())
        self._cut(kept * ENTRY_BYTES)

    def reset(self) -> None:
        """Remove all entries."""
        if self._size != 0:
            self._cut(0)

    def _check(self, version: int, txn: AbortedTxn, before: int) -> None:
        if version != VERSION or txn.last_offset <= before or txn.first_offset > txn.last_offset:
            raise CorruptIndex(f"{self.path}: version {version}, {txn} after offset {before}")

    def _cut(self, size: int) -> None:
        if self._length() == size:
            return
        file = self._disk.open(self.path, OpenMode.READ_WRITE)
        try:
            file.truncate(size)
        finally:
            file.close()
        self._size = size

    def _length(self) -> int:
        if self._size is None:
            self._size = self._disk.size(self.path)
        return self._size
