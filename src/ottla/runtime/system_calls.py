"""Calls that only some operating systems have, each with what is done without it.

No other module of the product makes such a choice (`tests/arch/test_portability.py`). A call is
looked for by its name, once, at import; the name of the operating system decides only where a call
exists everywhere but behaves differently (Windows). Calls that only save time or memory do nothing
where they are missing. ADR 0107 has the table.
"""

import asyncio
import errno
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.protocol.types import Buffer

IS_POSIX: Final = os.name == "posix"
"""Sockets are file descriptors, child processes inherit descriptors, open files can be deleted."""
MEMORY_BYTES_ASSUMED: Final = 4 << 30
"""The memory of a machine that does not say how much it has."""
END_POLL_S: Final = 0.02


def _module(name: str) -> Any:  # noqa: ANN401 - a module of some operating systems
    """Return a module of the standard library; None where it does not exist."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl: Final = _module("fcntl")
_resource: Final = _module("resource")
_msvcrt: Final = _module("msvcrt")


# -- files -----------------------------------------------------------------------------------

_OPEN_FLAGS: Final[int] = getattr(os, "O_BINARY", 0)  # Windows changes line ends without it
_seeking: Final = threading.Lock()


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Open a file; return its descriptor, which child processes do not inherit."""
    return os.open(path, flags | _OPEN_FLAGS, mode)


def _pread_by_seek(fd: int, length: int, position: int) -> bytes:
    with _seeking:  # all positions of all files: nothing else reads or writes by the position
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, length)


def _preadv_by_seek(fd: int, buffers: Sequence[Any], position: int) -> int:
    done = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        data = _pread_by_seek(fd, len(view), position + done)
        view[: len(data)] = data
        done += len(data)
        if len(data) < len(view):
            break
    return done


