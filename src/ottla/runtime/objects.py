"""Object stores behind the `ObjectStore` port: memory, or any S3-compatible service.

The implementation is obstore, installed by the extra ``objects``. It is imported when a store is
opened: a broker without tiering does not need it.
"""

import atexit
import errno
import importlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.protocol.types import Buffer
from ottla.runtime.native_threads import wait_until_idle
from ottla.runtime.object_keys import check_key, check_prefix
from ottla.runtime.ports import ObjectMeta

# The parts of a large upload: S3 requires at least 5 MiB, and allows at most 10,000 parts.
PART_BYTES = 8 * 1024 * 1024
# Parts in flight at once. Together with the size this bounds the memory of an upload.
PARTS_MAX = 2
# Retries by obstore itself. Few: the caller decides whether to wait longer.
RETRIES_MAX = 2
# The names of obstore's threads begin so.
_THREADS = "tokio"


class ObstoreObjects:
    """`ObjectStore` over one of obstore's stores. Open one with the class methods.

    Errors become ``FileNotFoundError``, ``PermissionError`` or plain ``OSError``; the
    caller decides which of them to retry, in addition to the retries of obstore.
    """

    def __init__(self, store: object) -> None:
        self._obstore: Any = _load("obstore")
        self._store: Any = store
        atexit.unregister(_settle)  # once, however many stores there are
        atexit.register(_settle)

    @classmethod
    def in_memory(cls) -> "ObstoreObjects":
        """Keep objects in the memory of this process."""
        store: Any = _load("obstore.store")
        return cls(store.MemoryStore())

    @classmethod
    def in_s3(
        cls, bucket: str, config: Mapping[str, str], *, allow_http: bool = False
    ) -> "ObstoreObjects":
        """Use a bucket. ``config`` holds obstore's S3 keys: ``region``, ``endpoint``, keys.

        Plain HTTP must be enabled explicitly: it exposes every object to the network.
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
        """Store a file, in parts if it is large.

        obstore reads the file itself: reading a Python file object would copy every part while no
        other thread of the interpreter runs.
        """
        check_key(key)
        with _translated(key):
            await self._obstore.put_async(
                self._store, key, Path(path), chunk_size=PART_BYTES, max_concurrency=PARTS_MAX
            )

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Return part of an object; empty if ``start`` is at or after its end.

        A view of obstore's memory: copying megabytes here would hold up the event loop.
        """
        check_key(key)
        if start < 0 or length < 0:
            raise ValueError(f"invalid range: {length} bytes from {start}")
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
            # Stores reject a range that starts after the end, each with a different error.
            if start >= (await self.head(key)).size:
                return b""
            raise
        return memoryview(found)

    async def head(self, key: str) -> ObjectMeta:
        """Describe an object."""
        check_key(key)
        with _translated(key):
            return _meta(await self._obstore.head_async(self._store, key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Yield the objects below ``prefix``, in key order.

        A prefix consists of whole parts: ``a/b`` matches ``a/b/c`` and not ``a/bc``. Local stores
        list without order, so the whole listing is held in memory and sorted.
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


def _settle() -> None:
    wait_until_idle(_THREADS)


def _load(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("object stores need obstore: `pip install 'ottla[objects]'`") from error


def _meta(entry: Mapping[str, Any]) -> ObjectMeta:
    return ObjectMeta(entry["path"], entry["size"], entry.get("e_tag") or "")


def _line(error: Exception) -> str:
    """Return what happened; obstore adds its own structures on further lines."""
    return next(iter(str(error).splitlines()), "").strip()


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Raise obstore's errors as subclasses of ``OSError``, keeping the cause."""
    errors: Any = _load("obstore.exceptions")
    try:
        yield
    except (FileNotFoundError, errors.NotFoundError) as error:
        raise FileNotFoundError(errno.ENOENT, "no such object", key) from error
    except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
        raise PermissionError(
            errno.EACCES, f"access denied by the object store: {_line(error)}", key
        ) from error
    except errors.BaseError as error:
        raise OSError(errno.EIO, f"the object store failed: {_line(error)}", key) from error
