"""The send queue of a connection. All replies pass through it, so they cannot interleave.

`SocketSendQueue` writes to the socket itself: several buffers in one call, file slices by
``sendfile``, straight from the page cache. Small slices are read and sent together with the buffers
around them: a reply with a few records is then one system call, not three. Without a plain socket
(TLS, the simulator) `TransportSendQueue` reads all slices, large ones piece by piece, and writes
them to the transport. Both send the same bytes as soon as possible. Bytes that the peer does not
accept yet stay queued here; the connection checks `SendQueue.pending` before it queues more.
"""

import asyncio
import io
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from ottla.api.surface.replies import Chunk, FileSlice, length_of
from ottla.protocol.types import Buffer
from ottla.runtime import system_calls
from ottla.server.closed_transport import CLOSED_TRANSPORT

# Buffers passed to the kernel in one call; far below its own limit of 1024.
BUFFERS_MAX: Final = 64
# Bytes that one connection may send before other connections are served.
SEND_BYTES_MAX: Final = 4 * 1024 * 1024
# Bytes of a file that are read at once if they pass through Python.
PIECE_BYTES: Final = 128 * 1024
# A file slice up to this length is read into memory: copying it twice costs less than `sendfile`
# and the calls before and after it.
READ_BYTES_MAX: Final = 32 * 1024


class FileShort(OSError):
    """A file ended, or was closed, before its announced slice was sent."""


class SendQueueEvents(msgspec.Struct, frozen=True):
    """Callbacks: bytes were sent; an error ends the connection."""

    progress: Callable[[], None]
    failed: Callable[[OSError], None]


_NO_EVENTS: Final = SendQueueEvents(lambda: None, lambda _: None)
"""Of a closed queue, which must not refer to its connection any more."""


class SendQueue(Protocol):
    """Bytes to be sent, in order."""

    @property
    def pending(self) -> int:
        """Bytes not handed to the kernel yet, file slices included."""
        ...

    @property
    def queued(self) -> int:
        """Bytes of `pending` whose sending `SendQueueEvents.progress` will report."""
        ...

    @property
    def is_empty(self) -> bool:
        """Say whether closing the transport now would lose nothing that was pushed."""
        ...

    def push(self, chunks: Sequence[Chunk]) -> None:
        """Queue a reply after earlier ones. Nothing is sent before `flush`."""
        ...

    def flush(self) -> None:
        """Send as much as the peer accepts now; the rest is sent automatically."""
        ...

    def send(self, reply: bytearray) -> bool:
        """Send a reply at once if nothing is queued; say whether all of it was sent.

        If so, ``progress`` is not called.
        """
        ...

    def pause(self) -> None:
        """Handle `asyncio.BaseProtocol.pause_writing`."""
        ...

    def resume(self) -> None:
        """Handle `asyncio.BaseProtocol.resume_writing`."""
        ...

    def close(self) -> None:
        """Drop what is queued and do not use the socket any more."""
        ...


class _Range(msgspec.Struct):
    """A file slice, possibly sent in part."""

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

    def read(self) -> bytes | None:
        """Return all of a small slice; None if it is large, or cannot be read as a whole.

        What is wrong with the file is found by sending the slice in the usual way.
        """
        if self.length > READ_BYTES_MAX:
            return None
        try:
            data = self.slice.file.pread(self.length, self.position)
        except OSError:
            return None
        return data if len(data) == self.length else None

    def too_short(self) -> FileShort:
        return FileShort(f"{self.slice.file.path} ends before {self.position}")