def _pwrite_by_seek(fd: int, data: Buffer, position: int) -> int:
    with _seeking:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def _pwritev_by_seek(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    return _pwrite_by_seek(fd, b"".join(buffers), position)


pread: Final[Callable[[int, int, int], bytes]] = getattr(os, "pread", _pread_by_seek)
preadv: Final[Callable[[int, Sequence[Any], int], int]] = getattr(os, "preadv", _preadv_by_seek)
pwrite: Final[Callable[[int, Buffer, int], int]] = getattr(os, "pwrite", _pwrite_by_seek)
pwritev: Final[Callable[[int, Sequence[Buffer], int], int]] = getattr(
    os, "pwritev", _pwritev_by_seek
)
sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""Flush contents and length of a file. On macOS this does not empty the cache of the drive."""


def _refuse_allocation(fd: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


allocate: Final[Callable[[int, int, int], None]] = getattr(
    os, "posix_fallocate", _refuse_allocation
)
"""Reserve blocks of a file. Raises OSError with ENOSYS where that is not possible."""


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Flush the names in a directory; Windows cannot open one, and journals them itself."""
    flag = getattr(os, "O_DIRECTORY", None)
    if flag is None:
        os.stat(path)  # raises what the sync of a missing directory would
        return
    fd = os.open(path, os.O_RDONLY | flag)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def set_direct(fd: int, *, is_on: bool) -> bool:
    """Switch ``O_DIRECT`` of an open file; return whether it is on: few systems have it."""
    direct = getattr(os, "O_DIRECT", None)
    if direct is None or _fcntl is None:
        return False
    flags = _fcntl.fcntl(fd, _fcntl.F_GETFL)
    target = flags | direct if is_on else flags & ~direct
    if target == flags:
        return is_on
    try:
        _fcntl.fcntl(fd, _fcntl.F_SETFL, target)
    except OSError:
        return False
    return is_on


def make_private(fd: int) -> None:
    """Let only the owner read an open file. On Windows the directory decides who may."""
    change = getattr(os, "fchmod", None)
    if change is not None:
        change(fd, 0o600)


def close_to_others() -> None:
    """Have this process create no file that users outside of its group may read, nor write.

    Records, SCRAM users and settings are in files of many kinds.
    """
    others = 0o027
    os.umask(os.umask(others) | others)


class Space(NamedTuple):
    """The bytes of a file system: those free for users without privileges, and all."""

    free: int
    total: int


def file_system_space(path: str) -> Space:
    """Return the size of the file system that holds ``path``."""
    measure = getattr(os, "statvfs", None)
    if measure is None:
        import shutil  # imports three compression modules

        usage = shutil.disk_usage(path)
        return Space(usage.free, usage.total)
    found = measure(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


# -- the page cache --------------------------------------------------------------------------

_advise: Final = getattr(os, "posix_fadvise", None)
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)


def read_without_readahead(fd: int) -> bool:
    """Switch the read-ahead of a file off; return whether `is_page_cached` can tell."""
    if _advise is None or _NO_WAIT is None:
        return False
    _advise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # type: ignore[attr-defined,unused-ignore]
    return True


def is_page_cached(fd: int, position: int) -> bool:
    """Say whether a page is cached. Raises OSError if the file system cannot tell."""
    try:
        return bool(os.preadv(fd, [bytearray(1)], position, _NO_WAIT or 0) >= 0)
    except BlockingIOError:
        return False


def drop_from_cache(fd: int, position: int, length: int) -> None:
    """Drop the clean pages of a range from the page cache."""
    if _advise is not None:
        _advise(fd, position, length, os.POSIX_FADV_DONTNEED)


# -- locks -----------------------------------------------------------------------------------

_LOCK_AT: Final = 1 << 30
"""Windows denies others to read what is locked, so a byte is locked that no file has."""


def lock_exclusively(fd: int) -> None:
    """Lock a file against other descriptors, also of this process; closing it unlocks it.

    Raises:
        BlockingIOError: it is locked.
    """
    if _fcntl is not None:
        _fcntl.flock(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        return
    with _seeking:
        os.lseek(fd, _LOCK_AT, os.SEEK_SET)
        try:
            _msvcrt.locking(fd, _msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EAGAIN, "locked") from error


def lock_against_jvm(fd: int) -> None:
    """Take the lock that a JVM takes, where that is another one. Raises OSError if it is held."""
    if _fcntl is not None:
        _fcntl.lockf(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)


# -- memory and limits -----------------------------------------------------------------------


@cache
def c_function(name: str) -> Any:  # noqa: ANN401 - its types are set by the caller
    """Return a function of the C library; None if it has none of this name."""
    import ctypes  # not needed to start a node

    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None


def physical_memory_bytes() -> int:
    """Return the memory of this machine, `MEMORY_BYTES_ASSUMED` if it is unknown."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return MEMORY_BYTES_ASSUMED


def system_constant(name: str, default: int) -> int:
    """Return a value of ``sysconf``."""
    try:
        return int(os.sysconf(name))
    except (AttributeError, OSError, ValueError):
        return default


def open_files_limit() -> tuple[int, int] | None:
    """Return the limits of open files, soft and hard; None where there are none."""
    if _resource is None:
        return None
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    return int(soft), int(hard)


@contextmanager
def readable_copy(data: bytes) -> Iterator[str]:
    """Yield the path of a file with this content that only this user can read.

    It is in memory where that is possible, and is removed in the end.
    """
    create = getattr(os, "memfd_create", None)
    if create is None or not os.path.exists("/proc/self/fd"):
        with _temporary_copy(data) as path:
            yield path
        return
    descriptor = create("secret")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _temporary_copy(data: bytes) -> Iterator[str]:
    import tempfile  # imports a dozen modules

    descriptor, path = tempfile.mkstemp()  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)


# -- sockets ---------------------------------------------------------------------------------

MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
send_file: Final[Callable[[int, int, int, int], int] | None] = (
    getattr(os, "sendfile", None) if IS_POSIX else None
)
CAN_SHARE_PORTS: Final = IS_POSIX and hasattr(socket, "SO_REUSEPORT")
_IDLE_OPTION: Final[int | None] = getattr(
    socket,
    "TCP_KEEPIDLE",
    getattr(socket, "TCP_KEEPALIVE", None),  # its name on macOS
)


def write_buffers(fd: int, buffers: Sequence[Buffer]) -> int:
    """Write buffers to the descriptor of a socket in one call."""
    return os.writev(fd, buffers)


def set_keepalive(
    target: socket.socket, *, idle_s: int, interval_s: int, count: int, user_timeout_ms: int
) -> None:
    """Detect a peer that has disappeared, as far as the operating system can."""
    target.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (_IDLE_OPTION, idle_s),
        (getattr(socket, "TCP_KEEPINTVL", None), interval_s),
        (getattr(socket, "TCP_KEEPCNT", None), count),
        (getattr(socket, "TCP_USER_TIMEOUT", None), user_timeout_ms),
    ):
        if option is not None:
            target.setsockopt(socket.IPPROTO_TCP, option, value)


def allow_rebinding(target: socket.socket) -> None:
    """Let a socket bind a port whose last connections are still being closed.

    On Windows this needs no option, and ``SO_REUSEADDR`` would let it take the port of another.
    """
    exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    option = socket.SO_REUSEADDR if exclusive is None else exclusive
    target.setsockopt(socket.SOL_SOCKET, option, 1)


def share_port(target: socket.socket) -> None:
    """Let a socket bind the same port as others that share it. Only with `CAN_SHARE_PORTS`."""
    target.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def duplicate_socket(original: socket.socket) -> socket.socket:
    """Return a second socket for the connection. ``original`` may be the one of a transport."""
    if not IS_POSIX:
        return original.dup()
    return socket.socket(fileno=os.dup(original.fileno()))  # uvloop's sockets have no `dup`


def send_datagram(path: str, data: bytes) -> None:
    """Send to a Unix socket without waiting. Raises OSError, also where there are none."""
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(data, path)


# -- signals and standard input --------------------------------------------------------------

RELOAD_SIGNAL: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
KILL_SIGNAL: Final[signal.Signals] = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process at once. On Windows every signal does."""


def on_signal(number: int, callback: Callable[..., object], *arguments: object) -> None:
    """Call a function in the running event loop when a signal arrives."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, callback, *arguments)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback, *arguments))


async def on_end_of_input(callback: Callable[[], object]) -> None:
    """Call a function in the running event loop when standard input is closed."""
    loop = asyncio.get_running_loop()
    if IS_POSIX:
        await loop.connect_read_pipe(lambda: _EndOfInput(callback), sys.stdin)
        return

    def wait() -> None:
        while os.read(0, 1 << 16):
            pass
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(callback)

    threading.Thread(target=wait, name="end-of-input", daemon=True).start()


class _EndOfInput(asyncio.Protocol):
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback

    def connection_lost(self, error: Exception | None) -> None:
        self._callback()


# -- processes -------------------------------------------------------------------------------


def spawn_with_socket(command: Sequence[str], connection: socket.socket) -> int:
    """Start a process whose standard input is a socket and which ignores Ctrl-C.

    Return its id. Raises OSError, also where sockets cannot be inherited (Windows).
    """
    spawn = getattr(os, "posix_spawn", None)
    if spawn is None:
        raise OSError(errno.ENOSYS, "processes inherit no sockets on this operating system")
    found: int = spawn(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, connection.fileno(), 0)],
        setsigmask=[signal.SIGINT],
    )
    return found


def lower_priority(pid: int) -> None:
    """Run a process only on cores that are idle otherwise. Raises OSError if that is refused."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    elif hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, pid, 19)


def on_child_end(pid: int, callback: Callable[[], object]) -> None:
    """Call a function in the running event loop once a child process has ended; collect it."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        _poll_child(loop, pid, callback)
        return
    watched = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(watched)
        os.close(watched)
        _has_ended(pid)
        callback()

    loop.add_reader(watched, ended)


def _poll_child(loop: asyncio.AbstractEventLoop, pid: int, callback: Callable[[], object]) -> None:
    if _has_ended(pid):
        callback()
    else:
        loop.call_later(END_POLL_S, _poll_child, loop, pid, callback)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def end_with_parent(parent: int) -> None:
    """End this process together with its parent, even if that is killed.

    Without ``prctl`` it has to notice by itself, by the end of its input.
    """
    control = c_function("prctl")
    if control is not None:
        control(_PR_SET_PDEATHSIG, int(KILL_SIGNAL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


_PR_SET_PDEATHSIG: Final = 1


def exists(pid: int) -> bool:
    """Say whether a process of this user runs; True where that cannot be asked."""
    if not IS_POSIX:
        return True  # a signal of number 0 would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def pause(pid: int) -> None:
    """Stop a process until `resume`. Raises OSError where that is not possible."""
    _send_job_signal(pid, "SIGSTOP")


def resume(pid: int) -> None:
    """Let a stopped process go on. Raises OSError as `pause`."""
    _send_job_signal(pid, "SIGCONT")


def _send_job_signal(pid: int, name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        raise OSError(errno.ENOSYS, "this operating system cannot pause a process")
    os.kill(pid, number)
