"""Objects as files below a directory, behind the `ObjectStore` port.

A file is written under a temporary name, synced, renamed, and the directories that lead to it are
synced: an object is visible at once and whole, and survives a power cut once `put` has returned.

Each sync makes the file system write metadata, with a journal by a commit, and appends to other
files wait for that. So the objects of a group take each of these steps together: two commits,
however many objects there are.

Large files are written past the page cache (``O_DIRECT``): a sync of buffered megabytes holds up
every other writer of the file system until its journal has committed, a broker's log included.
"""

import ctypes
import errno
import mmap
import os
import secrets
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.protocol.records.crc import extend_crc32c
from ottla.protocol.types import Buffer
from ottla.runtime import system_calls
from ottla.runtime.object_keys import check_key, check_prefix
from ottla.runtime.ports import NewObject, ObjectMeta
from ottla.runtime.worker import ThreadWorker

INCOMING: Final = ".incoming"
"""The directory of files that are not complete. Never listed; no key begins with it."""
STALE_S: Final = 3600.0
"""A file that has not been written to for so long is of a process that crashed."""
THREADS_MAX: Final = 4
PIECE_BYTES: Final = 256 << 10
"""The process waits for the disk after each piece, and leaves its core to others meanwhile."""
SYNC_BYTES: Final = 4 << 20
"""Buffered writes are flushed so often that no sync has much left to write."""
DIRECTORIES_MAX: Final = 10_000
_ALIGNED: Final = 4096
"""``O_DIRECT`` needs positions, lengths and memory in multiples of this, at most."""
_BEGIN_WRITING: Final = 2
_WRITE_AND_WAIT: Final = 1 | 2 | 4
"""Flags of ``sync_file_range``."""


class _Staged(NamedTuple):
    """A file that is not an object yet: opened, under its temporary name, and its later path."""

    file: int
    temporary: Path
    path: Path


