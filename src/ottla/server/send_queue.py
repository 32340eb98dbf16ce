"""The write side of a connection. It has one owner, so no reply can land inside another.

`SocketSendQueue` writes to the socket itself: buffers gathered in one call, file slices by
``sendfile``, straight from the page cache. Where there is no plain socket (TLS, the simulator)
`TransportSendQueue` reads slices piece by piece and writes them through the transport. Both
send the same bytes and hold none back: what the peer does not take yet stays queued here, and
whoever fills the queue looks at `SendQueue.pending` first.
"""

import asyncio
import io
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from ottla.api.replies import Chunk, FileSlice, length_of
from ottla.protocol.types import Buffer

# Buffers given to the kernel in one call; far below its own limit of 1024.
BUFFERS_MAX: Final = 64
# What one connection may send before others get their turn.
SEND_BYTES_MAX: Final = 4 * 1024 * 1024
# A piece of a file that goes through Python.
PIECE_BYTES: Final = 128 * 1024


class FileShort(OSError):
    """A file ended, or was closed, before the slice that was announced had been sent."""


class SendQueueEvents(msgspec.Struct, frozen=True):
    """Whom an send_queue tells: of bytes that left, and of an error that ends the connection."""

    progress: Callable[[], None]
    failed: Callable[[OSError], None]


class SendQueue(Protocol):
    """Bytes on their way out, in order."""

    @property
    def pending(self) -> int:
        """Bytes that the peer's machine has not been given yet, file slices included."""
        ...

    @property
    def is_empty(self) -> bool:
        """Say whether closing the transport now loses nothing of what was pushed."""
        ...

    def push(self, chunks: Sequence[Chunk]) -> None:
        """Queue a reply behind those before it. Nothing is sent before `flush`."""
        ...

    def flush(self) -> None:
        """Send as much as the peer takes now; the rest follows by itself."""
        ...

    def send(self, reply: bytearray) -> bool:
        """Send a reply behind which nothing is queued; say whether all of it has left.

        Progress is not told where it has.
        """
        ...

    def pause(self) -> None:
        """Take note that the transport has enough."""
        ...

    def resume(self) -> None:
        """Take note that the transport wants more."""
        ...

    def close(self) -> None:
        """Drop what is queued and touch the socket no more."""
        ...


class _Range(msgspec.Struct):
    """A file slice of which a part may have been sent."""

    slice: FileSlice
    position: int
    length: int

    def advance(self, count: int) -> None:
        self.position += count
        self.length -= count

    def read_piece(self) -> bytes:
        piece = self.slice.file.pread(min(self.length, PIECE_BYTES), self.position)
        if not piece:
            raise self.too_short()
        return piece

    def too_short(self) -> FileShort:
        return FileShort(f"{self.slice.file.path} ends before {self.position}")


