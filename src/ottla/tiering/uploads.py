"""The steps of a copy that move or check every byte of a segment."""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import google_crc32c

from ottla.protocol.types import Buffer
from ottla.runtime.ports import (
    Disk,
    NewObject,
    ObjectChecksums,
    ObjectGroups,
    ObjectStore,
    OpenMode,
    Worker,
)

_CRC_PIECE_BYTES: Final = 1 << 20
_FILE_PIECE_BYTES: Final = 256 << 10
"""A local file is read in pieces of this size, from the page cache, with a rest after each."""


class Uploads(Protocol):
    """Stores files and contents, and computes their CRC32C.

    Raises:
        FileNotFoundError: no such object. OSError: the step failed; it may be retried.
    """

    @property
    def is_grouped(self) -> bool:
        """Whether the store makes several objects durable together (`ObjectGroups`)."""
        ...

    async def crc_of_file(self, path: str, length: int) -> int:
        """Return the checksum of the first ``length`` bytes of a local file."""
        ...

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        """Store objects; together if the store can do that, otherwise one by one."""
        ...

    async def crc_of_range(self, key: str, start: int, length: int, crc: int) -> int:
        """Read part of an object; return the checksum of what ``crc`` is of, followed by it."""
        ...


class LocalUploads:
    """`Uploads` in this process. ``worker`` computes checksums off the event loop.

    ``rest`` is called there after each piece of a local file: reading a file that is in the page
    cache waits for nothing, so it would keep a core busy until the end of the file.
    """

    def __init__(
        self,
        objects: ObjectStore,
        disk: Disk,
        worker: Worker,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._objects = objects
        self._disk = disk
        self._worker = worker
        self._rest = rest

    async def crc_of_file(self, path: str, length: int) -> int:
        """Read the file on the worker."""
        return await self._worker.run(partial(self._crc_of_file, path, length))

    def _crc_of_file(self, path: str, length: int) -> int:
        file, crc = self._disk.open(path, OpenMode.READ), 0
        try:
            for position in range(0, length, _FILE_PIECE_BYTES):
                piece = file.pread(min(_FILE_PIECE_BYTES, length - position), position)
                crc = crc_of(crc, piece)
                self._rest()
        finally:
            file.close()
        return crc

    @property
    def is_grouped(self) -> bool:
        """Whether the store has groups."""
        return isinstance(self._objects, ObjectGroups)

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        """Store objects; together if the store can do that, otherwise one by one."""
        if isinstance(self._objects, ObjectGroups):
            await self._objects.put_group(objects)
            return
        for each in objects:
            if each.path is None:
                await self._objects.put(each.key, each.data)
            else:
                await self._objects.put_file(each.key, each.path)

    async def crc_of_range(self, key: str, start: int, length: int, crc: int) -> int:
        """Read part of an object, exactly; a shorter answer is an error."""
        if isinstance(self._objects, ObjectChecksums):
            return await self._objects.crc_of_range(key, start, length, crc)
        found = await self._objects.get_range(key, start, length)
        if len(found) != length:
            raise short_read(key, start, length, len(found))
        return await self._worker.run(partial(crc_of, crc, found))


def short_read(key: str, start: int, length: int, found: int) -> OSError:
    """Return the error of a store that returned too little."""
    return OSError(errno.EIO, f"{found} bytes instead of {length} from {start}", key)


def crc_of(crc: int, data: Buffer) -> int:
    """Return the CRC32C of what ``crc`` is of, followed by ``data``.

    Each piece is just large enough for google-crc32c to let other threads run meanwhile.
    """
    if isinstance(data, bytes) and len(data) <= _CRC_PIECE_BYTES:
        whole: int = google_crc32c.extend(crc, data)  # without a copy
        return whole
    view = memoryview(data)
    for start in range(0, len(view), _CRC_PIECE_BYTES):
        crc = google_crc32c.extend(crc, view[start : start + _CRC_PIECE_BYTES].tobytes())
    return crc
