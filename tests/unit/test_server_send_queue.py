"""The send queue of a socket: system calls per reply, and slices that cannot be read."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.patience import SECONDS_MAX

from ottla.runtime import system_calls
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import File, OpenMode
from ottla.server.send_queue import (
    BUFFERS_MAX,
    PIECE_BYTES,
    READ_BYTES_MAX,
    SEND_BYTES_MAX,
    SendQueueEvents,
    SocketSendQueue,
    TransportSendQueue,
)


class Slice(NamedTuple):
    """Part of a file."""

    file: File
    position: int
    length: int


class PlainTransport:
    """The transport of a socket, as far as a send queue uses it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> object:
        return self._sock if name == "socket" else None

    def is_closing(self) -> bool:
        return False


class Calls:
    """Counts system calls by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for module, name in ((os, "write"), (os, "writev"), (system_calls, "send_file")):
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def _counted(self, name: str, call: object) -> object:
        def counted(*args: object) -> object:
            self.made.append(name)
            return call(*args)  # type: ignore[operator]

        return counted


@contextmanager
def connected() -> Iterator[tuple[SocketSendQueue, socket.socket, list[OSError]]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(SECONDS_MAX)
    loop = asyncio.new_event_loop()
    errors: list[OSError] = []
    events = SendQueueEvents(lambda: None, errors.append)
    queue = SocketSendQueue(loop, PlainTransport(ours), events)  # type: ignore[arg-type]
    try:
        yield queue, theirs, errors
    finally:
        queue.close()
        loop.close()
        ours.close()
        theirs.close()


def file_of(folder: Path, data: bytes) -> File:
    file = RealDisk().open(str(folder / "segment"), OpenMode.CREATE)
    file.pwrite(data, 0)
    return file


def received(peer: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        found += peer.recv(size - len(found))
    return bytes(found)


def test_reply_with_a_small_slice_is_one_system_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(tmp_path, b"-" * 10 + b"records" + b"-" * 10)
    with connected() as (queue, peer, errors):
        calls = Calls(monkeypatch)
        queue.push([b"head", bytearray(b"fields"), Slice(file, 10, 7), bytearray(b"end")])
        queue.flush()
        assert calls.made == ["writev"]
        assert received(peer, 20) == b"headfieldsrecordsend"
        assert queue.is_empty
        assert not errors


def test_large_slice_is_sent_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(READ_BYTES_MAX + 1)
    file = file_of(tmp_path, data)
    with connected() as (queue, peer, _):
        calls = Calls(monkeypatch)
        queue.push([b"head", Slice(file, 0, len(data)), b"end"])
        queue.flush()
        assert "send_file" in calls.made
        assert received(peer, len(data) + 7) == b"head" + data + b"end"


def test_many_small_slices_are_read_within_a_bound(tmp_path: Path) -> None:
    piece = READ_BYTES_MAX
    count = 3 * PIECE_BYTES // piece
    data = os.urandom(count * piece)
    file = file_of(tmp_path, data)
    with connected() as (queue, peer, _):
        chunks = [Slice(file, at * piece, piece) for at in range(count)]
        queue.push(chunks)
        read = queue._queue.buffers()
        assert sum(map(len, read)) == PIECE_BYTES
        assert queue.pending == len(data)
        queue.push([b"x"] * (BUFFERS_MAX + 5))
        found = bytearray()
        peer.setblocking(False)
        while len(found) < len(data) + BUFFERS_MAX + 5:
            queue._send()
            with_more = peer.recv(1 << 20)
            found += with_more
        assert found == data + b"x" * (BUFFERS_MAX + 5)


def test_slice_beyond_the_end_of_its_file_fails_the_connection(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"short")
    with connected() as (queue, _, errors):
        queue.push([b"head", Slice(file, 0, 100), b"end"])
        queue.flush()
        assert [type(error).__name__ for error in errors] == ["FileShort"]


def test_transport_gets_a_small_reply_in_one_write(tmp_path: Path) -> None:
    written: list[bytes] = []

    class Encrypting:
        """A transport that collects what is written."""

        def set_write_buffer_limits(self, high: int) -> None: ...

        def write(self, data: bytes) -> None:
            written.append(bytes(data))

        def get_write_buffer_size(self) -> int:
            return 0

    events = SendQueueEvents(lambda: None, lambda error: None)
    queue = TransportSendQueue(Encrypting(), events)  # type: ignore[arg-type]
    queue.push([b"head", Slice(file_of(tmp_path, b"records"), 0, 7), b"end"])
    queue.flush()
    assert written == [b"headrecordsend"]
    assert queue.is_empty


def test_transport_gets_a_large_reply_in_pieces_and_in_several_turns() -> None:
    """A transport encrypts all that it gets in one turn of the event loop."""
    turns: list[list[int]] = [[]]
    data = bytearray(SEND_BYTES_MAX + 3 * PIECE_BYTES)

    class Encrypting:
        """A transport whose peer reads as fast as it writes."""

        def set_write_buffer_limits(self, high: int) -> None: ...

        def write(self, data: bytes) -> None:
            turns[-1].append(len(data))

        def get_write_buffer_size(self) -> int:
            return 0

    async def body() -> None:
        events = SendQueueEvents(lambda: None, lambda error: None)
        queue = TransportSendQueue(Encrypting(), events)  # type: ignore[arg-type]
        assert not queue.send(data)
        queue.flush()  # does not send more in the same turn
        while not queue.is_empty:
            turns.append([])
            await asyncio.sleep(0)

    asyncio.run(body())
    sizes = [size for turn in turns for size in turn]
    assert sum(sizes) == len(data) and max(sizes) <= PIECE_BYTES
    assert max(map(sum, turns)) <= SEND_BYTES_MAX
