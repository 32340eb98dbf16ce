"""Frames: splitting a byte stream, request headers, responses. No I/O.

    frame     length int32 > 0, then length bytes
    request   request header, body            (see `headers`)
    response  response header, body

`FrameSplitter` splits a stream into frames and never allocates more than an accepted length.
`parse_request_header` distinguishes a request, a request in an unsupported version (ApiVersions is
answered, any other closes the connection), and malformed bytes. `response_frame` encodes a reply.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import encode_into
from ottla.protocol.codec.primitives import skip_tags
from ottla.protocol.faults import ProtocolFault, UnsupportedVersion
from ottla.protocol.headers import (
    RequestHeader,
    request_header_version,
    response_header_version,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer

LENGTH_SIZE: Final = 4
# A larger buffer is released after this many frames that did not need it.
SMALL_FRAMES_MAX: Final = 16
# Similar frames differ a little in size: allocate a little more than the first one needed.
_GROWTH_BYTES: Final = 1 << 20
_LENGTH: Final = Struct(">i")
_REQUEST_HEAD: Final = Struct(">hhih")  # up to and including the length of the client id
_CORRELATION_ID: Final = Struct(">i")
# The supported APIs by key and version, and whether their header has tagged fields.
_SPOKEN: Final = {
    (int(key), version): (key, request_header_version(key, version) == 2)
    for key, api in APIS.items()
    for version in range(api.versions[0], api.versions[1] + 1)
}

# First bytes of other protocols, for a better error if a client uses the wrong port.
_HINTS: Final = (
    ((b"\x16\x03",), "looks like TLS"),
    ((b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN"), "looks like HTTP"),
    ((b"SSH-",), "looks like SSH"),
)


def frame_length(head: Buffer, size_max: int) -> int:
    """Return the length of the frame that begins with these 4 bytes, without them.

    Raises:
        ProtocolFault: zero, negative, or above ``size_max``.
    """
    (length,) = _LENGTH.unpack_from(head)
    if 0 < length <= size_max:
        return int(length)
    reason = f"frame of {length} bytes" + (f", limit {size_max}" if length > size_max else "")
    hint = _hint(bytes(head[:LENGTH_SIZE]))
    raise ProtocolFault(f"{reason} ({hint})" if hint else reason)


def _hint(head: bytes) -> str | None:
    return next((hint for starts, hint in _HINTS if head.startswith(starts)), None)


class FrameSplitter:
    """Cuts a byte stream into frames, in a buffer that it owns and reuses.

    A ``BufferedProtocol`` writes where `room` says, reports with `filled` and takes frames until
    `next_frame` has no more; only then may it ask for `room` again. ``need`` above zero means
    that there is no complete frame yet. `feed` does all of this for bytes in memory.

    The buffer doubles whenever it is full, up to the size of the frame: a claimed length costs no
    memory, only received bytes do. It is kept for the next frame: up to ``size_kept`` always, above
    that until `SMALL_FRAMES_MAX` frames did not need it. Frames are views into it, valid until
    `room` is called. After a fault a splitter is unusable: the start of the next frame is unknown.
    """

    def __init__(self, size_max: int, size_start: int = 16 << 10, size_kept: int = 2 << 20) -> None:
        assert size_start >= LENGTH_SIZE
        self._size_max = size_max
        self._size_start = size_start
        self._size_kept = size_kept
        self._view = memoryview(bytearray(size_start))
        self._start = 0  # of the current frame, including its length
        self._end = 0  # of what was received
        self._length: int | None = None  # of that frame, once known
        self._small_frames = 0  # in a row, below ``size_kept``

    @property
    def need(self) -> int:
        """Bytes missing until the next frame, or its length, is complete; 0 if it is."""
        return self._wanted() - (self._end - self._start)

    @property
    def is_between_frames(self) -> bool:
        """Return whether the stream could end here without truncating a frame."""
        return self._end == self._start

    def room(self) -> memoryview:
        """Return memory for the next bytes; never empty. Invalidates views of earlier frames."""
        assert self.need > 0, "take the frames that are there first"
        pending = self._view[self._start : self._end]
        is_full = self._end == len(self._view)
        if is_full or not pending or (self._start and self._is_beyond_view()):
            self._move_to_front(pending)
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Count bytes that were written into `room`."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its length, or None.

        Raises:
            ProtocolFault: the length of the next frame is invalid.
        """
        if self._length is None:
            if self._end - self._start < LENGTH_SIZE:
                return None
            head = self._view[self._start : self._start + LENGTH_SIZE]
            self._length = frame_length(head, self._size_max)
            self._small_frames += 1
            if self._length > self._size_kept:
                self._small_frames = 0
        start = self._start + LENGTH_SIZE
        stop = start + self._length
        if self._end < stop:
            return None
        self._start, self._length = stop, None
        return self._view[start:stop]

    @property
    def under_way(self) -> memoryview:
        """The received part of an incomplete frame, without its length; invalidated like frames."""
        if self._length is None:
            return self._view[:0]
        return self._view[self._start + LENGTH_SIZE : self._end]

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """Add bytes and yield the completed frames, each valid until the next one is requested.

        Raises:
            ProtocolFault: as `next_frame`; the frames before were yielded.
        """
        source = memoryview(data)
        while source:
            room = self.room()
            count = min(len(room), len(source))
            room[:count] = source[:count]
            source = source[count:]
            self.filled(count)
            while (frame := self.next_frame()) is not None:
                yield frame

    def release(self) -> None:
        """Release the memory of a large frame, unless one is incomplete; for an idle connection."""
        if self.is_between_frames and len(self._view) > self._size_start:
            self._view = memoryview(bytearray(self._size_start))
            self._start = self._end = 0

    def _wanted(self) -> int:
        return LENGTH_SIZE + (self._length or 0)

    def _is_beyond_view(self) -> bool:
        return self._start + self._wanted() > len(self._view)

    def _move_to_front(self, pending: memoryview) -> None:
        """Move the remaining bytes to the start of the buffer, or of a larger one if it is full."""
        fits = len(pending) < len(self._view)
        wanted = max(self._wanted(), self._size_start)
        if wanted > self._size_kept:
            wanted = min(-(-wanted // _GROWTH_BYTES) * _GROWTH_BYTES, LENGTH_SIZE + self._size_max)
        wanted = min(wanted, max(self._size_start, 2 * len(pending)))
        is_spare = len(self._view) > self._size_kept and self._small_frames > SMALL_FRAMES_MAX
        target = self._view if fits and not is_spare else memoryview(bytearray(wanted))
        target[: len(pending)] = pending
        self._view = target
        self._start, self._end = 0, len(pending)


# -- requests ----------------------------------------------------------------


class Request(NamedTuple):
    """A request with a decoded header; ``body`` is still encoded."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


class UnsupportedRequest(NamedTuple):
    """A request of a known API in an unsupported version.

    Only ApiVersions gets a reply, in version 0 with UNSUPPORTED_VERSION, which lists the supported
    versions. For any other key the connection is closed. The rest of the header is not read,
    since its form depends on the version.
    """

    key: ApiKey
    version: int
    correlation_id: int


def parse_request_header(frame: Buffer) -> Request | UnsupportedRequest:
    """Read the header of a request.

    Raises:
        ProtocolFault: too short, an unknown api key, or a header that does not fit the version.
    """
    view = memoryview(frame)
    if len(view) < _REQUEST_HEAD.size:
        raise ProtocolFault(f"request of {len(view)} bytes, shorter than any header")
    number, version, correlation_id, length = _REQUEST_HEAD.unpack_from(view)
    spoken = _SPOKEN.get((number, version))
    if spoken is None:
        try:
            return UnsupportedRequest(ApiKey(number), version, correlation_id)
        except ValueError:
            raise ProtocolFault(f"unknown api key {number}") from None
    key, has_tags = spoken
    client_id, position = _read_client_id(view, length)
    if has_tags:
        position = _skip_header_tags(view, position)
    return Request(key, version, correlation_id, client_id, view[position:])


def _read_client_id(view: memoryview, length: int) -> tuple[str | None, int]:
    start = _REQUEST_HEAD.size
    if length == -1:
        return None, start
    stop = start + length
    if length < 0 or stop > len(view):
        raise ProtocolFault(f"client id of {length} bytes in a frame of {len(view)}")
    try:
        return str(view[start:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise ProtocolFault("client id is not UTF-8") from error


def client_field(client_id: str | None) -> bytes:
    """Return a client id as encoded in a request header."""
    if client_id is None:
        return b"\xff\xff"
    encoded = client_id.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _skip_header_tags(view: memoryview, position: int) -> int:
    try:
        if not view[position]:  # no tags, as nearly always
            return position + 1
        return skip_tags(view, position, len(view))
    except IndexError:
        raise ProtocolFault("frame ends within its header") from None


def refuse_version(request: UnsupportedRequest) -> UnsupportedVersion:
    """Return the fault that closes the connection of a request in an unknown version."""
    return UnsupportedVersion(f"{request.key.title} v{request.version} is not supported")


def request_frame(header: RequestHeader, body: Message) -> bytearray:
    """Return the complete frame of a request; the header has the version of the body."""
    key = ApiKey(header.request_api_key)
    version = header.request_api_version
    out = bytearray(LENGTH_SIZE)
    encode_into(out, header, request_header_version(key, version))
    encode_into(out, body, version)
    _LENGTH.pack_into(out, 0, len(out) - LENGTH_SIZE)
    return out


# -- responses ---------------------------------------------------------------


def response_frame(key: ApiKey, version: int, correlation_id: int, body: Message) -> bytearray:
    """Return the complete frame of a response."""
    # By hand: length, correlation id, and for header v1 the count of tagged fields, none.
    out = bytearray(9 if response_header_version(key, version) else 8)
    _CORRELATION_ID.pack_into(out, LENGTH_SIZE, correlation_id)
    encode_into(out, body, version)
    _LENGTH.pack_into(out, 0, len(out) - LENGTH_SIZE)
    return out


def parse_response_header(key: ApiKey, version: int, frame: Buffer) -> tuple[int, memoryview]:
    """Return the correlation id of a response, and its body.

    Raises:
        ProtocolFault: the frame is shorter than its header.
    """
    view = memoryview(frame)
    if len(view) < _CORRELATION_ID.size:
        raise ProtocolFault(f"response of {len(view)} bytes, shorter than any header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(view)
    position = _CORRELATION_ID.size
    if response_header_version(key, version) == 1:
        position = _skip_header_tags(view, position)
    return correlation_id, view[position:]
