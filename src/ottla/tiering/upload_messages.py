"""The messages between a broker and its upload process. Pure."""

import errno

import msgspec

from ottla.runtime.ports import NewObject
from ottla.tiering.store_settings import StoreSettings


class OpenStore(msgspec.Struct, frozen=True, tag="open"):
    """Use this store; the first request. Secrets are sent, never put on a command line.

    ``is_paced``: rest after each step as long as it took.
    """

    settings: StoreSettings
    is_paced: bool = False


class CrcOfFile(msgspec.Struct, frozen=True, tag="crc-of-file"):
    """`Uploads.crc_of_file`."""

    path: str
    length: int


class PutGroup(msgspec.Struct, frozen=True, tag="put-group"):
    """`Uploads.put_group`."""

    objects: tuple[NewObject, ...]


class CrcOfRange(msgspec.Struct, frozen=True, tag="crc-of-range"):
    """`Uploads.crc_of_range`."""

    key: str
    start: int
    length: int
    crc: int


UploadRequest = OpenStore | CrcOfFile | PutGroup | CrcOfRange


class UploadReply(msgspec.Struct, frozen=True):
    """The checksum, if one was asked for, or an error of the operating system."""

    crc: int = 0
    errno: int = 0
    text: str = ""
    name: str = ""

    def result(self) -> int:
        """Return the checksum.

        Raises:
            OSError: the subclass that belongs to the number, as in the other process.
        """
        if self.errno:
            raise OSError(self.errno, self.text, self.name)
        return self.crc


def failed(error: OSError) -> UploadReply:
    """Return the reply that raises ``error`` in the other process."""
    text = error.strerror or str(error) or type(error).__name__
    return UploadReply(0, error.errno or errno.EIO, text, str(error.filename or ""))


encode = msgspec.msgpack.Encoder().encode
_requests: "msgspec.msgpack.Decoder[UploadRequest]" = msgspec.msgpack.Decoder(UploadRequest)
_replies = msgspec.msgpack.Decoder(UploadReply)


def decode_request(data: bytes) -> UploadRequest:
    """Return a request."""
    return _requests.decode(data)


def decode_reply(data: bytes) -> UploadReply:
    """Return a reply."""
    return _replies.decode(data)
