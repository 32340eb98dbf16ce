"""The machine's file system behind the `Disk` port.

Every call blocks, and every failure is the kernel's ``OSError``. The interpreter repeats
interrupted calls; this module repeats short writes.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.protocol.types import Millis
from ottla.runtime import system_calls
from ottla.runtime.disk_file import RealFile
from ottla.runtime.ports import DiskLock, File, OpenMode

if TYPE_CHECKING:
    from ottla.runtime.movable_files import MovableFiles

_MOVABLE: "MovableFiles | None" = None
if not system_calls.IS_POSIX:
    from ottla.runtime import movable_files

    _MOVABLE = movable_files.MovableFiles()
_FLAGS = {
    OpenMode.READ: os.O_RDONLY,
    OpenMode.READ_WRITE: os.O_RDWR,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT,
    OpenMode.CREATE_NEW: os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


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
    """`Disk` over the kernel. Where open files cannot be renamed or deleted, that is emulated."""

    def open(self, path: str, mode: OpenMode) -> File:
        """Open a file; never inherited by child processes."""
        if _MOVABLE is not None:
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            return _MOVABLE.open(path, _FLAGS[mode])
        fd = system_calls.open_file(path, _FLAGS[mode])
        # The kernel opens directories for reading, and its error at the first read lacks the path.
        if mode is OpenMode.READ and stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return RealFile(fd, path)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        fd = system_calls.open_file(path, os.O_RDONLY)
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
        if _MOVABLE is not None:
            _MOVABLE.replace(source, target)
        else:
            os.replace(source, target)

    def rename(self, source: str, target: str) -> None:
        """Move durably: the target's directory is synced first, so that the file is never lost."""
        self.replace(source, target)
        parents = dict.fromkeys((os.path.dirname(target), os.path.dirname(source)))
        for parent in parents:
            self.sync_dir(parent)

    def remove(self, path: str) -> None:
        """Unlink a file."""
        if _MOVABLE is not None:
            _MOVABLE.remove(path)
        else:
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; stops at the first failure."""
        import shutil  # imports three compression modules, and is rarely called

        if _MOVABLE is not None:
            _MOVABLE.close_below(path)
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        """Flush a directory."""
        system_calls.sync_directory(path)

    def lock(self, path: str) -> DiskLock:
        """Lock ``path`` by both kinds of locks that Linux has; they are independent.

        ``flock`` excludes a second lock of this broker, even in this process; a JVM broker takes
        the POSIX lock on the same file.
        """
        fd = system_calls.open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            system_calls.lock_exclusively(fd)
            system_calls.lock_against_jvm(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, "held by another process", path) from error
            raise
        return RealLock(fd)

    def free_bytes(self, path: str) -> int:
        """Return the free space for unprivileged users."""
        return system_calls.file_system_space(path).free

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system."""
        return system_calls.file_system_space(path).total
