"""CRC32C of a part of a buffer, without copying large writable buffers.

The native library accepts ``bytes`` but no ``memoryview``. It accepts a `ctypes` array over a
writable buffer, which costs only the array object; such arrays have a fixed length, so a range is
covered by windows of decreasing size and only its tail is copied. Read-only buffers (``bytes`` read
from disk) are copied in pieces that fit the processor cache.
"""

import ctypes
from typing import Final

import google_crc32c

from ottla.protocol.types import Buffer

# Below the smallest window, copying is cheaper than creating the array object.
_WINDOWS: Final = tuple(
    (length, ctypes.c_char * length) for length in (1 << shift for shift in range(20, 13, -1))
)
_SMALL_BYTES: Final = _WINDOWS[-1][0]
_PIECE_BYTES: Final = 1 << 17


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    """Return the CRC32C of ``buffer[start:end]``; the range must lie inside the buffer."""
    view = memoryview(buffer)
    assert 0 <= start <= end <= len(view)
    if end - start < _SMALL_BYTES:
        crc: int = google_crc32c.value(view[start:end].tobytes())
        return crc
    return _of_readonly(view, start, end) if view.readonly else _of_writable(view, start, end)


def extend_crc32c(crc: int, buffer: Buffer, length: int) -> int:
    """Return the CRC32C of what ``crc`` is of, followed by the start of a writable buffer."""
    return _of_writable(memoryview(buffer), 0, length, crc)


def _of_writable(view: memoryview, start: int, end: int, crc: int = 0) -> int:
    for length, window in _WINDOWS:
        while end - start >= length:
            crc = google_crc32c.extend(crc, window.from_buffer(view, start))
            start += length
    crc = google_crc32c.extend(crc, view[start:end].tobytes())
    return crc


def _of_readonly(view: memoryview, start: int, end: int) -> int:
    crc: int = 0
    for position in range(start, end, _PIECE_BYTES):
        piece = view[position : min(position + _PIECE_BYTES, end)]
        crc = google_crc32c.extend(crc, piece.tobytes())
    return crc
