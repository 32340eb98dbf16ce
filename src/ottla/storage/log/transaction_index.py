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
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ottla.protocol.types import Offset, ProducerId
from ottla.runtime.atomic_file import read_file
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

    __slots__ = ("_crc", "_disk", "_size", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, exists: bool) -> None:
        self._disk = disk
        self._size: int | None = None if exists else 0
        self._crc: int | None = None if exists else 0  # of all entries; None: not known
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
            file.pwrite(entry := _ENTRY.pack(VERSION, *txn), size)
        finally:
            file.close()
        self._size = size + ENTRY_BYTES
        self._crc = None if self._crc is None else crc32(entry, self._crc)

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
        try:
            file = self._disk.open(self.path, OpenMode.READ)
        except FileNotFoundError as error:
            raise CorruptIndex(f"{self.path}: is missing") from error
        try:
            before = self.base_offset - 1
            for position in range(0, size, _BLOCK_BYTES):
                length = min(_BLOCK_BYTES, size - position)
                data = file.pread(length, position)
                if len(data) != length:
                    raise CorruptIndex(f"{self.path}: is shorter than {size} bytes")
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

    def digest(self) -> tuple[int, int]:
        """Return the length of the entries and their CRC-32, for `is_as`.

        Raises:
            OSError: the file cannot be read.
        """
        if self._crc is None:
            self._crc = crc32(self.contents())
        return self._length(), self._crc

    def is_as(self, size: int, crc: int) -> bool:
        """Whether the file has this length and CRC-32; remembers them if so.

        Raises:
            OSError: the file cannot be read.
        """
        data = read_file(self._disk, self.path) or b""
        if (len(data), crc32(data)) != (size, crc):
            return False
        self._size, self._crc = size, crc
        return True

    def is_intact(self) -> bool:
        """Whether the file is as it was written, as far as that is known."""
        return self._crc is None or self.is_as(self._length(), self._crc)

    def truncate_to(self, offset: Offset) -> None:
        """Drop transactions whose marker is at or above ``offset``.

        A corrupt file stays as it is: the next reader has it rebuilt.
        """
        with suppress(CorruptIndex):
            kept = sum(txn.last_offset < offset for txn in self.entries())
            self._cut(kept * ENTRY_BYTES)

    def reset(self) -> None:
        """Remove all entries, whatever the file is."""
        with suppress(FileNotFoundError):
            if self._size != 0:
                self._size = None
                self._cut(0)
        self._size = self._crc = 0

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
        self._crc = None if size else 0

    def _length(self) -> int:
        if self._size is None:
            self._size = self._disk.size(self.path)
        return self._size
