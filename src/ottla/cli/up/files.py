"""The files of ``ottla up`` about a cluster as a whole.

    DATA/up.json         the options of the last start
    DATA/up.lock         locked by the process that runs the cluster
    DATA/running.json    that process, and the addresses once all nodes are ready
    DATA/up.log          its output, with --detach

They contain settings, which may be secrets: mode 0600. So are all other files of a cluster, since
settings, SCRAM users and tokens are in its metadata log: `private_files`.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from ottla.cli.up.options import UpOptions
from ottla.cli.up.plan import BadPlan
from ottla.runtime import system_calls
from ottla.security.private_files import PRIVATE, write_file

OPTIONS: Final = "up.json"
LOCK: Final = "up.lock"
RUNNING: Final = "running.json"
OUTPUT: Final = "up.log"
_UMASK: Final = 0o077


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that runs. ``nodes`` are the processes' node ids and log files."""

    pid: int
    bootstrap: str
    is_ready: bool = False
    metrics: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    consoles: tuple[str, ...] = ()
    logs: dict[str, str] = {}


def read_options(root: Path) -> UpOptions | None:
    """Return the options of the last start; None for a new directory.

    Raises:
        BadPlan: the file is damaged.
    """
    path = root / OPTIONS
    try:
        return msgspec.json.decode(path.read_bytes(), type=UpOptions)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BadPlan(f"{path}: cannot be read ({error}); remove it to start anew") from error


def write_options(root: Path, options: UpOptions) -> None:
    """Keep the options for the next start."""
    write_file(root / OPTIONS, msgspec.json.encode(options), PRIVATE)


@contextmanager
def private_files() -> Iterator[None]:
    """Create files and directories, also those of child processes, for this user alone."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def lock_directory(root: Path) -> Iterator[None]:
    """Hold the lock of a data directory.

    Raises:
        BadPlan: another process runs this cluster.
    """
    root.mkdir(parents=True, exist_ok=True)
    descriptor = system_calls.open_file(root / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        if not _try_lock(descriptor):
            raise BadPlan(
                f"{root}: its cluster runs already; see `ottla up status` and `ottla up stop`"
            )
        yield
        (root / RUNNING).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def write_running(root: Path, running: Running) -> None:
    """Say which process runs the cluster."""
    write_file(root / RUNNING, msgspec.json.encode(running), PRIVATE)


def read_running(root: Path) -> Running | None:
    """Return the process that runs the cluster; None if none does."""
    if not is_locked(root):
        return None
    try:
        return msgspec.json.decode((root / RUNNING).read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError):
        return None  # it has just begun


def check_directory(root: Path) -> None:
    """Check that an existing data directory can be read. Raises `OSError`."""
    with suppress(FileNotFoundError):
        os.scandir(root).close()
        if not os.access(root, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(root))


def is_locked(root: Path) -> bool:
    """Return whether a process runs the cluster; a file of a killed process is no proof."""
    try:
        descriptor = system_calls.open_file(root / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        system_calls.lock_exclusively(descriptor)
    except BlockingIOError:
        return False
    return True
