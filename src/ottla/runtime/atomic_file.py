"""Replacing a small file so that a reader, even after power loss, sees the old or the new one."""

from ottla.protocol.types import Buffer
from ottla.runtime.ports import Disk, OpenMode

# What the replacement is called until it is whole. Left behind by a crash it is garbage:
# whoever reads the directory ignores it, and the next replacement overwrites it.
TEMPORARY_SUFFIX = ".tmp"


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Make ``data`` the whole contents of ``path``, durably; both or neither after a crash.

    The order is the point: contents are synced under the temporary name before the
    rename, else a crash may leave the final name on an empty file; ``rename`` syncs the
    directory, else it may leave the old file after we said it was replaced.

    Raises:
        OSError: nothing was replaced, or the replacement is not known to be durable.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, OpenMode.CREATE)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)


def read_file(disk: Disk, path: str) -> bytes | None:
    """Return the contents of ``path``, or None where there is no such file."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None
