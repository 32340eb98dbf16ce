"""Stores, reads and deletes the objects of remote segments.

Requests are retried with jitter, a few times and within a time limit; after that the caller's own
backoff applies. Everything stored is read back before the segment counts as copied, and everything
read is compared with the checksums in the segment's metadata: a store that truncates or changes an
object is noticed before the local copy is deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.types import Buffer
from ottla.runtime.ports import Disk, NewObject, ObjectStore, Random, Worker
from ottla.tiering.manifest import decode_manifest, encode_manifest
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_objects import (
    CorruptCustomMetadata,
    ObjectKind,
    Objects,
    StoredObject,
    decode_objects,
    encode_objects,
    object_key,
)
from ottla.tiering.uploads import LocalUploads, Uploads, crc_of, short_read

ATTEMPTS_MAX: Final = 4
BACKOFF_S: Final = 0.1
BACKOFF_S_MAX: Final = 2.0
REQUEST_S: Final = 30.0
"""How long a request may take, plus a second for each `SLOW_BYTES` of it."""
SLOW_BYTES: Final = 1 << 20
MANIFEST_BYTES_MAX: Final = 16 << 20
_PIECE_BYTES: Final = 8 << 20
SUM_BYTES: Final = 4
CONTENTS_BYTES_MAX: Final = 32 << 20
"""What a request to store objects holds of them, apart from files; more only for a single one."""

Result = TypeVar("Result")


class RemoteStorageFailed(Fault):
    """Remote storage cannot be used now; clients retry."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class ObjectDamaged(RemoteStorageFailed):
    """An object is missing, or is not what was stored."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class ObjectMissing(ObjectDamaged):
    """There is no such object: it was deleted, or never stored."""


class ObjectChanged(ObjectDamaged):
    """All of an object was read, and it is not what was stored."""


class SegmentFiles(msgspec.Struct, frozen=True):
    """What to store of a segment: the path of its batches, and the contents of the rest."""

    log_path: str
    log_bytes: int
    contents: dict[ObjectKind, bytes]


class SegmentCopy(NamedTuple):
    """A segment to store."""

    metadata: SegmentMetadata
    files: SegmentFiles


class SizedObject(NamedTuple):
    """An object to store, and its size in bytes."""

    object: NewObject
    size: int


def split_requests(
    objects: Sequence[SizedObject], *, is_grouped: bool
) -> Iterator[list[SizedObject]]:
    """Yield what is stored by each request: one object, or what fits if the store has groups.

    Without groups a request that failed is repeated for its object alone, not for a whole segment.
    """
    group: list[SizedObject] = []
    held = 0
    for each in objects:
        held += len(each.object.data)
        if group and (not is_grouped or held > CONTENTS_BYTES_MAX):
            yield group
            group, held = [], len(each.object.data)
        group.append(each)
    if group:
        yield group


class StorePorts(msgspec.Struct, frozen=True):
    """What a store needs: objects, the disk to read from, a thread for checksums.

    ``uploads`` copies and checks segments; None: this process does.
    """

    objects: ObjectStore
    disk: Disk
    worker: Worker
    random: Random
    uploads: Uploads | None = None


class SegmentStore:
    """The objects below one prefix. All methods raise `RemoteStorageFailed`."""

    def __init__(self, ports: StorePorts, prefix: str = "") -> None:
        self._ports = ports
        self.objects = self._objects = ports.objects
        self._uploads = ports.uploads or LocalUploads(ports.objects, ports.disk, ports.worker)
        self.is_grouped = self._uploads.is_grouped
        self.prefix = prefix

    # -- copying -------------------------------------------------------------------

    async def copy(self, segments: Sequence[SegmentCopy]) -> list[bytes]:
        """Store all objects of segments and verify them; return the custom metadata of each.

        A store with groups makes all objects durable together, and then all manifests.
        """
        stored = [await self._checksums(each.files) for each in segments]
        await self._put([new for each in segments for new in self._new_objects(each)])
        for each, objects in zip(segments, stored, strict=True):
            for kind, expected in objects.items():
                await self._verify(self.key(each.metadata, kind), expected)
        customs = [encode_objects(each) for each in stored]
        manifests = [
            self._new(each.metadata, ObjectKind.MANIFEST, encode_manifest(each.metadata, custom))
            for each, custom in zip(segments, customs, strict=True)
        ]
        await self._put(manifests)
        for new in manifests:
            expected = StoredObject(new.size, crc_of(0, new.object.data))
            await self._verify(new.object.key, expected)
        return customs

    async def _checksums(self, files: SegmentFiles) -> Objects:
        path, length, uploads = files.log_path, files.log_bytes, self._uploads
        crc = await self._retry(path, lambda: uploads.crc_of_file(path, length), length)
        contents = files.contents.items()
        stored: Objects = {ObjectKind.LOG: StoredObject(length, crc)}
        return stored | {kind: StoredObject(len(data), crc_of(0, data)) for kind, data in contents}

    def _new_objects(self, segment: SegmentCopy) -> list[SizedObject]:
        metadata, files = segment
        log = NewObject(self.key(metadata, ObjectKind.LOG), path=files.log_path)
        contents = [self._new(metadata, kind, data) for kind, data in files.contents.items()]
        return [SizedObject(log, files.log_bytes), *contents]

    def _new(self, metadata: SegmentMetadata, kind: ObjectKind, data: bytes) -> SizedObject:
        return SizedObject(NewObject(self.key(metadata, kind), data), len(data))

    async def _put(self, objects: Sequence[SizedObject]) -> None:
        for each in split_requests(objects, is_grouped=self.is_grouped):
            request = partial(self._uploads.put_group, [new.object for new in each])
            await self._retry(each[0].object.key, request, sum(new.size for new in each))

    async def verify(self, metadata: SegmentMetadata) -> int:
        """Read all objects of a segment and compare them; return the number of bytes.

        Raises:
            ObjectDamaged: one is missing or differs.
        """
        objects = decode_objects(metadata.custom)
        for kind, expected in objects.items():
            await self._verify(self.key(metadata, kind), expected)
        manifest = await self.read_manifest(self.key(metadata, ObjectKind.MANIFEST))
        if (manifest.segment_id, manifest.custom) != (metadata.segment_id, metadata.custom):
            raise ObjectDamaged(self.key(metadata, ObjectKind.MANIFEST), "of another segment")
        return sum(stored.size for stored in objects.values())

    async def _verify(self, key: str, expected: StoredObject) -> None:
        try:
            found = await self._retry(key, lambda: self._objects.head(key))
        except FileNotFoundError as error:
            raise ObjectMissing(key, "no such object") from error
        if found.size != expected.size:
            raise ObjectDamaged(key, f"{found.size} bytes, not {expected.size}")
        for attempt in range(ATTEMPTS_MAX):
            if await self._crc_of(key, expected.size) == expected.crc:
                return
            await self._pause(attempt)  # it may have been changed on its way here
        raise ObjectDamaged(key, "the checksum does not match")

    async def _crc_of(self, key: str, size: int) -> int:
        crc = 0
        for start in range(0, size, _PIECE_BYTES):
            length = min(_PIECE_BYTES, size - start)
            request = partial(self._uploads.crc_of_range, key, start, length, crc)
            crc = await self._found(key, request, length)
        return crc

    # -- reading -------------------------------------------------------------------

    async def read(self, metadata: SegmentMetadata, kind: ObjectKind) -> bytes:
        """Return a whole object, compared with its checksum; for indexes, not for batches."""
        key, expected = self.key(metadata, kind), decode_objects(metadata.custom)[kind]
        for attempt in range(ATTEMPTS_MAX):
            data = bytes(await self._get(key, 0, expected.size))
            if len(data) == expected.size and crc_of(0, data) == expected.crc:
                return data
            await self._pause(attempt)
        raise ObjectDamaged(key, "not what was stored")

    async def read_manifest(self, key: str) -> SegmentMetadata:
        """Return what a manifest says of its segment.

        Raises:
            ObjectDamaged: it does not exist, or is not what was stored.
        """
        reason = ""
        for attempt in range(ATTEMPTS_MAX):
            try:
                size = (await self._retry(key, lambda: self._objects.head(key))).size
                found = await self._get(key, 0, min(size, MANIFEST_BYTES_MAX))
                return decode_manifest(bytes(found))
            except FileNotFoundError as error:
                raise ObjectMissing(key, "no such object") from error
            except CorruptCustomMetadata as error:
                reason = str(error)
            await self._pause(attempt)
        raise ObjectDamaged(key, reason)

    async def list_keys(self, prefix: str) -> list[str]:
        """Return the keys of all objects below ``prefix``."""

        async def keys() -> list[str]:
            return [found.key async for found in self._objects.list(prefix)]

        return await self._retry(prefix, keys)

    def size(self, metadata: SegmentMetadata, kind: ObjectKind) -> int:
        """Return the size of an object, 0 if the segment has none of this kind."""
        stored = decode_objects(metadata.custom).get(kind)
        return 0 if stored is None else stored.size

    async def read_log(self, metadata: SegmentMetadata, start: int, length: int) -> Buffer:
        """Return part of the batches; fewer bytes only at the end. The caller checks the CRCs."""
        length = min(length, self.size(metadata, ObjectKind.LOG) - start)
        return await self._get(self.key(metadata, ObjectKind.LOG), start, max(0, length))

    async def block_sums(self, metadata: SegmentMetadata, block_bytes: int) -> bytes:
        """Compare all batches with their checksum; return the CRC32C of each block, 4 bytes each.

        Raises:
            ObjectDamaged: they are not what was stored.
        """
        key, expected = (
            self.key(metadata, ObjectKind.LOG),
            decode_objects(metadata.custom)[ObjectKind.LOG],
        )
        crc, sums = 0, bytearray()
        for start in range(0, expected.size, block_bytes):
            block = await self.read_log(metadata, start, block_bytes)
            both = await self._ports.worker.run(partial(_extend, crc, block))
            crc = both[0]
            sums += both[1].to_bytes(SUM_BYTES, "big")
        if crc != expected.crc:
            raise ObjectChanged(key, "the checksum does not match")
        return bytes(sums)

    async def _get(self, key: str, start: int, length: int) -> Buffer:
        """Return exactly ``length`` bytes; a shorter body is asked for again."""
        if length <= 0:
            return b""

        async def get() -> Buffer:
            found = await self._objects.get_range(key, start, length)
            if len(found) != length:
                raise short_read(key, start, length, len(found))
            return found

        return await self._found(key, get, length)

    # -- deleting ------------------------------------------------------------------

    async def delete(self, metadata: SegmentMetadata) -> None:
        """Remove all objects that a segment may have; those that do not exist are ignored."""
        for kind in reversed(ObjectKind):  # the manifest first: without it the rest is not read
            key = self.key(metadata, kind)
            await self._retry(key, partial(self._objects.delete, key))

    # -- requests ------------------------------------------------------------------

    def key(self, metadata: SegmentMetadata, kind: ObjectKind) -> str:
        """Return the key of an object."""
        return object_key(self.prefix, metadata, kind)

    async def _found(
        self, key: str, request: Callable[[], Awaitable[Result]], length: int
    ) -> Result:
        try:
            return await self._retry(key, request, length)
        except FileNotFoundError as error:
            raise ObjectMissing(key, "no such object") from error

    async def _retry(
        self, key: str, request: Callable[[], Awaitable[Result]], length: int = 0
    ) -> Result:
        """Return the result of a request, repeated after failures that may pass.

        Raises:
            FileNotFoundError: there is no such object. RemoteStorageFailed: it keeps failing.
        """
        for attempt in range(ATTEMPTS_MAX):
            try:
                async with asyncio.timeout(REQUEST_S + length / SLOW_BYTES):
                    return await request()
            except FileNotFoundError:
                raise
            except OSError as error:  # includes the timeout
                reason = error
            await self._pause(attempt)
        text = reason.strerror or "no answer in time"
        raise RemoteStorageFailed(f"{key}: {text}") from reason

    async def _pause(self, attempt: int) -> None:
        if attempt + 1 < ATTEMPTS_MAX:
            longest = min(BACKOFF_S_MAX, BACKOFF_S * 2**attempt)
            await asyncio.sleep(longest * (0.5 + self._ports.random.fraction() / 2))


def _extend(crc: int, block: Buffer) -> tuple[int, int]:
    """Return the checksum of what ``crc`` is of, followed by ``block``, and that of ``block``."""
    return crc_of(crc, block), crc_of(0, block)
