"""The receive buffer of a connection: bytes in, whole frames out.

    buffer   | taken | current frame ... | free space |
             0     start                end     len(buffer)

The kernel writes straight into `ReceiveBuffer.room`, which is never empty. Nothing is parsed before
a whole length field, and then a whole frame, has been received.

The buffer has `FIRST_BYTES`, and `BUFFER_BYTES` once it has been full: thousands of connections
with small requests take little memory, and one with larger requests needs one more read. It is
reused. For a larger frame it doubles each time it is full, up to the size of the frame: only bytes
that were received take memory, not an announced length, and each byte is copied once on average. A
buffer up to `KEPT_BYTES_MAX` is kept for the next frame. An idle connection releases its buffer, or
shrinks it to the bytes of an incomplete frame (`ReceiveBuffer.release`), and begins again with
`FIRST_BYTES`.

A frame is a view into the buffer. It stays valid until the next call of `room`, or indefinitely
after `hand_over`, which leaves the buffer to the holder of the view and allocates another one.
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

FIRST_BYTES = 4 * 1024
BUFFER_BYTES = 64 * 1024
API_KEY_SIZE = 2
KEPT_BYTES_MAX = 1024 * 1024 + BUFFER_BYTES
"""A buffer up to this is kept for the next frame: room for a producer's ``max.request.size``."""


@cython.final
@cython.cclass
class ReceiveBuffer:
    """Bytes that were received and not taken yet."""

    _buffer: bytearray
    _view: "memoryview[int]"
    _start: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _need: cython.Py_ssize_t
    _standard: cython.Py_ssize_t

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._need = LENGTH_SIZE
        self._standard = FIRST_BYTES

    @property
    def buffer(self) -> bytearray:
        """The underlying buffer, for callers that inspect a frame without taking it."""
        return self._buffer

    @property
    def start(self) -> int:
        """Where the current frame starts in the buffer, with its length field."""
        return self._start

    @property
    def is_partial(self) -> bool:
        """Say whether there are bytes that were not taken yet."""
        return self._end > self._start

    @property
    def frame_size(self) -> int:
        """The size of the current frame with its length field; 4 until the length is known."""
        return self._need

    def wants_memory(self, free_bytes: int) -> bool:
        """Say whether the current frame exceeds ``free_bytes`` and is incomplete."""
        return self._need > free_bytes and self._end - self._start < self._need

    def room(self) -> memoryview:
        """Return the free space to write received bytes into; never empty."""
        size: cython.Py_ssize_t = len(self._buffer)
        if self._end == size or (self._start and self._start + self._need > size):
            self._make_room()
        return self._view[self._end :]

    def filled(self, count: int) -> bool:
        """Add ``count`` bytes that were written into `room`; say whether `take` has work to do."""
        self._end += count
        return self._end - self._start >= self._need

    def take(self, size_max: int) -> memoryview | None:
        """Return the next whole frame without its length field, None if it is incomplete.

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
        """Return the end of the frame if the buffer holds exactly one whole frame, else 0.

        The frame is not taken. It starts at `LENGTH_SIZE`, after its length field.
        """
        end = self._end
        if self._start or self._need != LENGTH_SIZE or end <= LENGTH_SIZE:
            return 0
        data = self._buffer
        length = data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3]
        return end if length == end - LENGTH_SIZE and length <= size_max else 0

    def next_frame(self, size_max: int) -> int:
        """Return the end of the next frame if it is whole and can hold an API key, else 0.

        The frame is not taken. Without its length field it starts at ``start + LENGTH_SIZE``.
        """
        start: cython.Py_ssize_t = self._start
        if self._end - start <= LENGTH_SIZE:
            return 0
        data = self._buffer
        length: cython.Py_ssize_t = (
            data[start] << 24 | data[start + 1] << 16 | data[start + 2] << 8 | data[start + 3]
        )
        end: cython.Py_ssize_t = start + LENGTH_SIZE + length
        return end if API_KEY_SIZE <= length <= size_max and end <= self._end else 0

    def take_until(self, end: int) -> None:
        """Take the bytes before ``end``, where a frame ends."""
        self._start = end
        self._need = LENGTH_SIZE
        if self._start == self._end and len(self._buffer) <= KEPT_BYTES_MAX:
            self._start = self._end = 0

    def hand_over(self) -> None:
        """Leave the buffer to the holders of views and continue with another one."""
        self._replace(0)

    def release(self) -> None:
        """Release the buffer of an idle connection, except the bytes of an incomplete frame."""
        self._standard = FIRST_BYTES
        if len(self._buffer) > self._end - self._start:
            self._replace(0)

    def close(self) -> None:
        """Free the buffer of a closed connection. Views that were handed over stay valid."""
        self._start = self._end = 0
        self._need = LENGTH_SIZE
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)

    def _make_room(self) -> None:
        pending = self._end - self._start
        size: cython.Py_ssize_t = len(self._buffer)
        if size and self._end == size:
            self._standard = BUFFER_BYTES
        if self._start and self._standard <= size <= KEPT_BYTES_MAX:
            # Slices of one memoryview are moved as by memmove, so they may overlap.
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending
        elif pending >= self._need:
            # Full of frames not taken yet, while the connection waits in the scheduler.
            self._replace(pending + self._standard)
        else:
            self._replace(max(self._standard, min(self._need, 2 * pending)))

    def _replace(self, size: int) -> None:
        pending = self._view[self._start : self._end]
        buffer = bytearray(max(size, len(pending)))
        buffer[: len(pending)] = pending
        self._start, self._end = 0, len(pending)
        self._buffer, self._view = buffer, memoryview(buffer)
