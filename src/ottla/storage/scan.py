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


def whole_batches(file: File, start: int, end: int) -> Iterator[StoredBatch]:
    """Yield the batches in ``[start, end)`` with their bytes. CRCs are not checked.

    Raises:
        CorruptBatch, UnsupportedMagic, OSError: as `headers`.
    """
    window, window_start = b"", start
    position = start
    while position < end:
        offset = position - window_start
        if len(window) - offset < HEADER_BYTES:
            window = file.pread(min(_BATCH_WINDOW_BYTES, end - position), position)
            window_start, offset = position, 0
        header = read_header(window, offset)
        if header.size > end - position:
            raise CorruptBatch(f"{file.path}: the batch at {position} extends past the end")
        if header.size > len(window) - offset:
            wanted = max(header.size, min(_BATCH_WINDOW_BYTES, end - position))
            window = file.pread(wanted, position)
            window_start, offset = position, 0
            if len(window) < header.size:
                raise CorruptBatch(f"{file.path}: the batch at {position} is incomplete")
        yield StoredBatch(position, header, window, offset)
        position += header.size
