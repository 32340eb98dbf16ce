"""Iterate over the batches of a segment file, by headers alone or with their bytes.

Memory is bounded by one window, or by one batch if that is larger; a batch that claims more than
the file holds is rejected before it is read.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch, Fault, UnsupportedMagic
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from ottla.runtime.ports import File

# There are about 4 KiB between two index entries: one read covers them and the next header.
_HEADER_WINDOW_BYTES: Final = 8192
_BATCH_WINDOW_BYTES: Final = 1 << 20


def cause(fault: Fault, path: str) -> str:
    """Return what is wrong with a batch, without the path, which the caller reports itself."""
    if isinstance(fault, UnsupportedMagic):
        return "no record batch begins here"
    return str(fault).removeprefix(f"{path}: ")


class LocatedBatch(NamedTuple):
    """The position of a batch in its file, and its header."""

    position: int
    header: BatchHeader


class StoredBatch(NamedTuple):
    """A batch in memory: at ``start`` of ``buffer``, and at ``position`` of its file."""

    position: int
    header: BatchHeader
    buffer: bytes
    start: int


def headers(file: File, start: int, end: int) -> Iterator[LocatedBatch]:
    """Yield the batches that begin in ``[start, end)``; one must begin at ``start``.

    Raises:
        CorruptBatch, UnsupportedMagic: there is no batch at the position reached, or it extends
            past ``end``. OSError: the file cannot be read.
    """
    window, window_start = b"", start
    position = start
    while position < end:
        offset = position - window_start
        if len(window) - offset < HEADER_BYTES:
            window = file.pread(min(_HEADER_WINDOW_BYTES, end - position), position)
            window_start, offset = position, 0
        header = read_header(window, offset)
        if header.size > end - position:
            raise CorruptBatch(f"{file.path}: the batch at {position} extends past the end")
        yield LocatedBatch(position, header)
        position += header.size


class BatchWindow:
    """Reads the batches of a file from ``position`` up to ``end``, one window after the other.

    ``buffer`` is the current window. CRCs are not checked.
    """

    __slots__ = ("_end", "_file", "_window_start", "buffer", "position")

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._end = end
        self._window_start = position
        self.buffer = b""
        self.position = position

    @property
    def has_more(self) -> bool:
        """Whether another batch begins before the end."""
        return self.position < self._end

    def load(self) -> int:
        """Return where in ``buffer`` the next batch begins; at least its header is there.

        Raises:
            OSError: the file cannot be read.
        """
        start = self.position - self._window_start
        if len(self.buffer) - start < HEADER_BYTES:
            self._read(_BATCH_WINDOW_BYTES)
            start = 0
        return start

    def take(self) -> StoredBatch:
        """Return the next batch, and go on after it.

        Raises:
            CorruptBatch, UnsupportedMagic, OSError: as `headers`.
        """
        start, position, end = self.load(), self.position, self._end
        header = read_header(self.buffer, start)
        if header.size > end - position:
            raise CorruptBatch(f"{self._file.path}: the batch at {position} extends past the end")
        if header.size > len(self.buffer) - start:
            self._read(max(header.size, _BATCH_WINDOW_BYTES))
            start = 0
            if len(self.buffer) < header.size:
                raise CorruptBatch(f"{self._file.path}: the batch at {position} is incomplete")
        self.position += header.size
        return StoredBatch(position, header, self.buffer, start)

    def _read(self, length: int) -> None:
        self.buffer = self._file.pread(min(length, self._end - self.position), self.position)
        self._window_start = self.position


def whole_batches(file: File, start: int, end: int) -> Iterator[StoredBatch]:
    """Yield the batches in ``[start, end)`` with their bytes. CRCs are not checked.

    Raises:
        CorruptBatch, UnsupportedMagic, OSError: as `headers`.
    """
    window = BatchWindow(file, start, end)
    while window.has_more:
        yield window.take()
