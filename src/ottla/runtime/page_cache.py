"""Read files once without evicting other files from the page cache, where its state is known."""

import io
from contextlib import suppress

from ottla.runtime import system_calls
from ottla.runtime.ports import Disk, File, OpenMode


class ColdFile:
    """A file that is read once, from its start to its end. Call `close` when done.

    Pages that were not cached before a read are not cached after it. If the kernel cannot tell (or
    the file is simulated), the cache is left alone.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.file: File = disk.open(path, OpenMode.READ)
        self._fd = -1
        with suppress(io.UnsupportedOperation, OSError):
            descriptor = self.file.fileno()
            # Otherwise the kernel reads ahead, and the next page looks as if it had been cached.
            if system_calls.read_without_readahead(descriptor):
                self._fd = descriptor

    def is_cached(self, position: int) -> bool:
        """Say whether the page at ``position`` is cached; True if the kernel cannot tell."""
        if self._fd < 0:
            return True
        try:
            return system_calls.is_page_cached(self._fd, position)
        except OSError:
            return True

    def forget(self, length: int, position: int) -> None:
        """Drop the clean pages of a range from the page cache."""
        if self._fd >= 0:
            with suppress(OSError):
                system_calls.drop_from_cache(self._fd, position, length)

    def close(self) -> None:
        """Close the file."""
        self.file.close()
