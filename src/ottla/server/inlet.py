"""The receive buffer of a connection: bytes come in, whole frames come out.

    buffer   | taken | frame under way ... | room for what comes next |
             0     start                  end                  len(buffer)

The kernel writes straight into `Inlet.room`, which is never empty; nothing is parsed until a
whole length, then a whole frame, is there. The buffer is `BUFFER_BYTES` and reused. For a larger
frame it doubles each time that it is full, up to the size of the frame: an announced length costs
no memory, only bytes that arrived do, and each is copied once on average. A buffer is kept for the
next frame if it is not too large. The buffer of a quiet connection is given up (`Inlet.let_go`), or
cut to the bytes of its unfinished frame.

A frame taken is a view into the buffer. It is good until the next `room`, or for ever after
`hand_over`, which makes the buffer the holder's and the connection begin another one.
"""

from typing import TYPE_CHECKING

from ottla.protocol.frames import LENGTH_SIZE, frame_length

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

BUFFER_BYTES = 64 * 1024
KEPT_BYTES_MAX = 1024 * 1024 + BUFFER_BYTES
"""A buffer up to this is kept for the next frame: room for a producer's ``max.request.size``."""


@cython.final
@cython.cclass
class Inlet:
    """Bytes received and not taken yet."""

    _buffer: bytearray
    _view: "memoryview[int]"
    _start: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _need: cython.Py_ssize_t

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._need = LENGTH_SIZE

    @property
    def buffer(self) -> bytearray:
        """What frames lie in, for who looks at one without taking it."""
        return self._buffer

    @property
    def is_partial(self) -> bool:
        """Say whether bytes were received that are not taken yet."""
        return self._end > self._start

    @property
    def frame_size(self) -> int:
        """The size of the frame under way, its length field included; 4 while that is unknown."""
        return self._need

    @property
    def wants_memory(self) -> bool:
        """Say whether the frame under way is larger than a standing buffer and not all there."""
        return self._need > BUFFER_BYTES and self._end - self._start < self._need

    def room(self) -> memoryview:
        """Return where to write what comes next; never empty."""
        size: cython.Py_ssize_t = len(self._buffer)
        if self._end == size or (self._start and self._start + self._need > size):
            self._make_room()
        return self._view[self._end :]

    def filled(self, count: int) -> bool:
        """Take note of ``count`` bytes in `room`; say whether there is anything to take."""
        self._end += count
        return self._end - self._start >= self._need

    def take(self, size_max: int) -> memoryview | None:
        """Return the next whole frame without its length, None where there is none yet.

        Raises:
            ProtocolFault: the length is zero, negative, or above ``size_max``.
        """
        if self._need == LENGTH_SIZE:
            if self._end - self._start < LENGTH_SIZE:
                return None
            head = self._view[self._start : self._start + LENGTH_SIZE]
            self._need = LENGTH_SIZE + frame_length(head, size_max)
        if self._end - self._start < self._need:
            return None
        frame = self._view[self._start + LENGTH_SIZE : self._start + self._need]
        self._start += self._need
        self._need = LENGTH_SIZE
        if self._start == self._end and len(self._buffer) <= KEPT_BYTES_MAX:
            self._start = self._end = 0
        return frame

    def only_frame(self, size_max: int) -> int:
        """Return where the one whole frame ends that is all there is; else 0. Takes nothing.

        It begins behind its length, at `LENGTH_SIZE`.
        """
        end = self._end
        if self._start or self._need != LENGTH_SIZE or end <= LENGTH_SIZE:
            return 0
        data = self._buffer
        length = data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3]
        return end if length == end - LENGTH_SIZE and length <= size_max else 0

    def take_all(self) -> None:
        """Take all that is there, whatever it is."""
        self._start = self._end = 0
        self._need = LENGTH_SIZE

    def hand_over(self) -> None:
        """Give the buffer to whoever holds views of it."""
        self._replace(0)

    def let_go(self) -> None:
        """Give up the buffer of a quiet connection, all but the bytes of an unfinished frame."""
        if len(self._buffer) > self._end - self._start:
            self._replace(0)

    def _make_room(self) -> None:
        pending = self._end - self._start
        if self._start and BUFFER_BYTES <= len(self._buffer) <= KEPT_BYTES_MAX:
            # Slices of one memoryview, moved as by memmove: overlapping is fine.
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending
        elif pending >= self._need:
            # Full of frames not taken yet, while the connection waits for its turn.
            self._replace(pending + BUFFER_BYTES)
        else:
            self._replace(max(BUFFER_BYTES, min(self._need, 2 * pending)))

    def _replace(self, size: int) -> None:
        pending = self._view[self._start : self._end]
        buffer = bytearray(max(size, len(pending)))
        buffer[: len(pending)] = pending
        self._start, self._end = 0, len(pending)
        self._buffer, self._view = buffer, memoryview(buffer)
