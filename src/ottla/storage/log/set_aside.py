"""Keeps damaged bytes beside their log, for an operator to inspect, instead of destroying them.

    00000000000000001500.log.damaged-1      bytes cut from 00000000000000001500.log, or all of it

Such a file is never read at start: its name is not a log's, neither here nor in Kafka. Only the
operator or the deletion of the partition removes it. A log keeps at most `FILES_MAX` of them, and
copies at most `COPY_BYTES_MAX` of a file that stays in use.
"""

import re
from typing import Final

from ottla.runtime.ports import Disk, OpenMode

SUFFIX: Final = ".damaged-"
FILES_MAX: Final = 64
COPY_BYTES_MAX: Final = 256 << 20
_PIECE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r".+\.damaged-[0-9]{1,4}")


def is_set_aside(name: str) -> bool:
    """Whether a file holds damaged bytes that were set aside."""
    return _NAME.fullmatch(name) is not None


def set_file_aside(disk: Disk, path: str) -> str | None:
    """Rename a whole file durably; return its new path, None if there are too many already.

    Raises:
        OSError: the file has its old name or the new one.
    """
    target = _free_name(disk, path)
    if target is not None:
        disk.rename(path, target)
    return target


def set_bytes_aside(disk: Disk, path: str, position: int) -> str | None:
    """Copy a file's bytes from ``position`` on, durably; return the copy's path. The file stays.

    Returns None if there are too many copies already, or nothing to copy.

    Raises:
        OSError: there may be no copy.
    """
    length = min(disk.size(path) - position, COPY_BYTES_MAX)
    target = _free_name(disk, path) if length > 0 else None
    if target is None:
        return None
    source, copy = disk.open(path, OpenMode.READ), disk.open(target, OpenMode.CREATE)
    try:
        copy.truncate(0)
        for at in range(0, length, _PIECE_BYTES):
            copy.pwrite(source.pread(min(_PIECE_BYTES, length - at), position + at), at)
        copy.sync()
    finally:
        source.close()
        copy.close()
    disk.sync_dir(path.rpartition("/")[0])
    return target


def _free_name(disk: Disk, path: str) -> str | None:
    directory = path.rpartition("/")[0]
    taken = {name for name in disk.list(directory) if is_set_aside(name)}
    if len(taken) >= FILES_MAX:
        return None
    names = (f"{path}{SUFFIX}{number}" for number in range(1, FILES_MAX + 1))
    return next((each for each in names if each.rpartition("/")[2] not in taken), None)
