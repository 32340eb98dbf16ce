"""What a handler may answer: a message, chunks of bytes and file, both with a wish, or nothing.

A body of chunks is the response's body without its header, in wire order. A file slice is
sent from the page cache and never copied through Python; its file must stay open until it has
been sent, and a file that turns out shorter or closed costs the client its connection, since
the length of the frame has been announced by then.
"""

import enum
from collections.abc import Awaitable
from typing import Final, Protocol, TypeAlias

import msgspec

from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer
from ottla.runtime.ports import File


class FileSlice(Protocol):
    """Bytes of an open file: ``length`` of them from ``position``."""

    @property
    def file(self) -> File:
        """The file, open until the slice is sent."""
        ...

    @property
    def position(self) -> int:
        """The first byte."""
        ...

    @property
    def length(self) -> int:
        """How many bytes; never beyond the end of the file."""
        ...


class FileRange(msgspec.Struct, frozen=True):
    """The plainest `FileSlice`."""

    file: File
    position: int
    length: int


Chunk: TypeAlias = Buffer | FileSlice
Body: TypeAlias = Message | list[Chunk] | tuple[Chunk, ...]


class NoReply(enum.Enum):
    """The type of `NO_REPLY`, so that it can be told from a message."""

    NO_REPLY = "no reply"


NO_REPLY: Final = NoReply.NO_REPLY
"""The request wants no answer: Produce with acks=0."""


class Answer(msgspec.Struct, frozen=True):
    """A body with a wish to the connection.

    ``throttle_ms`` mutes the connection for so long once the reply is on its way (KIP-219);
    the body tells the client the same number. ``close`` ends the connection behind the reply,
    or, with ``NO_REPLY``, in place of one: how an acks=0 producer learns of an error.
    """

    body: Body | NoReply
    throttle_ms: int = 0
    close: bool = False


Result: TypeAlias = Body | NoReply | Answer
Reply: TypeAlias = Result | Awaitable[Result]


# A tuple: a union of types would be made anew at every look.
IN_MEMORY: Final = (bytes, bytearray, memoryview)


def is_file(chunk: Chunk) -> bool:
    """Say whether a chunk has to be fetched from a file."""
    return not isinstance(chunk, IN_MEMORY)


def length_of(chunk: Chunk) -> int:
    """Return the bytes a chunk will be on the wire."""
    if isinstance(chunk, memoryview):
        return chunk.nbytes
    return len(chunk) if isinstance(chunk, (bytes, bytearray)) else chunk.length