class DirectoryObjects:
    """`ObjectStore` in a directory, created if missing: on a local disk or a network file system.

    Has `ObjectGroups` and `ObjectChecksums`.

    ``is_cached`` False: checksums are of what is on the disk, read past the page cache, so that
    nothing is evicted from it; for a process that only copies.
    """

    def __init__(self, path: str, *, is_cached: bool = True) -> None:
        self._root = Path(path)
        self._incoming = self._root / INCOMING
        self._is_cached = is_cached
        self._worker = ThreadWorker("objects", THREADS_MAX)
        self._memory = threading.local()
        self._is_tidy = False
        self._durable: set[Path] = set()
        os.makedirs(self._root, exist_ok=True)

    # -- writing -------------------------------------------------------------------

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object."""
        await self.put_group([NewObject(key, bytes(data))])

    async def put_file(self, key: str, path: str) -> None:
        """Store the contents of a file."""
        await self.put_group([NewObject(key, path=path)])

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        """Store objects together. None is visible before all of them are written and synced."""
        targets = [self._path(each.key) for each in objects]
        await self._worker.run(lambda: self._store(objects, targets))

    def _store(self, objects: Sequence[NewObject], targets: Sequence[Path]) -> None:
        if not self._is_tidy:
            self._is_tidy = True
            _remove_stale(self._incoming)
        staged: list[_Staged] = []
        try:
            try:
                for each, path in zip(objects, targets, strict=True):
                    staged.append(self._stage(path))
                    self._fill(staged[-1].file, each)
                _sync_files([each.file for each in staged])
            finally:
                for written in staged:
                    os.close(written.file)
            self._publish(staged)
        except BaseException:
            for written in staged:
                with suppress(OSError):  # those that have their name already
                    os.unlink(written.temporary)
            raise

    def _stage(self, path: Path) -> _Staged:
        # Brokers of other machines and containers share the directory and may have our process id.
        temporary = self._incoming / secrets.token_hex(12)
        return _Staged(_create(temporary), temporary, path)

    def _fill(self, file: int, contents: NewObject) -> None:
        if contents.path is None:
            _write(file, contents.data, 0)
            return
        source = system_calls.open_file(contents.path, os.O_RDONLY)
        try:
            self._copy(source, file)
        finally:
            os.close(source)

    def _publish(self, staged: Sequence[_Staged]) -> None:
        """Give files their names, durably."""
        for each in staged:
            try:
                os.replace(each.temporary, each.path)
            except FileNotFoundError:
                os.makedirs(each.path.parent, exist_ok=True)
                self._durable.clear()
                os.replace(each.temporary, each.path)
        self._sync_directories({each.path.parent for each in staged})

    def _sync_directories(self, changed: Iterable[Path]) -> None:
        """Sync directories, each once; those that may be new with all above them, to the root."""
        wanted = set(changed)
        new = wanted - self._durable
        for parent in new:
            above = parent
            while above != self._root:
                above = above.parent
                wanted.add(above)
        for each in wanted:
            _sync(each)
        if len(self._durable) >= DIRECTORIES_MAX:
            self._durable.clear()
        self._durable.update(new)

    def _copy(self, source: int, target: int) -> None:
        """Copy a file in pieces, past the page cache as far as the file system allows it."""
        buffer, position, synced = self._buffer(), 0, 0
        is_direct = system_calls.set_direct(target, is_on=True)
        while length := system_calls.preadv(source, [buffer], position):
            is_direct = _write(target, memoryview(buffer)[:length], position) and is_direct
            position += length
            if not is_direct and position - synced >= SYNC_BYTES:
                system_calls.sync_data(target)
                synced = position

    def _buffer(self) -> mmap.mmap:
        """Return the memory of this thread, aligned to a page."""
        found: mmap.mmap | None = getattr(self._memory, "buffer", None)
        if found is None:
            found = self._memory.buffer = mmap.mmap(-1, PIECE_BYTES)
        return found

    # -- reading -------------------------------------------------------------------

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Return part of an object; empty if ``start`` is at or after its end."""
        path = self._path(key)
        if start < 0 or length < 0:
            raise ValueError(f"invalid range: {length} bytes from {start}")
        return await self._worker.run(lambda: self._read(key, path, start, length))

    def _read(self, key: str, path: Path, start: int, length: int) -> Buffer:
        file = _open(key, path)
        try:
            return _read(file, start, max(0, min(length, os.fstat(file).st_size - start)))
        finally:
            os.close(file)

    async def crc_of_range(self, key: str, start: int, length: int, crc: int) -> int:
        """Return the CRC32C of what ``crc`` is of, followed by part of an object.

        Memory is reused: to allocate and copy costs more than the checksum, and cores are shared.
        """
        path = self._path(key)
        return await self._worker.run(lambda: self._crc(key, path, start, length, crc))

    def _crc(self, key: str, path: Path, start: int, length: int, crc: int) -> int:
        file, buffer, done = _open(key, path), self._buffer(), 0
        try:
            system_calls.set_direct(file, is_on=not self._is_cached and start % _ALIGNED == 0)
            while done < length:
                count = min(_read_piece(file, buffer, start + done), length - done)
                if not count:
                    text = f"{done} bytes instead of {length} from {start}"
                    raise OSError(errno.EIO, text, key)
                crc = extend_crc32c(crc, memoryview(buffer), count)
                done += count
        finally:
            os.close(file)
        return crc

    async def head(self, key: str) -> ObjectMeta:
        """Describe an object."""
        path = self._path(key)

        def describe() -> ObjectMeta:
            file = _open(key, path)
            try:
                return ObjectMeta(key, os.fstat(file).st_size)
            finally:
                os.close(file)

        return await self._worker.run(describe)

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Yield the objects below ``prefix``, whole parts of a key, in key order."""
        check_prefix(prefix)
        for meta in await self._worker.run(lambda: _list(self._root, prefix)):
            yield meta

    async def delete(self, key: str) -> None:
        """Remove an object if it exists. A reader that has opened it reads on."""
        path = self._path(key)

        def remove() -> None:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)

        await self._worker.run(remove)

    def _path(self, key: str) -> Path:
        check_key(key)
        if key.partition("/")[0] == INCOMING:
            raise ValueError(f"object key in the directory of incomplete files: {key!r}")
        return self._root / key


def _list(root: Path, prefix: str) -> list[ObjectMeta]:
    found: list[ObjectMeta] = []
    for directory, names, files in os.walk(root / prefix):
        if Path(directory) == root:
            names[:] = [name for name in names if name != INCOMING]
        for name in files:
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # deleted meanwhile
                found.append(
                    ObjectMeta(Path(path).relative_to(root).as_posix(), os.stat(path).st_size)
                )
    return sorted(found, key=lambda meta: meta.key)


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return system_calls.open_file(path, flags)
    except FileNotFoundError:
        os.makedirs(path.parent, exist_ok=True)
        return system_calls.open_file(path, flags)


def _open(key: str, path: Path) -> int:
    try:
        file = system_calls.open_file(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(errno.ENOENT, "no such object", key) from error
    if stat.S_ISDIR(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, "no such object", key)
    return file


def _read(file: int, start: int, length: int) -> Buffer:
    """Read up to ``length`` bytes into writable memory: its checksum is computed without a copy."""
    found, done = memoryview(bytearray(length)), 0
    while done < length and (count := system_calls.preadv(file, [found[done:]], start + done)):
        done += count
    return found[:done]


def _read_piece(file: int, buffer: mmap.mmap, position: int) -> int:
    """Fill the buffer, past the page cache where that is possible; return how much was read."""
    if position % _ALIGNED:
        system_calls.set_direct(file, is_on=False)  # after the last block, which is not whole
    try:
        return system_calls.preadv(file, [buffer], position)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    system_calls.set_direct(file, is_on=False)  # some file systems refuse every such read
    return system_calls.preadv(file, [buffer], position)


def _write(file: int, data: Buffer, position: int) -> bool:
    """Write everything; return False if ``O_DIRECT`` was switched off for it."""
    view, is_as_before = memoryview(data), True
    while view:
        try:
            count = system_calls.pwrite(file, view, position)
        except OSError as error:
            # The last part is not whole blocks; some file systems refuse every such write.
            if error.errno != errno.EINVAL or not is_as_before:
                raise
            count, is_as_before = 0, system_calls.set_direct(file, is_on=False)
        view, position = view[count:], position + count
        if count % _ALIGNED:
            is_as_before = system_calls.set_direct(file, is_on=False)
    return is_as_before


def _sync_files(files: Sequence[int]) -> None:
    """Sync files. All are written before the first sync, whose commit then serves all of them."""
    for flags in (_BEGIN_WRITING, _WRITE_AND_WAIT) if len(files) > 1 else ():
        for file in files:
            _sync_file_range(file, flags)
    for file in files:
        os.fsync(file)


def _sync_file_range(file: int, flags: int) -> bool:
    """Write dirty pages; return whether it worked. Makes nothing durable: a failure costs time."""
    call = system_calls.c_function("sync_file_range")
    if call is None:
        return False
    everything = (ctypes.c_int64(0), ctypes.c_int64(0))
    return bool(call(file, *everything, flags) == 0)


def _sync(directory: Path) -> None:
    system_calls.sync_directory(directory)


def _remove_stale(incoming: Path) -> None:
    """Remove what crashed processes left, of all brokers that share the directory."""
    oldest = time.time() - STALE_S
    with suppress(FileNotFoundError):
        for name in os.listdir(incoming):
            with suppress(FileNotFoundError):  # of another broker that has just finished
                if os.stat(incoming / name).st_mtime < oldest:
                    os.unlink(incoming / name)