class _Queue:
    """Chunks to send, the first of them possibly begun."""

    def __init__(self) -> None:
        self.items: deque[Buffer | _Range] = deque()
        self.size = 0
        self.files = 0

    def push(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            length = length_of(chunk)
            if not length:
                continue
            self.size += length
            if isinstance(chunk, (bytes, bytearray)):
                self.items.append(chunk)
            elif isinstance(chunk, memoryview):
                self.items.append(chunk.cast("B"))
            else:
                self.items.append(_Range(chunk, chunk.position, length))
                self.files += 1

    def buffers(self) -> list[Buffer]:
        """Return the buffers up to the next file slice, at most `BUFFERS_MAX`."""
        if not self.files and len(self.items) <= BUFFERS_MAX:
            return list(self.items)  # type: ignore[arg-type]
        found: list[Buffer] = []
        for item in self.items:
            if isinstance(item, _Range) or len(found) == BUFFERS_MAX:
                break
            found.append(item)
        return found

    def drop(self, count: int) -> None:
        """Remove bytes that were sent."""
        if count == self.size:
            self.clear()
            return
        self.size -= count
        while count:
            item = self.items[0]
            is_range = isinstance(item, _Range)
            length = item.length if isinstance(item, _Range) else len(item)
            if length <= count:
                self.items.popleft()
                self.files -= is_range
            elif isinstance(item, _Range):
                item.advance(count)
            else:
                self.items[0] = memoryview(item)[count:]
            count -= min(count, length)

    def clear(self) -> None:
        self.items.clear()
        self.size = self.files = 0


class SocketSendQueue:
    """`SendQueue` on a plain, non-blocking socket that a transport owns and only reads from.

    The transport's own descriptor serves for writing buffers. Waiting for room and ``sendfile``
    need one that the loop does not know as a transport's: it is duplicated then, and only then,
    so that a connection which never fetches costs one descriptor.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, events: SendQueueEvents
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._events = events
        self._queue = _Queue()
        self._own: socket.socket | None = None
        self._is_waiting = False
        self._is_closed = False

    @property
    def pending(self) -> int:
        """Bytes not yet handed to the kernel."""
        return self._queue.size

    @property
    def is_empty(self) -> bool:
        """Say whether all was handed to the kernel."""
        return not self._queue.items

    def push(self, chunks: Sequence[Chunk]) -> None:
        """Queue a reply."""
        self._queue.push(chunks)

    def flush(self) -> None:
        """Send until the socket is full or it is somebody else's turn."""
        if not self._is_waiting and self._queue.items:
            self._send()

    def send(self, reply: bytearray) -> bool:
        """Send a reply now, from where it lies, unless something waits to be sent before it."""
        if not self._queue.items and not self._is_closed and not self._transport.is_closing():
            try:
                sent = os.write(self._fd, reply)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._events.failed(error)
                return False
            if sent == len(reply):
                return True
            reply = reply[sent:]
        self._queue.push((reply,))
        self.flush()
        return False

    def pause(self) -> None:
        """Nothing: the transport is never written to."""

    def resume(self) -> None:
        """Nothing: the transport is never written to."""

    def close(self) -> None:
        """Drop what is queued; the duplicate must go, or the peer would never see the end."""
        self._is_closed = True
        self._queue.clear()
        if self._own is not None:
            self._wait(False)
            self._own.close()
            self._own = None

    def _send(self) -> None:
        # A transport that closes may give its descriptor's number away at any moment.
        if self._is_closed or self._transport.is_closing():
            return
        turn = SEND_BYTES_MAX
        try:
            while self._queue.items and turn > 0:
                sent = self._send_some()
                self._queue.drop(sent)
                turn -= sent
        except BlockingIOError:
            pass
        except OSError as error:
            self._events.failed(error)
            return
        self._wait(bool(self._queue.items))
        if turn < SEND_BYTES_MAX:
            self._events.progress()

    def _send_some(self) -> int:
        items = self._queue.items
        item = items[0]
        if isinstance(item, _Range):
            return self._send_file(item)
        if len(items) == 1 and self._own is None:
            return os.write(self._fd, item)
        buffers = self._queue.buffers()
        if self._own is None and len(buffers) == len(self._queue.items):
            return os.writev(self._fd, buffers)
        # More follows: let the kernel fill the packet instead of sending a header by itself.
        more = socket.MSG_MORE if len(buffers) < len(self._queue.items) else 0
        return self._duplicate().sendmsg(buffers, (), more)

    def _send_file(self, item: _Range) -> int:
        out = self._duplicate()
        try:
            source = item.slice.file.fileno()
        except io.UnsupportedOperation:
            return out.send(item.read_piece())
        sent = os.sendfile(out.fileno(), source, item.position, item.length)
        if sent == 0:
            raise item.too_short()
        return sent

    def _duplicate(self) -> socket.socket:
        if self._own is None:
            self._own = socket.socket(fileno=os.dup(self._fd))
            self._own.setblocking(False)
        return self._own

    def _wait(self, wanted: bool) -> None:
        if wanted == self._is_waiting:
            return
        self._is_waiting = wanted
        if wanted:
            self._loop.add_writer(self._duplicate().fileno(), self._send)
        else:
            self._loop.remove_writer(self._duplicate().fileno())


class TransportSendQueue:
    """`SendQueue` through a transport that is more than a socket. Files are read in pieces."""

    def __init__(self, transport: asyncio.Transport, events: SendQueueEvents) -> None:
        self._transport = transport
        self._events = events
        self._queue = _Queue()
        self._is_full = False
        self._is_closed = False
        transport.set_write_buffer_limits(high=PIECE_BYTES)

    @property
    def pending(self) -> int:
        """Bytes queued here or in the transport."""
        return self._queue.size + self._transport.get_write_buffer_size()

    @property
    def is_empty(self) -> bool:
        """Say whether all was handed to the transport, which sends it before it closes."""
        return not self._queue.items

    def push(self, chunks: Sequence[Chunk]) -> None:
        """Queue a reply."""
        self._queue.push(chunks)

    def flush(self) -> None:
        """Write until the transport has enough."""
        if self._queue.items and not self._is_full:
            self._write()

    def send(self, reply: bytearray) -> bool:
        """Send a reply as any other."""
        self._queue.push((reply,))
        self.flush()
        return False

    def _write(self) -> None:
        try:
            while self._queue.items and not self._is_full and not self._is_closed:
                piece = self._next_piece()
                self._queue.drop(len(piece))
                self._transport.write(piece)
        except OSError as error:
            self._events.failed(error)
            return
        self._events.progress()

    def pause(self) -> None:
        """The transport has more than it can send: wait."""
        self._is_full = True

    def resume(self) -> None:
        """The transport has sent it: go on."""
        self._is_full = False
        self._write()

    def close(self) -> None:
        """Drop what is queued."""
        self._is_closed = True
        self._queue.clear()

    def _next_piece(self) -> Buffer:
        item = self._queue.items[0]
        if isinstance(item, _Range):
            return item.read_piece()
        buffers = self._queue.buffers()
        if sum(map(len, buffers)) > PIECE_BYTES:
            return item
        return b"".join(buffers)


def send_queue_for(
    loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, events: SendQueueEvents
) -> SendQueue:
    """Return the send_queue that fits a transport."""
    plain = transport.get_extra_info("socket") is not None
    if plain and transport.get_extra_info("sslcontext") is None:
        return SocketSendQueue(loop, transport, events)
    return TransportSendQueue(transport, events)
