"""Replace a small file atomically: after a crash it has either the old or the new contents."""

from ottla.protocol.types import Buffer
from ottla.runtime.ports import Disk, OpenMode

# The suffix of the new file until it is complete. A file left behind by a crash is ignored by
# readers of the directory, and the next replacement overwrites it.
TEMPORARY_SUFFIX = ".tmp"


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Replace the contents of ``path`` by ``data``, durably and atomically.

    The order matters: the contents are synced under the temporary name before the rename, else a
    crash may leave the final name on an empty file; ``rename`` syncs the directory, else a crash
    may bring the old file back after this has returned.

    Raises:
        OSError: nothing was replaced, or the replacement may not be durable.
    """
    disk.rename(write_temporary(disk, path, data, is_synced=True), path)


def replace_unsynced(disk: Disk, path: str, data: Buffer) -> None:
    """Replace the contents of ``path``; a crash of the process leaves the old or the new ones.

    A power failure may leave anything, unless the file and then its directory were synced: only
    for contents that show whether they are complete, and that can be found again elsewhere.

    Raises:
        OSError: nothing was replaced.
    """
    disk.replace(write_temporary(disk, path, data, is_synced=False), path)


def write_temporary(disk: Disk, path: str, data: Buffer, *, is_synced: bool) -> str:
    """Write the contents under the temporary name, which is returned. Raises OSError."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, OpenMode.CREATE)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        if is_synced:
            file.sync()
    finally:
        file.close()
    return temporary


def read_file(disk: Disk, path: str) -> bytes | None:
    """Return the contents of ``path``, or None if there is no such file."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None
