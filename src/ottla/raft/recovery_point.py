"""The offset up to which the metadata log is known to be durable, to detect damage.

    recovery-point     ``00000000000000001500 1c2a9f00``: an offset, and the CRC32C of its digits

Written in place after each flush and not synced: any content that reaches the disk was true, so
after a power loss the offset may be too low but never too high. It is lowered, durably, before the
log is truncated. A torn or missing file gives no information.
"""

import re
from typing import Final

from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import Offset
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, File, OpenMode

FILE_NAME: Final = "recovery-point"
_LINE: Final = re.compile(rb"([0-9]{20}) ([0-9a-f]{8})\n")


class RecoveryPoint:
    """The file of one metadata log. ``offset`` is None if nothing is known."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._file: File | None = None
        self.offset = _decode(read_file(disk, self._path) or b"")

    def raise_to(self, offset: Offset) -> None:
        """Record that everything below ``offset`` is durable. Raises OSError."""
        if self.offset is not None and offset <= self.offset:
            return
        if self._file is None:
            self._file = self._disk.open(self._path, OpenMode.CREATE)
        self._file.pwrite(_encode(offset), 0)
        self.offset = offset

    def lower_to(self, offset: Offset) -> None:
        """Drop, durably, any claim that records behind ``offset`` are durable. Raises OSError."""
        if self.offset is not None and offset >= self.offset:
            return
        self.close()
        replace_file(self._disk, self._path, _encode(offset))
        self.offset = offset

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _encode(offset: Offset) -> bytes:
    digits = b"%020d" % offset
    return b"%b %08x\n" % (digits, crc32c(digits, 0, len(digits)))


def _decode(data: bytes) -> Offset | None:
    match = _LINE.fullmatch(data)
    if match is None or crc32c(match[1], 0, len(match[1])) != int(match[2], 16):
        return None
    return Offset(int(match[1]))
