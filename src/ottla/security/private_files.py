"""Files that may hold a secret: only their owner may read them, from their creation on."""

import os
from pathlib import Path
from typing import Final

from ottla.runtime import system_calls

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


def open_private(path: Path, *, is_appended: bool = False) -> int:
    """Open a file for writing that only its owner may read; return its descriptor.

    It is created with mode 0600 and begins empty. With ``is_appended`` an existing one is
    continued, and made private if an earlier version has created it otherwise. Raises `OSError`.
    """
    if not is_appended:
        path.unlink(missing_ok=True)
        return system_calls.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    descriptor = system_calls.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    try:
        system_calls.make_private(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically; it never exists with a wider mode. Raises `OSError`."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    descriptor = system_calls.open_file(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:  # it lacks the path
        raise OSError(error.errno, error.strerror, str(path)) from error
    beside.replace(path)
