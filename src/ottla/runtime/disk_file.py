"""A file of the machine behind the `File` port, by its descriptor."""

import errno
import os
from collections.abc import Sequence

from ottla.protocol.types import Buffer
from ottla.runtime import system_calls

# The kernel takes at most this many buffers in one call (IOV_MAX on Linux).
_BUFFERS_MAX = 1024
# Above this, the file size is checked first: a read allocates the length that was asked for.
_TRUSTED_READ_BYTES = 1 << 20
# The page cache allocates blocks as large as a write. A virtual machine returns large unused blocks
# to its host, and touching them again costs ten times the copy; small blocks mostly stay.
_WRITE_BYTES = 1 << 18
_FALLOCATE_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class RealFile:
    """`File` over a descriptor that it owns and closes with the last reference."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    def fileno(self) -> int:
        """Return the descriptor; -1 once closed."""
        return self._fd

    def size(self) -> int:
        """Return the length by ``fstat``."""
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes; memory is bounded by the size of the file."""
        if length > _TRUSTED_READ_BYTES:
            length = max(0, min(length, self.size() - position))
        data = system_calls.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        return self._read_on(data, length, position)

    def _read_on(self, first: bytes, length: int, position: int) -> bytes:
        parts, got = [first], len(first)
        while got < length and (more := system_calls.pread(self._fd, length - got, position + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``."""
        length = _length(data)
        written = 0 if length > _WRITE_BYTES else system_calls.pwrite(self._fd, data, position)
        if written != length:
            self._write_on(memoryview(data).cast("B")[written:], position + written)

    def _write_on(self, rest: memoryview, position: int) -> None:
        while rest:
            written = system_calls.pwrite(self._fd, rest[:_WRITE_BYTES], position)
            if written == 0:
                raise OSError(
                    errno.EIO, "the kernel wrote nothing and reported no error", self.path
                )
            rest = rest[written:]
            position += written

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, in as few calls as possible."""
        for start in range(0, len(buffers), _BUFFERS_MAX):
            position = self._writev_some(buffers[start : start + _BUFFERS_MAX], position)

    def _writev_some(self, buffers: Sequence[Buffer], position: int) -> int:
        written = system_calls.pwritev(self._fd, buffers, position)
        for buffer in buffers:
            length = _length(buffer)
            if written < length:
                self._write_on(memoryview(buffer).cast("B")[written:], position + written)
                written = length
            written -= length
            position += length
        return position

    def preallocate(self, length: int) -> None:
        """Reserve blocks up to ``length``; if the file system cannot, only the size grows."""
        if length <= self.size():
            return
        try:
            system_calls.allocate(self._fd, 0, length)
        except OSError as error:
            if error.errno not in _FALLOCATE_UNSUPPORTED:
                raise
            os.ftruncate(self._fd, length)

    def truncate(self, length: int) -> None:
        """Cut or extend to ``length``."""
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """Flush contents and length; access and modification times may lag."""
        system_calls.sync_data(self._fd)

    def close(self) -> None:
        """Close the descriptor once."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _length(data: Buffer) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)
