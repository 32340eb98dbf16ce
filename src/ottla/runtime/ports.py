"""The small protocols through which all code meets the outside world.

Everything that can differ between two runs comes in through one of these: time,
randomness, disk, network, objects. Take the port by constructor; never reach for
``time``, ``random``, ``os`` or ``socket`` elsewhere. `simulation` has a second
implementation of each, which is why they are no larger than what is used.

Sleeping and timers belong to the running event loop, which the simulator replaces.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from ottla.protocol.types import Buffer, Millis, Uuid


class Clock(Protocol):
    """Two clocks: one for people and records, one for deadlines."""

    def now(self) -> Millis:
        """Wall time since 1970. It may jump either way; never subtract two of these."""
        ...

    def monotonic(self) -> Millis:
        """Never falls, has no meaning but differences. Deadlines and sessions use this."""
        ...


class Random(Protocol):
    """Randomness; a simulation replays it from one seed."""

    def below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``; ``limit`` is at least 1."""
        ...

    def fraction(self) -> float:
        """Return a float in ``[0, 1)``."""
        ...

    def bytes(self, length: int) -> bytes:
        """Return ``length`` bytes that nobody can guess (in production)."""
        ...

    def uuid(self) -> Uuid:
        """Return a version 4 UUID that Kafka accepts: its text never begins with '-'."""
        ...


class OpenMode(enum.Enum):
    """How a file is opened; nothing else creates one."""

    READ = "read"
    READ_WRITE = "read-write"  # must exist
    CREATE = "create"  # read-write, made when missing
    CREATE_NEW = "create-new"  # read-write, FileExistsError when there


class File(Protocol):
    """An open file. Positions and lengths are bytes; every failure is an ``OSError``.

    A write goes to the page cache only: nothing survives power loss before ``sync``.
    """

    @property
    def path(self) -> str:
        """The path it was opened by; a later rename does not change it."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for ``sendfile``.

        Raises:
            io.UnsupportedOperation: there is none (simulated); read with ``pread``.
        """
        ...

    def size(self) -> int:
        """Return the length, preallocated bytes included."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data`` or raise; after a raise any prefix may have been written."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one behind the other, or raise as ``pwrite`` does."""
        ...

    def preallocate(self, length: int) -> None:
        """Reserve space up to ``length``; ``size`` becomes at least that, new bytes are zero."""
        ...

    def truncate(self, length: int) -> None:
        """Cut or extend (with zeros) to exactly ``length``."""
        ...

    def sync(self) -> None:
        """Make contents and length durable. Blocks: on the event loop use a `Committer`.

        A failure is final: the kernel may have dropped the pages, so a second ``sync``
        that succeeds proves nothing. Whoever sees it raise gives the directory up.
        """
        ...

    def close(self) -> None:
        """Close without sync. Closing twice is fine."""
        ...


class DiskLock(Protocol):
    """An exclusive claim on a path, gone with the process."""

    def release(self) -> None:
        """Give it up. Releasing twice is fine."""
        ...


class Disk(Protocol):
    """A file system. Paths are absolute strings; every failure is an ``OSError``.

    Creating, renaming or removing a name is durable only after ``sync_dir`` of its
    directory, except where a method says otherwise.
    """

    def open(self, path: str, mode: OpenMode) -> File:
        """Open a file in an existing directory."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file's contents. For small files only."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether a file or directory is there."""
        ...

    def size(self, path: str) -> int:
        """Return a file's length without opening it."""
        ...

    def modified(self, path: str) -> Millis:
        """Return when a file was last written, as wall time."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def is_dir(self, path: str) -> bool:
        """Say whether ``path`` is a directory."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and its missing parents, durably. There already is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move, replacing a file at ``target`` atomically, then sync the directories concerned."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Claim ``path`` (made when missing) for this process.

        Raises:
            BlockingIOError: somebody else holds it.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Return how much may still be written below ``path``."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size of the volume that ``path`` is on."""
        ...


class Syncable(Protocol):
    """What a `Committer` makes durable: an open `File`, or a path that is opened to be synced."""

    @property
    def path(self) -> str:
        """Which file or directory, for messages."""
        ...

    def sync(self) -> None:
        """As `File.sync`. May run on the committer's thread."""
        ...


class Committer(Protocol):
    """Group commit of one log directory: many waiters, one ``sync`` per file."""

    async def commit(self, files: Sequence[Syncable]) -> None:
        """Return once everything written to ``files`` before this call is durable.

        Raises:
            StorageFailed: a sync failed, now or ever before: the directory is lost to
                this process, and no later commit on it succeeds.
        """
        ...

    async def close(self) -> None:
        """Finish the commits that wait, then release the thread, if there is one."""
        ...


Result = TypeVar("Result")


class Worker(Protocol):
    """A thread for work that would keep the event loop busy."""

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns, or raise what it raises.

        Works of one worker run one after the other, each to its end also where the caller is
        cancelled.
        """
        ...


class Address(msgspec.Struct, frozen=True):
    """Where to listen or dial. ``host`` is a name or an address of either family, no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(Protocol):
    """A bound socket that accepts."""

    @property
    def address(self) -> Address:
        """The address really bound: port 0 is resolved."""
        ...

    async def close(self) -> None:
        """Stop accepting; open connections stay."""
        ...


class Network(Protocol):
    """TCP. Connections are asyncio's transports and protocols: a server is testable without one."""

    async def listen(
        self, address: Address, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Bind and accept; every connection gets a fresh protocol from ``accept``.

        Raises:
            OSError: the address cannot be bound.
        """
        ...

    async def dial(
        self, address: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect.

        Raises:
            OSError: refused, unreachable or timed out. The caller bounds the time.
        """
        ...


class ObjectMeta(msgspec.Struct, frozen=True):
    """What a store says of an object. ``etag`` is whatever the store calls it, or empty."""

    key: str
    size: int
    etag: str = ""


class ObjectStore(Protocol):
    """Objects by key, written whole and never changed. Keys use ``/`` and no ``..``.

    Raises:
        FileNotFoundError: no such object. OSError: the store failed; may be tried again.
    """

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object; returns once the store has it durably."""
        ...

    async def put_file(self, key: str, path: str) -> None:
        """Store a local file's contents, in parts where the store wants it, bounded memory."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start``, fewer only at the object's end."""
        ...

    async def head(self, key: str) -> ObjectMeta:
        """Describe an object."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Yield the objects below ``prefix`` in key order."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is fine."""
        ...
