"""The smallest correct store: an append-only journal in several files.

    /data/journal-00000000, journal-00000042, ...   named by the number of their first entry
    entry   length  u32     of the payload
            crc     u32     of the payload (CRC-32)
            payload

The names matter: a file may lose its unsynced end between two entries while the next file survives,
and only a number that does not fit reveals it.

It exists to test the simulator on code that is small enough to see every line, and to break it.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Protocol

from ottla.runtime.ports import Committer, Disk, File, OpenMode

DIRECTORY = "/data"
FILE_BYTES_MAX = 3000
_HEADER = struct.Struct(">II")


class Store(Protocol):
    """The store as the append service uses it."""

    def recover(self) -> list[bytes]:
        """Open, repair, and return every value held, in order."""
        ...

    def append(self, value: bytes) -> int:
        """Append a value; return its index, counted from 0.

        Raises:
            OSError, StorageFailed: it is not stored, whatever is on the disk.
        """
        ...

    async def commit(self) -> None:
        """Return once everything appended before this call is durable.

        Raises:
            StorageFailed: it never will be.
        """
        ...


class JournalStore:
    """`Store` in a directory of files that are each written from front to back."""

    def __init__(self, disk: Disk, committer: Committer) -> None:
        self._disk = disk
        self._committer = committer
        self._count = 0
        self._end = 0
        self._files: list[File] = []  # not durable yet, oldest first; the last is written

    def recover(self) -> list[bytes]:
        """Keep the entries before the first incomplete one; drop the rest for good."""
        self._disk.make_dirs(DIRECTORY)
        values: list[bytes] = []
        names = [name for name in self._disk.list(DIRECTORY) if name.startswith("journal-")]
        is_broken = False
        for name in names:
            if is_broken or name != f"journal-{len(values):08d}":
                is_broken = True
                self._disk.remove(f"{DIRECTORY}/{name}")
                continue
            found, is_broken = self._recover_file(f"{DIRECTORY}/{name}")
            values += found
        self._settle_names()
        if not self._files:
            self._create()
        self._count = len(values)
        return values

    def _recover_file(self, path: str) -> tuple[list[bytes], bool]:
        file = self._disk.open(path, OpenMode.READ_WRITE)
        data = file.pread(file.size(), 0)
        found = list(self._entries(data))
        self._end = sum(_HEADER.size + len(value) for value in found)
        self._drop_tail(file, len(data))
        self._settle(file)
        self._files = [file]
        return found, self._end < len(data)

    def _entries(self, data: bytes) -> Iterator[bytes]:
        position = 0
        while position + _HEADER.size <= len(data):
            length, crc = _HEADER.unpack_from(data, position)
            value = data[position + _HEADER.size : position + _HEADER.size + length]
            if not self._is_whole(value, length, crc):
                return
            yield value
            position += _HEADER.size + length

    def _is_whole(self, value: bytes, length: int, crc: int) -> bool:
        return length > 0 and len(value) == length and zlib.crc32(value) == crc

    def _drop_tail(self, file: File, size: int) -> None:
        if self._end < size:
            file.truncate(self._end)

    def _settle(self, file: File) -> None:
        """Sync what was recovered: it may be in the page cache only."""
        file.sync()

    def _settle_names(self) -> None:
        """Sync the directory: dropped files must not reappear after new writes."""
        self._disk.sync_dir(DIRECTORY)

    def append(self, value: bytes) -> int:
        """Write one entry, in a new file if the last is full."""
        entry = _HEADER.pack(len(value), zlib.crc32(value)) + value
        if self._end and self._end + len(entry) > FILE_BYTES_MAX:
            self._create()
        self._files[-1].pwrite(entry, self._end)
        self._end += len(entry)
        self._count += 1
        return self._count - 1

    def _create(self) -> None:
        """Create the next file; its name is durable before anything in it is acknowledged."""
        path = f"{DIRECTORY}/journal-{self._count:08d}"
        self._files.append(self._disk.open(path, OpenMode.CREATE_NEW))
        self._settle_names()
        self._end = 0

    async def commit(self) -> None:
        """Sync every file not durable yet, oldest first."""
        files = list(self._files)
        await self._committer.commit(files)
        self._files = [file for file in self._files if file not in files[:-1]]
