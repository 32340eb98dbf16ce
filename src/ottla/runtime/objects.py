"""Object stores behind the `ObjectStore` port: a directory, memory, or anything that speaks S3.

The work is obstore's, the extra ``objects``. It is imported when a store is opened, so
that a broker without tiering needs none of it.
"""

import errno
import importlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.protocol.types import Buffer
from ottla.runtime.object_keys import check_key, check_prefix
from ottla.runtime.ports import ObjectMeta

# Parts of a large upload: S3 wants 5 MiB at least, and at most 10,000 of them.
PART_BYTES = 8 * 1024 * 1024
# Parts under way at once. With the size, the bound on what an upload holds in memory.
PARTS_MAX = 2
# Tries that obstore makes unseen. Few: waiting longer is a decision, and the caller's.
RETRIES_MAX = 2


class ObstoreObjects:
    """`ObjectStore` over one of obstore's stores. Open one with the class methods.

    Errors become ``FileNotFoundError``, ``PermissionError`` or plain ``OSError``; which of
    them is worth another try is the caller's to decide, with what obstore has tried already.
    """

    def __init__(self, store: object) -> None:
        self._obstore: Any = _load("obstore")
        self._store: Any = store

    @classmethod
    def in_directory(cls, path: str) -> "ObstoreObjects":
        """Keep objects as files below ``path``, made when missing. For tests and NFS."""
        store: Any = _load("obstore.store")
        return cls(store.LocalStore(path, mkdir=True))

    @classmethod
    def in_memory(cls) -> "ObstoreObjects":
        """Keep objects in this process, for as long as it lives."""
        store: Any = _load("obstore.store")
        return cls(store.MemoryStore())

    @classmethod
    def in_s3(
        cls, bucket: str, config: Mapping[str, str], *, allow_http: bool = False
    ) -> "ObstoreObjects":
        """Use a bucket. ``config`` holds obstore's S3 keys: ``region``, ``endpoint``, keys.

        Plain HTTP must be asked for: it shows every object to the network.
        """
        store: Any = _load("obstore.store")
        return cls(
            store.S3Store(
                bucket,
                config=dict(config),
                client_options={"allow_http": allow_http},
                retry_config={"max_retries": RETRIES_MAX},
            )
        )

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object in one request."""
        check_key(key)
        with _translated(key):
            await self._obstore.put_async(self._store, key, bytes(data), use_multipart=False)

    async def put_file(self, key: str, path: str) -> None:
        """Store a file, in parts if it is large."""
        check_key(key)
        with open(path, "rb") as file, _translated(key):  # noqa: ASYNC230 - read part by part
            await self._obstore.put_async(
                self._store, key, file, chunk_size=PART_BYTES, max_concurrency=PARTS_MAX
            )

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return part of an object; nothing where ``start`` is at or behind its end."""
        check_key(key)
        if start < 0 or length < 0:
            raise ValueError(f"no range: {length} bytes from {start}")
        if length == 0:
            await self.head(key)
            return b""
        try:
            with _translated(key):
                found = await self._obstore.get_range_async(
                    self._store, key, start=start, length=length
                )
        except FileNotFoundError:
            raise
        except OSError:
            # Stores refuse a range that begins behind the end, each in its own words.
            if start >= (await self.head(key)).size:
                return b""
            raise
        return bytes(found)

    async def head(self, key: str) -> ObjectMeta:
        """Describe an object."""
        check_key(key)
        with _translated(key):
            return _meta(await self._obstore.head_async(self._store, key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Yield what is below ``prefix``, in key order.

        A prefix is one of whole parts: ``a/b`` finds ``a/b/c`` and not ``a/bc``. Local
        stores list in no order, so all of the listing is held until it is sorted.
        """
        check_prefix(prefix)
        found: list[ObjectMeta] = []
        with _translated(prefix):
            async for page in self._obstore.list(self._store, prefix.removesuffix("/") or None):
                found += [_meta(entry) for entry in page]
        for meta in sorted(found, key=lambda meta: meta.key):
            yield meta

    async def delete(self, key: str) -> None:
        """Remove an object."""
        check_key(key)
        try:
            with _translated(key):
                await self._obstore.delete_async(self._store, key)
        except FileNotFoundError:
            pass


def _load(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("object stores need the extra: pip install 'ottla[objects]'") from error


def _meta(entry: Mapping[str, Any]) -> ObjectMeta:
    return ObjectMeta(entry["path"], entry["size"], entry.get("e_tag") or "")


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Turn obstore's errors into the kernel's kinds, keeping the cause."""
    errors: Any = _load("obstore.exceptions")
    try:
        yield
    except (FileNotFoundError, errors.NotFoundError) as error:
        raise FileNotFoundError(errno.ENOENT, "no such object", key) from error
    except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, f"the store refuses: {error}", key) from error
    except errors.BaseError as error:
        raise OSError(errno.EIO, f"the store failed: {error}", key) from error
