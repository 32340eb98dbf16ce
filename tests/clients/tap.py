"""A wire tap: carries bytes between clients and a broker, and notes which requests went by.

    request    size int32 | api key int16 | version int16 | correlation id int32 | ...

Only what a client sends is looked at, and only these 8 bytes of each frame.
"""

import asyncio
import struct
from collections import Counter
from contextlib import closing, suppress

HEADER = struct.Struct(">ihh")
SIZE_BYTES = 4
CHUNK_BYTES = 256 * 1024


class FrameNotes:
    """Finds request headers in a stream of bytes."""

    def __init__(self) -> None:
        self._skip = 0
        self._head = b""

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Return api key and version of every request that begins in ``data``."""
        found = []
        position = 0
        while position < len(data):
            if self._skip:
                step = min(self._skip, len(data) - position)
                self._skip -= step
                position += step
                continue
            step = HEADER.size - len(self._head)
            self._head += data[position : position + step]
            position += step
            if len(self._head) == HEADER.size:
                size, key, version = HEADER.unpack(self._head)
                found.append((key, version))
                self._skip = max(0, size - (HEADER.size - SIZE_BYTES))
                self._head = b""
        return found


class Tap:
    """Listens on loopback and carries everything to one address."""

    def __init__(self) -> None:
        self.label = ""
        self.target: tuple[str, int] | None = None
        self.seen: Counter[tuple[str, int, int]] = Counter()
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.target is not None
        with closing(writer), suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            with closing(far_writer):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._carry(reader, far_writer, FrameNotes()))
                    tasks.create_task(self._carry(far_reader, writer, None))

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        notes: FrameNotes | None,
    ) -> None:
        label = self.label
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                for key, version in notes.feed(data) if notes else ():
                    self.seen[label, key, version] += 1
                sink.write(data)
                await sink.drain()
        sink.close()
