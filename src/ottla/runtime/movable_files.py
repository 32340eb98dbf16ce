"""Files that can be renamed and deleted while they are open, where Windows refuses that.

The descriptors of a file are closed for the moment of a rename, and opened again under its new
name. A file that is deleted while it is open gets another name, ending in ``.deleted``, and is
removed with its last descriptor; recovery removes what a crash leaves. All calls take one lock:
without positional reads and writes they do so anyway.
"""

import itertools
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from ottla.protocol.types import Buffer
from ottla.runtime import system_calls
from ottla.runtime.disk_file import RealFile

DELETED: Final = ".deleted"
"""What the files of a log are called that recovery removes."""


class MovableFile(RealFile):
    """`RealFile` whose descriptor may be replaced at any time under the lock of its owner."""

    __slots__ = ("__weakref__", "_flags", "_is_deleted", "_owner")

    def __init__(self, fd: int, path: str, flags: int, owner: "MovableFiles") -> None:
        super().__init__(fd, path)
        self._flags = flags & ~(os.O_CREAT | os.O_EXCL)
        self._owner = owner
        self._is_deleted = False

    def size(self) -> int:
        """Return the length by ``fstat``."""
        with self._owner.lock:
            return super().size()

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes."""
        with self._owner.lock:
            return super().pread(length, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``."""
        with self._owner.lock:
            super().pwrite(data, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers."""
        with self._owner.lock:
            super().pwritev(buffers, position)

    def preallocate(self, length: int) -> None:
        """Reserve blocks up to ``length``."""
        with self._owner.lock:
            super().preallocate(length)

    def truncate(self, length: int) -> None:
        """Cut or extend to ``length``."""
        with self._owner.lock:
            super().truncate(length)

    def sync(self) -> None:
        """Flush contents and length."""
        with self._owner.lock:
            super().sync()

    def close(self) -> None:
        """Close the descriptor once; the last one of a deleted file removes it."""
        with self._owner.lock:
            super().close()
            if self._is_deleted:
                self._is_deleted = False
                with suppress(OSError):  # another descriptor is open, and removes it
                    os.unlink(self.path)

    def release(self) -> None:
        """Close the descriptor until `restore`."""
        super().close()

    def restore(self, path: str, *, is_deleted: bool) -> None:
        """Open the file again, under its new name."""
        self._fd = system_calls.open_file(path, self._flags)
        self.path = path
        self._is_deleted = self._is_deleted or is_deleted


class MovableFiles:
    """The open files of a disk."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._files: weakref.WeakSet[MovableFile] = weakref.WeakSet()
        self._numbers = itertools.count()

    def open(self, path: str, flags: int) -> MovableFile:
        """Open a file."""
        with self.lock:
            file = MovableFile(system_calls.open_file(path, flags), path, flags, self)
            self._files.add(file)
            return file

    def replace(self, source: str, target: str) -> None:
        """Rename a file or directory; an open target is deleted."""
        with self.lock:
            if self._open_below(target):
                self.remove(target)
            with self._released(source, target):
                os.replace(source, target)

    def remove(self, path: str) -> None:
        """Delete a file; who has it open can go on reading it."""
        with self.lock:
            if not self._open_below(path):
                os.unlink(path)
                return
            aside = f"{path}.{next(self._numbers)}{DELETED}"
            with self._released(path, aside, is_deleted=True):
                os.replace(path, aside)

    def close_below(self, path: str) -> None:
        """Close the files of a directory that is about to be removed."""
        with self.lock:
            for file in self._open_below(path):
                file.release()

    @contextmanager
    def _released(self, source: str, target: str, *, is_deleted: bool = False) -> Iterator[None]:
        files = self._open_below(source)
        for file in files:
            file.release()
        moved = False
        try:
            yield
            moved = True
        finally:
            for file in files:
                new_path = target + file.path[len(source) :] if moved else file.path
                file.restore(new_path, is_deleted=is_deleted and moved)

    def _open_below(self, path: str) -> list[MovableFile]:
        return [
            file
            for file in self._files
            if file.fileno() >= 0 and (file.path == path or file.path.startswith(f"{path}/"))
        ]