class _ChunkQueue:
    """Chunks to send; the first one may have been sent in part."""

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
        """Return the buffers up to the next large file slice, at most `BUFFERS_MAX`.

        Small slices before it are read, and replaced by their bytes. The memory for them is
        bounded: reading ends after `PIECE_BYTES`.
        """
        items = self.items
        if not self.files and len(items) <= BUFFERS_MAX:
            return list(items)  # type: ignore[arg-type]
        found: list[Buffer] = []
        size = 0
        for at in range(min(len(items), BUFFERS_MAX)):
            item = items[at]
            if isinstance(item, _Range):
                data = item.read() if size < PIECE_BYTES else None
                if data is None:
                    break
                items[at] = item = data
                self.files -= 1
                size += len(data)
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
    """`SendQueue` on a plain, non-blocking socket whose transport is used only for reading.

    Buffers are written to the transport's own descriptor. Waiting for writability and ``sendfile``
    need a descriptor that does not belong to a transport of the loop. Only then it is duplicated,
    so that a connection that never fetches costs one descriptor.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, events: SendQueueEvents
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._events = events
        self._queue = _ChunkQueue()
        self._duplicate_socket: socket.socket | None = None
        self._is_waiting = False
        self._is_closed = False

    @property
    def pending(self) -> int:
        """Bytes not yet handed to the kernel."""
        return self._queue.size

    @property
    def queued(self) -> int:
        """The same: progress is reported down to the last byte."""
        return self._queue.size

    @property
    def is_empty(self) -> bool:
        """Say whether everything was handed to the kernel."""
        return not self._queue.items

    def push(self, chunks: Sequence[Chunk]) -> None:
        """Queue a reply."""
        self._queue.push(chunks)

    def flush(self) -> None:
        """Send until the socket buffer is full or `SEND_BYTES_MAX` were sent."""
        if not self._is_waiting and self._queue.items:
            self._send()

    def send(self, reply: bytearray) -> bool:
        """Send a reply without copying it, unless earlier bytes are queued."""
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
        """Do nothing: the transport is never written to."""

    def resume(self) -> None:
        """Do nothing: the transport is never written to."""

    def close(self) -> None:
        """Drop what is queued and close the duplicate, which would keep the connection open."""
        self._is_closed = True
        self._events, self._transport = _NO_EVENTS, CLOSED_TRANSPORT
        self._queue.clear()
        if self._duplicate_socket is not None:
            self._wait(False)
            self._duplicate_socket.close()
            self._duplicate_socket = None

    def _send(self) -> None:
        # The descriptor number of a closing transport may be reused at any moment.
        if self._is_closed or self._transport.is_closing():
            return
        left = SEND_BYTES_MAX
        try:
            while self._queue.items and left > 0:
                sent = self._send_some()
                self._queue.drop(sent)
                left -= sent
        except BlockingIOError:
            pass
        except OSError as error:
            self._events.failed(error)
            return
        self._wait(bool(self._queue.items))
        if left < SEND_BYTES_MAX:
            self._events.progress()

    def _send_some(self) -> int:
        items = self._queue.items
        item = items[0]
        if len(items) == 1 and self._duplicate_socket is None and not isinstance(item, _Range):
            return os.write(self._fd, item)
        buffers = self._queue.buffers()
        if not buffers:
            assert isinstance(item, _Range)
            return self._send_file(item)
        if self._duplicate_socket is None and len(buffers) == len(self._queue.items):
            return system_calls.write_buffers(self._fd, buffers)
        # More follows: let the kernel fill the packet instead of sending a header by itself.
        more = system_calls.MORE_FOLLOWS if len(buffers) < len(self._queue.items) else 0
        return self._duplicate().sendmsg(buffers, (), more)

    def _send_file(self, item: _Range) -> int:
        out, send_file = self._duplicate(), system_calls.send_file
        try:
            source = item.slice.file.fileno()
        except io.UnsupportedOperation:
            return out.send(item.read_piece())
        if send_file is None:
            return out.send(item.read_piece())
        sent = send_file(out.fileno(), source, item.position, item.length)
        if sent == 0:
            raise item.too_short()
        return sent

    def _duplicate(self) -> socket.socket:
        if self._duplicate_socket is None:
            original = self._transport.get_extra_info("socket")
            self._duplicate_socket = system_calls.duplicate_socket(original)
            self._duplicate_socket.setblocking(False)
        return self._duplicate_socket

    def _wait(self, wanted: bool) -> None:
        if wanted == self._is_waiting:
            return
        self._is_waiting = wanted
        if wanted:
            self._loop.add_writer(self._duplicate().fileno(), self._send)
        else:
            self._loop.remove_writer(self._duplicate().fileno())


class TransportSendQueue:
    """`SendQueue` through a transport, for TLS and the simulator. Files are read in pieces."""

    def __init__(self, transport: asyncio.Transport, events: SendQueueEvents) -> None:
        self._transport = transport
        self._events = events
        self._queue = _ChunkQueue()
        self._is_full = False
        self._is_scheduled = False
        self._is_closed = False
        transport.set_write_buffer_limits(high=PIECE_BYTES)

    @property
    def pending(self) -> int:
        """Bytes queued here or in the transport."""
        return self._queue.size + self._transport.get_write_buffer_size()

    @property
    def queued(self) -> int:
        """Bytes queued here. The transport does not say when its own buffer is empty."""
        return self._queue.size

    @property
    def is_empty(self) -> bool:
        """Say whether everything was handed to the transport, which sends it before closing."""
        return not self._queue.items

    def push(self, chunks: Sequence[Chunk]) -> None:
        """Queue a reply."""
        self._queue.push(chunks)

    def flush(self) -> None:
        """Write until the buffer of the transport is full or `SEND_BYTES_MAX` were written."""
        if self._queue.items and not self._is_full and not self._is_scheduled:
            self._write()

    def send(self, reply: bytearray) -> bool:
        """Write a reply at once, unless earlier bytes are queued."""
        is_free = not (self._queue.items or self._is_full or self._is_closed)
        if is_free and len(reply) <= PIECE_BYTES:
            self._transport.write(reply)
            return True
        self._queue.push((reply,))
        self.flush()
        return False

    def _write(self) -> None:
        self._is_scheduled = False
        left = SEND_BYTES_MAX
        try:
            while self._queue.items and not self._is_full and not self._is_closed and left > 0:
                piece = self._next_piece()
                self._queue.drop(len(piece))
                self._transport.write(piece)
                left -= len(piece)
        except OSError as error:
            self._events.failed(error)
            return
        if left <= 0 and self._queue.items and not self._is_full:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_more)
        self._events.progress()

    def _write_more(self) -> None:
        """Continue after other callbacks of the event loop."""
        if self._is_scheduled and not self._is_full:
            self._write()

    def pause(self) -> None:
        """Stop writing: the buffer of the transport is full."""
        self._is_full = True

    def resume(self) -> None:
        """Continue writing."""
        self._is_full = False
        self._write()

    def close(self) -> None:
        """Drop what is queued."""
        self._is_closed = True
        self._events, self._transport = _NO_EVENTS, CLOSED_TRANSPORT
        self._queue.clear()

    def _next_piece(self) -> Buffer:
        buffers = self._queue.buffers()
        item = self._queue.items[0]
        if isinstance(item, _Range):
            return item.read_piece()
        if sum(map(len, buffers)) > PIECE_BYTES:
            # A transport encrypts what it gets in one turn, even if its buffer is full.
            return memoryview(item)[:PIECE_BYTES]
        return b"".join(buffers)


def send_queue_for(
    loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, events: SendQueueEvents
) -> SendQueue:
    """Return the send queue that fits a transport."""
    is_plain = system_calls.IS_POSIX and transport.get_extra_info("socket") is not None
    if is_plain and transport.get_extra_info("sslcontext") is None:
        return SocketSendQueue(loop, transport, events)
    return TransportSendQueue(transport, events)
