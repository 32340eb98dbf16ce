"""Service: copies segments in a process of its own, so that requests do not wait for it.

The process runs only on cores that are idle otherwise, and rests half of the time to leave the disk
to others, unless copies fall behind (`copy_lag.py`).
It is started by the first copy, and ends after the last one.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ottla.runtime.helper_process import HelperProcess
from ottla.runtime.ports import NewObject
from ottla.tiering.store_settings import StoreSettings
from ottla.tiering.upload_messages import (
    CrcOfFile,
    CrcOfRange,
    OpenStore,
    PutGroup,
    UploadRequest,
    decode_reply,
    encode,
)

MODULE: Final = "ottla.tiering.upload_child"
UNUSED_S: Final = 60.0
"""How long the process waits for another request."""


class UploadProcess:
    """`Uploads` in another process."""

    name = "upload-process"

    def __init__(self, settings: StoreSettings, unused_s: float = UNUSED_S) -> None:
        self._settings = settings
        self._unused_s = unused_s
        self._helper: HelperProcess | None = None
        self._is_low = False
        self._starting = asyncio.Lock()
        self._unused: asyncio.TimerHandle | None = None
        self.is_hurried = False
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it does not run."""
        helper = self._helper
        return helper.pid if helper is not None and helper.is_running else None

    async def run(self, ready: Callable[[], None]) -> None:
        """End the process when the broker stops."""
        ready()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._forget_timer()
            if self._helper is not None:
                await self._helper.stop()

    def hurry(self, is_hurried: bool) -> None:
        """Compete with other processes for the cores, or no longer.

        A running process cannot be given back its usual priority without privileges, so it is
        replaced: at once if copies are late, otherwise when it has nothing to do.
        """
        self.is_hurried = is_hurried
        if is_hurried and self._is_low and self._helper is not None:
            self._helper.kill()

    async def crc_of_file(self, path: str, length: int) -> int:
        """Return the checksum of the first ``length`` bytes of a local file."""
        return await self._call(CrcOfFile(path, length))

    @property
    def is_grouped(self) -> bool:
        """Whether the store has groups."""
        return self._settings.is_grouped

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        """Store objects; together if the store can do that, otherwise one by one."""
        await self._call(PutGroup(tuple(objects)))

    async def crc_of_range(self, key: str, start: int, length: int, crc: int) -> int:
        """Read part of an object; return the checksum of what ``crc`` is of, followed by it."""
        return await self._call(CrcOfRange(key, start, length, crc))

    async def _call(self, request: UploadRequest) -> int:
        self._forget_timer()
        helper = await self._running()
        try:
            return decode_reply(await helper.call(encode(request))).result()
        finally:
            if not helper.waiting:
                self._forget_timer()
                loop = asyncio.get_running_loop()
                self._unused = loop.call_later(self._unused_s, _end_unused, helper)

    async def _running(self) -> HelperProcess:
        """Return the process, started or replaced if necessary."""
        async with self._starting:
            helper = self._helper
            if helper is not None and helper.is_running:
                if self._is_low is not self.is_hurried or helper.waiting:
                    return helper
                helper.kill()
            self._is_low = not self.is_hurried
            helper = await HelperProcess.start(MODULE, is_low=self._is_low)
            self._helper = helper
            self.starts += 1
            try:
                opened = OpenStore(self._settings, is_paced=self._is_low)
                decode_reply(await helper.call(encode(opened))).result()
            except OSError:
                helper.kill()
                raise
            return helper

    def _forget_timer(self) -> None:
        if self._unused is not None:
            self._unused.cancel()
            self._unused = None


def _end_unused(helper: HelperProcess) -> None:
    if not helper.waiting:
        helper.kill()
