"""Reading files once without pushing other files out of the page cache (Linux)."""

import io
import os
from contextlib import suppress

from ottla.runtime.ports import Disk, File, OpenMode


class ColdFile:
    """A file that is read once, from its start to its end; `close` it.

    What was not cached before a read is not cached after it. Where the kernel cannot tell (or
    there is none: a simulated file), the cache is left alone.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.file: File = disk.open(path, OpenMode.READ)
        self._fd = -1
        with suppress(io.UnsupportedOperation, OSError):
            self._fd = self.file.fileno()
            # Without it the kernel reads ahead, and the next read looks as if it had been cached.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def is_cached(self, position: int) -> bool:
        """Say whether the page at ``position`` is cached; True where the kernel cannot tell."""
        if self._fd < 0:
            return True
        try:
            return os.preadv(self._fd, [bytearray(1)], position, os.RWF_NOWAIT) >= 0
        except BlockingIOError:
            return False
        except OSError:
            return True

    def forget(self, length: int, position: int) -> None:
        """Drop a range from the page cache, as far as it is clean."""
        if self._fd >= 0:
            with suppress(OSError):
                os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file."""
        self.file.close()
