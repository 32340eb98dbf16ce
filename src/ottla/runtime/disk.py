"""The machine's file system behind the `Disk` port (Linux).

Every call blocks, and every failure is the kernel's ``OSError``. The interpreter repeats
interrupted calls; this module repeats short writes.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from ottla.protocol.types import Buffer, Millis
from ottla.runtime.ports import DiskLock, File, OpenMode

# The kernel takes at most this many buffers in one call (IOV_MAX on Linux).
_BUFFERS_MAX = 1024
# Above this, the file size is checked first: a read allocates the length that was asked for.
_TRUSTED_READ_BYTES = 1 << 20
# The page cache allocates blocks as large as a write. A virtual machine returns large unused blocks
# to its host, and touching them again costs ten times the copy; small blocks mostly stay.
_WRITE_BYTES = 1 << 18
_FALLOCATE_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_FLAGS = {
    OpenMode.READ: os.O_RDONLY,
    OpenMode.READ_WRITE: os.O_RDWR,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT,
    OpenMode.CREATE_NEW: os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


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
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        return self._read_on(data, length, position)

    def _read_on(self, first: bytes, length: int, position: int) -> bytes:
        parts, got = [first], len(first)
        while got < length and (more := os.pread(self._fd, length - got, position + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``."""
        length = _length(data)
        written = 0 if length > _WRITE_BYTES else os.pwrite(self._fd, data, position)
        if written != length:
            self._write_on(memoryview(data).cast("B")[written:], position + written)

    def _write_on(self, rest: memoryview, position: int) -> None:
        while rest:
            written = os.pwrite(self._fd, rest[:_WRITE_BYTES], position)
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
        written = os.pwritev(self._fd, buffers, position)
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
            os.posix_fallocate(self._fd, 0, length)
        except OSError as error:
            if error.errno not in _FALLOCATE_UNSUPPORTED:
                raise
            os.ftruncate(self._fd, length)

    def truncate(self, length: int) -> None:
        """Cut or extend to ``length``."""
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """Flush contents and length; access and modification times may lag."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the descriptor once."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """`DiskLock` held by an open descriptor, so the kernel frees it with the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Unlock by closing. The file stays, as Kafka's does."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealDisk:
    """`Disk` over the kernel."""

    def open(self, path: str, mode: OpenMode) -> File:
        """Open a file; never inherited by child processes."""
        fd = os.open(path, _FLAGS[mode] | os.O_CLOEXEC, 0o644)
        # The kernel opens directories for reading, and its error at the first read lacks the path.
        if mode is OpenMode.READ and stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return RealFile(fd, path)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        file = RealFile(fd, path)  # closes it
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return file.pread(found.st_size, 0)

    def exists(self, path: str) -> bool:
        """Say whether ``path`` exists. Errors other than absence are raised."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        """Return a file's length."""
        return os.stat(path).st_size

    def modified(self, path: str) -> Millis:
        """Return the time of the last write."""
        return Millis(os.stat(path).st_mtime_ns // 1_000_000)

    def list(self, path: str) -> list[str]:
        """Return the names, sorted."""
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        """Say whether it is a directory."""
        return os.path.isdir(path)

    def make_dirs(self, path: str) -> None:
        """Create missing directories from the top down, syncing each parent."""
        if not os.path.isabs(path):
            raise ValueError(f"{path!r} is not an absolute path")
        missing = []
        while not self.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            try:
                os.mkdir(directory)
            except FileExistsError:
                continue  # created concurrently
            self.sync_dir(os.path.dirname(directory))
        if not missing and not self.is_dir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def make_dir(self, path: str) -> None:
        """Create one directory; nothing is synced."""
        with suppress(FileExistsError):
            os.mkdir(path)

    def replace(self, source: str, target: str) -> None:
        """Move a file; nothing is synced."""
        os.rename(source, target)

    def rename(self, source: str, target: str) -> None:
        """Move durably: the target's directory is synced first, so that the file is never lost."""
        os.rename(source, target)
        parents = dict.fromkeys((os.path.dirname(target), os.path.dirname(source)))
        for parent in parents:
            self.sync_dir(parent)

    def remove(self, path: str) -> None:
        """Unlink a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; stops at the first failure."""
        import shutil  # imports three compression modules, and is rarely called

        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        """Flush a directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        """Lock ``path`` by both kinds of locks that Linux has; they are independent.

        ``flock`` excludes a second lock of this broker, even in this process; a JVM broker takes
        the POSIX lock on the same file.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, "held by another process", path) from error
            raise
        return RealLock(fd)

    def free_bytes(self, path: str) -> int:
        """Return the free space for unprivileged users."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize


def _length(data: Buffer) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)
