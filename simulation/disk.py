"""A simulated file system: unsynced data, failures, false syncs and crashes, all from one seed.

`platter.py` decides what survives. This module has the `Disk` port over it, the planned faults, and
the power switch:

    on --crash_at(n) reached--> crashing --crash() or kill()--> off --restart()--> on

While *crashing* every call raises `SimCrash`, so that no ``finally`` or ``except OSError`` of the
crashing code has an effect. While *off*, and forever on files opened before, every call but
``close`` raises ``OSError``.
"""

import enum
import errno
import io
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ottla.protocol.types import Buffer, Millis
from ottla.runtime.ports import Clock, DiskLock, File, OpenMode
from simulation.platter import (
    DirNode,
    FileNode,
    Keep,
    NameChange,
    Node,
    Platter,
    Resize,
    Slot,
    Write,
)
from simulation.random import SimRandom

Operation = Literal[
    "open", "read", "stat", "list", "lock",
    "create", "write", "preallocate", "truncate", "sync",
    "mkdir", "rename", "remove", "sync_dir",
]  # fmt: skip
MUTATING = frozenset(
    {"create", "write", "preallocate", "truncate", "sync", "mkdir", "rename", "remove", "sync_dir"}
)

FOR_EVER = 1 << 62


class SimCrash(BaseException):
    """The machine crashed here. Not an ``Exception``, so that only the test catches it."""


class _Power(enum.Enum):
    ON = "on"
    CRASHING = "crashing"
    OFF = "off"


