"""The upload process of a broker: does what `UploadProcess` asks for, and ends with the broker.

python -m ottla.tiering.upload_child <process id of the broker>
"""

import sys

from ottla.runtime.disk import RealDisk
from ottla.runtime.helper_process import serve
from ottla.runtime.worker import ThreadWorker
from ottla.tiering.store_settings import StoreSettings, open_store
from ottla.tiering.upload_messages import (
    CrcOfFile,
    CrcOfRange,
    OpenStore,
    Put,
    PutFile,
    UploadReply,
    UploadRequest,
    decode_request,
    encode,
    failed,
)
from ottla.tiering.uploads import LocalUploads, Uploads


class UploadChild:
    """Carries out requests, with one store."""

    def __init__(self) -> None:
        self._uploads: Uploads | None = None

    async def answer(self, payload: bytes) -> bytes:
        """Return the reply to a request."""
        try:
            return encode(UploadReply(await self._do(decode_request(payload))))
        except OSError as error:
            return encode(failed(error))

    async def _do(self, request: UploadRequest) -> int:
        if isinstance(request, OpenStore):
            self._uploads = _open(request.settings)
            return 0
        assert self._uploads is not None, "the first request opens the store"
        match request:
            case CrcOfFile(path, length):
                return await self._uploads.crc_of_file(path, length)
            case CrcOfRange(key, start, length, crc):
                return await self._uploads.crc_of_range(key, start, length, crc)
            case Put(key, data):
                await self._uploads.put(key, data)
            case PutFile(key, path):
                await self._uploads.put_file(key, path)
        return 0


def _open(settings: StoreSettings) -> Uploads:
    objects = open_store(settings, is_cached=False)
    return LocalUploads(objects, RealDisk(), ThreadWorker("upload"))


if __name__ == "__main__":
    serve(UploadChild().answer, int(sys.argv[1]))
