"""The upload process of a broker: does what `UploadProcess` asks for, and ends with the broker.

python -m ottla.tiering.upload_child <process id of the broker>
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ottla.runtime.disk import RealDisk
from ottla.runtime.helper_process import rest_thread, serve
from ottla.runtime.worker import ThreadWorker
from ottla.tiering.store_settings import StoreSettings, open_store
from ottla.tiering.upload_messages import (
    CrcOfFile,
    CrcOfRange,
    OpenStore,
    PutGroup,
    UploadReply,
    UploadRequest,
    decode_request,
    encode,
    failed,
)
from ottla.tiering.uploads import LocalUploads, Uploads

REST_S_MAX: Final = 1.0
PIECE_REST_S: Final = 0.0002
"""How long to rest after a piece of a local file, which takes a third of it to check."""


def rest_s(worked_s: float) -> float:
    """Return how long to rest after a step: half of the disk's time is for others."""
    return min(worked_s, REST_S_MAX)


class UploadChild:
    """Carries out requests, with one store. ``now`` and ``sleep`` are in seconds."""

    def __init__(
        self,
        now: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._is_paced = False
        self._uploads: Uploads | None = None

    async def answer(self, payload: bytes) -> bytes:
        """Return the reply to a request; a process that is paced rests before it."""
        began = self._now()
        reply = await self._answer(payload)
        if self._is_paced:
            await self._sleep(rest_s(self._now() - began))
        return reply

    async def _answer(self, payload: bytes) -> bytes:
        try:
            return encode(UploadReply(await self._do(decode_request(payload))))
        except OSError as error:
            return encode(failed(error))

    async def _do(self, request: UploadRequest) -> int:
        if isinstance(request, OpenStore):
            self._is_paced = request.is_paced
            self._uploads = _open(request.settings, is_paced=request.is_paced)
            return 0
        assert self._uploads is not None, "the first request opens the store"
        match request:
            case CrcOfFile(path, length):
                return await self._uploads.crc_of_file(path, length)
            case CrcOfRange(key, start, length, crc):
                return await self._uploads.crc_of_range(key, start, length, crc)
            case PutGroup(objects):
                await self._uploads.put_group(objects)
        return 0


def _open(settings: StoreSettings, *, is_paced: bool) -> Uploads:
    objects = open_store(settings, is_cached=False)
    rest = partial(rest_thread, PIECE_REST_S if is_paced else 0)
    return LocalUploads(objects, RealDisk(), ThreadWorker("upload"), rest)


if __name__ == "__main__":
    serve(UploadChild().answer, int(sys.argv[1]))
