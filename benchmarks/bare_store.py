"""What the stores of the benchmarks are compared with: obstore, and nothing else.

A file in a directory is synced as well, together with the directories above it: a copy that may be
lost is not the same work.
"""

import asyncio
import os
from pathlib import Path

from obstore.store import LocalStore

from ottla.runtime.objects import ObstoreObjects
from ottla.runtime.ports import ObjectStore
from ottla.tiering.store_settings import S3, StoreSettings, open_store


class BareDirectory(ObstoreObjects):
    """A directory behind obstore."""

    def __init__(self, path: str) -> None:
        super().__init__(LocalStore(path, mkdir=True))
        self._root = Path(path)

    async def put_file(self, key: str, path: str) -> None:
        """Store a file, and sync it."""
        await super().put_file(key, path)
        await asyncio.to_thread(self._sync, self._root / key)

    def _sync(self, path: Path) -> None:
        for each in (path, *path.parents):
            opened = os.open(each, os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)
            if each == self._root:
                return


def open_bare(settings: StoreSettings) -> ObjectStore:
    """Open a store without anything of ours."""
    return open_store(settings) if settings.kind == S3 else BareDirectory(settings.place)