@dataclass(slots=True)
class _Fault:
    """Count matching operations: ``skip`` succeed, then ``times`` fail."""

    kind: Operation
    path_contains: str
    skip: int
    times: int
    error: int

    def applies(self, kind: Operation, path: str) -> bool:
        if kind != self.kind or self.path_contains not in path or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class SimDisk:
    """`Disk` in memory. The same seed, calls and faults give the same contents.

    ``operations`` counts the operations that change something, so that a sweep can run the work
    once to count them, then again with ``crash_at(k)`` for each. ``journal``, if given, is called
    for each of them with ``(kind, path, detail)``; ``on_crash`` is called when ``crash_at`` is
    reached, before `SimCrash` is raised.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        clock: Clock | None = None,
        journal: Callable[[str, str, str], None] | None = None,
        on_crash: Callable[[], None] = lambda: None,
    ) -> None:
        self.operations = 0
        self._random = SimRandom(seed, "disk")
        self._clock = clock
        self._journal = journal
        self._on_crash = on_crash
        self._platter = Platter()
        self._power = _Power.ON
        self._incarnation = 0
        self._crash_in = 0
        self._faults: list[_Fault] = []
        self._lies: list[tuple[str, str]] = []
        self._capacity: int | None = None
        self._locks: set[str] = set()

    # -- faults ----------------------------------------------------------------

    def crash_at(self, n: int) -> None:
        """Let the ``n``-th changing operation from now raise `SimCrash`; 0 disarms.

        It raises before the operation takes effect, except that a write may have put any part of
        its bytes into the page cache.
        """
        self._crash_in = n

    def crash(self, keep: Keep = Keep.SEEDED) -> None:
        """Lose power: unsynced data is kept, lost or torn. The disk is off afterwards."""
        self._tell("crash", "/", keep.value)
        self._platter.lose_power(keep, self._random)
        self._switch_off()

    def kill(self) -> None:
        """End the process but not the machine: the page cache survives, open files do not."""
        self._tell("kill", "/", "")
        self._switch_off()

    def _switch_off(self) -> None:
        self._power = _Power.OFF
        self._incarnation += 1
        self._crash_in = 0
        self._locks.clear()

    def restart(self) -> None:
        """Switch on again. Planned faults, false syncs and the capacity stay."""
        self._power = _Power.ON

    def fail(
        self,
        kind: Operation,
        after: int = 0,
        error: int = errno.EIO,
        path_contains: str = "",
        times: int = 1,
    ) -> None:
        """Let ``after`` matching operations succeed and the ``times`` after that raise ``error``.

        A write that fails may have written any part of its bytes. A sync that fails drops the
        unsynced changes, or any part of them, as Linux does: they still read back, and a second
        sync succeeds without making them durable.
        """
        self._faults.append(_Fault(kind, path_contains, after, times, error))

    def lie(self, kind: Literal["sync", "sync_dir"] = "sync", path_contains: str = "") -> None:
        """Let matching syncs return at once without making anything durable."""
        self._lies.append((kind, path_contains))

    def limit(self, capacity: int | None) -> None:
        """Hold at most ``capacity`` bytes of file contents: beyond is ENOSPC. None lifts it."""
        self._capacity = capacity

    def heal(self) -> None:
        """Remove every planned fault, false sync, limit and crash."""
        self._faults.clear()
        self._lies.clear()
        self._capacity = None
        self._crash_in = 0

    def rot(self, path: str, position: int | None = None) -> int:
        """Flip one bit of a file, on the platter and in the cache; return the byte's position."""
        node = self._file_at(path)
        if not node.cached:
            raise ValueError(f"{path} is empty: nothing to rot")
        where = self._random.below(len(node.cached)) if position is None else position
        bit = 1 << self._random.below(8)
        for contents in (node.cached, node.durable):
            if where < len(contents):
                contents[where] ^= bit
        self._tell("rot", path, f"{where}^{bit}")
        return where

    def damage(self, path: str, data: bytes | None) -> None:
        """Replace the contents of a file, on the platter and in the cache; None removes it."""
        node, slot = self._file_at(path), self._slot(path)
        if data is None:
            self._platter.change(NameChange(node, slot, None))
            self._platter.sync_dir(slot.directory)
        else:
            node.change(Resize(0))
            node.change(Write(0, data))
            node.sync()
        self._tell("damage", path, "removed" if data is None else str(len(data)))

    def inspect(self, path: str) -> dict[str, bytes]:
        """Return the contents of the files in a directory, by name, also of a node that is down."""
        found = sorted(self._dir_at(path).cached.items())
        return {name: bytes(node.cached) for name, node in found if isinstance(node, FileNode)}

    def durable(self, path: str) -> bytes | None:
        """Return what power loss with `Keep.NOTHING` would leave at ``path``; None if nothing."""
        node: Node = self._platter.root
        for name in path.split("/")[1:]:
            entry = node.durable.get(name) if isinstance(node, DirNode) else None
            if entry is None:
                return None
            node = entry
        return bytes(node.durable) if isinstance(node, FileNode) else None

    # -- every operation passes here -----------------------------------------

    def _enter(self, kind: Operation, path: str, detail: str = "") -> None:
        """Count, journal, and raise what is planned for this operation."""
        self._check_power(path)
        if kind in MUTATING:
            self.operations += 1
            self._tell(kind, path, detail)
            if self._crash_in:
                self._crash_in -= 1
                if not self._crash_in:
                    self._power = _Power.CRASHING
                    self._on_crash()
                    raise SimCrash(f"{kind} {path} (operation {self.operations})")
        for fault in self._faults:
            if fault.applies(kind, path):
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _check_power(self, path: str) -> None:
        if self._power is _Power.CRASHING:
            raise SimCrash(f"used after the crash: {path}")
        if self._power is _Power.OFF:
            raise OSError(errno.EIO, "the disk is off", path)

    def _tell(self, kind: str, path: str, detail: str) -> None:
        if self._journal is not None:
            self._journal(kind, path, detail)

    def _now(self) -> int:
        return self._clock.now() if self._clock is not None else 0

    # -- names -----------------------------------------------------------------

    def _slot(self, path: str) -> Slot:
        """Return where ``path`` is or would be; its directory must exist."""
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path: {path!r}")
        parent, _, name = path.rstrip("/").rpartition("/")
        return Slot(self._dir_at(parent), name)

    def _find(self, path: str) -> Node | None:
        try:
            return self._at(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _at(self, path: str) -> Node:
        node: Node = self._platter.root
        for name in filter(None, path.split("/")):
            if not isinstance(node, DirNode):
                raise _os_error(errno.ENOTDIR, path)
            if name not in node.cached:
                raise _os_error(errno.ENOENT, path)
            node = node.cached[name]
        return node

    def _file_at(self, path: str) -> FileNode:
        node = self._at(path)
        if not isinstance(node, FileNode):
            raise _os_error(errno.EISDIR, path)
        return node

    def _dir_at(self, path: str) -> DirNode:
        node = self._at(path)
        if not isinstance(node, DirNode):
            raise _os_error(errno.ENOTDIR, path)
        return node

    # -- the Disk port ---------------------------------------------------------

    def open(self, path: str, mode: OpenMode) -> File:
        """Open or create; creating is an operation of its own."""
        self._enter("open", path)
        slot = self._slot(path)
        node = slot.directory.cached.get(slot.name)
        if node is not None and mode is OpenMode.CREATE_NEW:
            raise _os_error(errno.EEXIST, path)
        if isinstance(node, DirNode):
            raise _os_error(errno.EISDIR, path)
        if node is None:
            if mode in (OpenMode.READ, OpenMode.READ_WRITE):
                raise _os_error(errno.ENOENT, path)
            node = self._create(path, slot)
        return SimFile(self, node, path, writable=mode is not OpenMode.READ)

    def _create(self, path: str, slot: Slot) -> FileNode:
        self._enter("create", path)
        node = FileNode()
        node.modified = self._now()
        self._platter.change(NameChange(node, None, slot))
        return node

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        self._enter("read", path)
        return bytes(self._file_at(path).cached)

    def exists(self, path: str) -> bool:
        """Say whether something is there."""
        self._enter("stat", path)
        return self._find(path) is not None

    def size(self, path: str) -> int:
        """Return a file's length."""
        self._enter("stat", path)
        return len(self._file_at(path).cached)

    def modified(self, path: str) -> Millis:
        """Return the time of the last write on the given clock; 0 without one."""
        self._enter("stat", path)
        return Millis(self._file_at(path).modified)

    def list(self, path: str) -> list[str]:
        """Return the names, sorted."""
        self._enter("list", path)
        return sorted(self._dir_at(path).cached)

    def is_dir(self, path: str) -> bool:
        """Say whether it is a directory."""
        self._enter("stat", path)
        return isinstance(self._find(path), DirNode)

    def make_dirs(self, path: str) -> None:
        """Create what is missing; each level is a ``mkdir`` and a ``sync_dir``."""
        self._check_power(path)
        made = ""
        for name in path.strip("/").split("/"):
            parent, made = made, f"{made}/{name}"
            node = self._find(made)
            if isinstance(node, FileNode):
                raise _os_error(errno.ENOTDIR, made)
            if node is None:
                self._enter("mkdir", made)
                self._platter.change(NameChange(DirNode(), None, self._slot(made)))
                self.sync_dir(parent or "/")

    def make_dir(self, path: str) -> None:
        """Create one directory, unsynced."""
        slot = self._slot(path)
        node = slot.directory.cached.get(slot.name)
        if isinstance(node, FileNode):
            raise _os_error(errno.ENOTDIR, path)
        if node is None:
            self._enter("mkdir", path)
            self._platter.change(NameChange(DirNode(), None, slot))

    def replace(self, source: str, target: str) -> None:
        """Rename without a sync."""
        self._enter("rename", source, target)
        self._move(source, target)

    def rename(self, source: str, target: str) -> None:
        """Rename, then sync the directories: two or three operations, with possible crashes
        between.
        """
        self._enter("rename", source, target)
        self._move(source, target)
        for parent in dict.fromkeys((os.path.dirname(target), os.path.dirname(source))):
            self.sync_dir(parent)

    def _move(self, source: str, target: str) -> None:
        leaves, takes = self._slot(source), self._slot(target)
        node = leaves.directory.cached.get(leaves.name)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        _check_replaceable(node, takes.directory.cached.get(takes.name), target)
        if leaves != takes:
            self._platter.change(NameChange(node, leaves, takes))

    def remove(self, path: str) -> None:
        """Unlink a file; open ones keep working."""
        self._enter("remove", path)
        self._platter.change(NameChange(self._file_at(path), self._slot(path), None))

    def remove_tree(self, path: str) -> None:
        """Remove everything below, then the directory: one operation each."""
        self._check_power(path)
        directory = self._dir_at(path)
        for name in sorted(directory.cached):
            if isinstance(directory.cached[name], DirNode):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._enter("remove", path)
        self._platter.change(NameChange(directory, self._slot(path), None))

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable; after a failure the seed decides which are."""
        self._enter("sync_dir", path)
        directory = self._dir_at(path)
        if not self._is_lying("sync_dir", path):
            self._platter.sync_dir(directory)

    def lock(self, path: str) -> DiskLock:
        """Claim a path until released, crashed or killed."""
        self._enter("lock", path)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path)
        slot = self._slot(path)
        if slot.name not in slot.directory.cached:
            self._create(path, slot)
        self._locks.add(path)
        return _SimLock(self._locks, path)

    def free_bytes(self, path: str) -> int:
        """Return what the limit leaves; without one, plenty."""
        self._enter("stat", path)
        return self._room()

    def total_bytes(self, path: str) -> int:
        """Return the limit; without one, plenty."""
        self._enter("stat", path)
        return FOR_EVER if self._capacity is None else self._capacity

    def _room(self) -> int:
        if self._capacity is None:
            return FOR_EVER
        return max(0, self._capacity - self._platter.used_bytes())

    def _is_lying(self, kind: str, path: str) -> bool:
        return any(kind == lie and part in path for lie, part in self._lies)


class SimFile:
    """`File` on a `SimDisk`; unusable once the disk has crashed, whatever happens after."""

    __slots__ = ("_disk", "_incarnation", "_is_open", "_node", "_writable", "path")

    def __init__(self, disk: SimDisk, node: FileNode, path: str, *, writable: bool) -> None:
        self._disk = disk
        self._node = node
        self._writable = writable
        self._incarnation = disk._incarnation
        self._is_open = True
        self.path = path

    def fileno(self) -> int:
        """Raise: there is no descriptor."""
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def _use(self, *, writing: bool = False) -> None:
        if not self._is_open or (writing and not self._writable):
            raise _os_error(errno.EBADF, self.path)
        self._disk._check_power(self.path)
        if self._incarnation != self._disk._incarnation:
            raise OSError(errno.EIO, "opened before the crash", self.path)

    def size(self) -> int:
        """Return the length."""
        self._use()
        return len(self._node.cached)

    def pread(self, length: int, position: int) -> bytes:
        """Read from the cache."""
        self._use()
        self._disk._enter("read", self.path)
        if length < 0 or position < 0:
            raise _os_error(errno.EINVAL, self.path)
        return bytes(self._node.cached[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write into the cache."""
        self.pwritev((data,), position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers as one operation."""
        self._use(writing=True)
        if position < 0:
            raise _os_error(errno.EINVAL, self.path)
        data = b"".join(buffers)
        disk = self._disk
        try:
            disk._enter("write", self.path, f"{position}+{len(data)}:{zlib.crc32(data):08x}")
        except (OSError, SimCrash):
            self._write(data[: disk._random.below(len(data) + 1)], position)
            raise
        lacking = position + len(data) - max(position, len(self._node.cached)) - disk._room()
        if lacking > 0:
            self._write(data[: len(data) - lacking], position)
            raise _os_error(errno.ENOSPC, self.path)
        self._write(data, position)

    def _write(self, data: bytes, position: int) -> None:
        if data:
            self._node.modified = self._disk._now()
            self._node.change(Write(position, data))

    def preallocate(self, length: int) -> None:
        """Extend with zeros to ``length``."""
        self._use(writing=True)
        self._disk._enter("preallocate", self.path, str(length))
        growth = length - len(self._node.cached)
        if growth > self._disk._room():
            raise _os_error(errno.ENOSPC, self.path)
        if growth > 0:
            self._resize(length)

    def truncate(self, length: int) -> None:
        """Set the length. A hole does not count towards the limit; data written later does."""
        self._use(writing=True)
        self._disk._enter("truncate", self.path, str(length))
        self._resize(length)

    def _resize(self, length: int) -> None:
        self._node.modified = self._disk._now()
        self._node.change(Resize(length))

    def sync(self) -> None:
        """Make contents durable; a failure drops unsynced changes, in whole or in part."""
        self._use()
        disk = self._disk
        try:
            disk._enter("sync", self.path)
        except OSError:
            self._node.settle(Keep.SEEDED, disk._random)
            raise
        if not disk._is_lying("sync", self.path):
            self._node.sync()

    def close(self) -> None:
        """Close; never fails, not even on a crashed disk."""
        self._is_open = False


class _SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held: set[str] | None = held
        self._path = path

    def release(self) -> None:
        """Release the path."""
        if self._held is not None:
            self._held.discard(self._path)
            self._held = None


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _check_replaceable(node: Node, there: Node | None, target: str) -> None:
    """Raise what the kernel raises when ``node`` may not replace ``there``."""
    if there is None or there is node:
        return
    if isinstance(there, DirNode):
        if not isinstance(node, DirNode):
            raise _os_error(errno.EISDIR, target)
        if there.cached:
            raise _os_error(errno.ENOTEMPTY, target)
    elif isinstance(node, DirNode):
        raise _os_error(errno.ENOTDIR, target)
