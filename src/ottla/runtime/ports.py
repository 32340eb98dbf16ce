"""The interfaces (ports) through which all code uses its environment.

Everything that can differ between two runs comes through one of these: time, randomness, disk,
network, objects. Pass the port to the constructor; never use ``time``, ``random``, ``os`` or
``socket`` elsewhere. `simulation` has a second implementation of each, so ports contain only what
is used.

Sleeps and timers belong to the running event loop, which the simulator replaces.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from ottla.protocol.types import Buffer, Millis, Uuid


class Clock(Protocol):
    """Two clocks: one for users and records, one for deadlines."""

    def now(self) -> Millis:
        """Wall-clock time since 1970. It may jump either way; never subtract two readings."""
        ...

    def monotonic(self) -> Millis:
        """Monotonic time; only differences have a meaning. Deadlines and sessions use it."""
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
        """Return ``length`` bytes that cannot be guessed (in production)."""
        ...

    def uuid(self) -> Uuid:
        """Return a version 4 UUID that Kafka accepts: its text never starts with '-'."""
        ...


class OpenMode(enum.Enum):
    """How a file is opened; only ``Disk.open`` creates files."""

    READ = "read"
    READ_WRITE = "read-write"  # must exist
    CREATE = "create"  # read-write, created if missing
    CREATE_NEW = "create-new"  # read-write, FileExistsError if it exists


class File(Protocol):
    """An open file. Positions and lengths are bytes; every failure is an ``OSError``.

    A write only reaches the page cache: it survives a power loss only after ``sync``.
    """

    @property
    def path(self) -> str:
        """The path that was opened; a later rename does not change it."""
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
        """Write all buffers one after the other, or raise as ``pwrite`` does."""
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
        that succeeds proves nothing. The caller marks the log directory as failed.
        """
        ...

    def close(self) -> None:
        """Close without sync. Idempotent."""
        ...


class DiskLock(Protocol):
    """An exclusive lock on a path, released when the process ends."""

    def release(self) -> None:
        """Release the lock. Idempotent."""
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
        """Say whether a file or directory exists."""
        ...

    def size(self, path: str) -> int:
        """Return a file's length without opening it."""
        ...

    def modified(self, path: str) -> Millis:
        """Return when a file was last written, as wall-clock time."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def is_dir(self, path: str) -> bool:
        """Say whether ``path`` is a directory."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents, durably, unless it exists."""
        ...

    def make_dir(self, path: str) -> None:
        """Create a directory in an existing one, unless it exists."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Move a file within its directory, replacing a file at ``target`` atomically."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move, replacing a file at ``target`` atomically, then sync both directories."""
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
        """Lock ``path`` (created if missing) for this process.

        Raises:
            BlockingIOError: another process holds the lock.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Return the free space for files below ``path``."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size of the volume that ``path`` is on."""
        ...


class Syncable(Protocol):
    """What a `Committer` syncs: an open `File`, or a path that is opened for the sync."""

    @property
    def path(self) -> str:
        """The file or directory, for messages."""
        ...

    def sync(self) -> None:
        """As `File.sync`. May run on the committer's thread."""
        ...


class Committer(Protocol):
    """Group commit of one log directory: many waiters, one ``sync`` per file."""

    async def commit(self, files: Sequence[Syncable]) -> None:
        """Return once everything written to ``files`` before this call is durable.

        Raises:
            StorageFailed: a sync of this directory failed, now or earlier: no later commit
                succeeds in this process.
        """
        ...

    async def close(self) -> None:
        """Finish the commits that wait, then release the thread, if there is one."""
        ...


Result = TypeVar("Result")


class Worker(Protocol):
    """A thread for work that would block the event loop."""

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, or raise its exception.

        A worker runs one function at a time, each to its end even if the caller is cancelled.
        """
        ...


class Address(msgspec.Struct, frozen=True):
    """An address to listen on or connect to. ``host`` is a name or an IP address, no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(Protocol):
    """A bound socket that accepts connections."""

    @property
    def address(self) -> Address:
        """The bound address: port 0 is resolved."""
        ...

    async def close(self) -> None:
        """Stop accepting; open connections stay."""
        ...


class Network(Protocol):
    """TCP. Connections are asyncio transports and protocols, so tests need no network."""

    async def listen(
        self, address: Address, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Bind and accept; every connection gets a new protocol from ``accept``.

        Raises:
            OSError: the address cannot be bound.
        """
        ...

    async def dial(
        self, address: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect.

        Raises:
            ConnectionRefusedError: every address of the host refused: no process listens there.
            OSError: unreachable or timed out. The caller bounds the time.
        """
        ...


class ObjectMeta(msgspec.Struct, frozen=True):
    """The metadata of an object. ``etag`` is the store's own, or empty."""

    key: str
    size: int
    etag: str = ""


class ObjectStore(Protocol):
    """Immutable objects by key. Keys use ``/`` and no ``..``.

    Raises:
        FileNotFoundError: no such object. OSError: the store failed; the call may be retried.
    """

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object; returns once the store has it durably."""
        ...

    async def put_file(self, key: str, path: str) -> None:
        """Store a local file's contents, in parts if the store requires it, in bounded memory."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Return exactly ``length`` bytes from ``start``, fewer only at the object's end.

        The bytes may belong to the store's library, so that they need not be copied.
        """
        ...

    async def head(self, key: str) -> ObjectMeta:
        """Describe an object."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Yield the objects below ``prefix`` in key order."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        ...


class NewObject(msgspec.Struct, frozen=True):
    """An object to store: ``data``, or the contents of the local file at ``path``."""

    key: str
    data: bytes = b""
    path: str | None = None


@runtime_checkable
class ObjectChecksums(Protocol):
    """A store that computes checksums itself, which costs less than to return the bytes."""

    async def crc_of_range(self, key: str, start: int, length: int, crc: int) -> int:
        """Read part of an object; return the CRC32C of what ``crc`` is of, followed by it.

        Raises:
            FileNotFoundError: no such object. OSError: it is shorter, or the store failed.
        """
        ...


@runtime_checkable
class ObjectGroups(Protocol):
    """A store that makes several objects durable together, which costs less than one by one."""

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        """Store objects; returns once all are durable.

        A failure or crash may leave any of them, each of them whole.

        Raises:
            OSError: the call may be repeated with all of them.
        """
        ...
