"""A server that acknowledges appends once they are durable, and clients that keep asking.

    request   length i32, number u64, value      reply   length i32, number u64, offset u64

The server appends as requests come, commits what came meanwhile together, and replies.
Any failure of its disk ends it: it never answers for what it is not sure of.
"""

import asyncio
import struct
from collections.abc import Callable

from ottla.protocol.faults import StorageFailed
from ottla.runtime.ports import Address
from simulation.journal_store import Store
from simulation.ledger import Ledger
from simulation.simulation import Ports

SERVER = Address("server", 9092)
_LENGTH = struct.Struct(">i")
_REPLY = struct.Struct(">iQQ")
_NUMBER = struct.Struct(">Q")
# What a client has under way at once; more would only grow queues.
OUTSTANDING_MAX = 8

StoreMaker = Callable[[Ports], Store]


class _Frames(asyncio.Protocol):
    """Cuts a stream into frames."""

    transport: asyncio.Transport

    def __init__(self, on_frame: Callable[["_Frames", bytes], None]) -> None:
        self.is_lost = False
        self._on_frame = on_frame
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[4:end])
            del self._buffer[:end]
            self._on_frame(self, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class AppendService:
    """One run of the server. A crash throws it away; `run` of the next one recovers."""

    def __init__(self, ports: Ports, ledger: Ledger, store: Store) -> None:
        self._ports = ports
        self._ledger = ledger
        self._store = store
        self._waiting: list[tuple[_Frames, int, int]] = []
        self._wake = asyncio.Event()
        self._failure: OSError | StorageFailed | None = None

    async def run(self) -> None:
        """Recover, listen, and serve until the disk fails."""
        try:
            self._ledger.recovered(self._store.recover())
            await self._ports.network.listen(SERVER, lambda: _Frames(self._on_request))
            while True:
                await self._serve_some()
        except (OSError, StorageFailed):
            return  # the process ends; clients find the connection gone

    def _on_request(self, connection: _Frames, frame: bytes) -> None:
        """Append at once, in the order of arrival; the reply waits for the commit."""
        if self._failure is not None:
            return
        number = _NUMBER.unpack_from(frame)[0]
        self._ledger.attempted(frame[8:])
        try:
            offset = self._store.append(frame[8:])
        except (OSError, StorageFailed) as error:
            self._failure = error
        else:
            self._ledger.appended(offset, frame[8:])
            self._waiting.append((connection, number, offset))
        self._wake.set()

    async def _serve_some(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        if self._failure is not None:
            raise self._failure
        # Taken before the commit begins: what comes during it is not covered by it.
        batch, self._waiting = self._waiting, []
        await self._store.commit()
        self._reply(batch)

    def _reply(self, batch: list[tuple[_Frames, int, int]]) -> None:
        for connection, number, offset in batch:
            connection.transport.write(_REPLY.pack(16, number, offset))


class AppendClient:
    """Sends values that never repeat, and tells the ledger what was acknowledged."""

    def __init__(self, ports: Ports, ledger: Ledger, name: str) -> None:
        self._ports = ports
        self._ledger = ledger
        self._name = name
        self._number = 0
        self._sent: dict[int, bytes] = {}

    async def run(self) -> None:
        """Connect, send until the connection is lost, begin again; for ever."""
        random = self._ports.random
        while True:
            await asyncio.sleep(0.05 + 0.2 * random.fraction())
            try:
                async with asyncio.timeout(5):
                    _, protocol = await self._ports.network.dial(
                        SERVER, lambda: _Frames(self._on_reply)
                    )
            except OSError:
                continue
            assert isinstance(protocol, _Frames)
            await self._send_all(protocol)

    async def _send_all(self, connection: _Frames) -> None:
        """Send at random intervals; without an answer for 10 s the connection is given up."""
        loop = asyncio.get_running_loop()
        self._sent.clear()  # numbers go on, so a late answer of an old connection is ignored
        heard = loop.time()
        while not connection.is_lost and loop.time() - heard < 10:
            if len(self._sent) < OUTSTANDING_MAX:
                self._send_one(connection)
            before = len(self._sent)
            await asyncio.sleep(0.08 * self._ports.random.fraction())
            if len(self._sent) < before:
                heard = loop.time()
        connection.transport.abort()

    def _send_one(self, connection: _Frames) -> None:
        self._number += 1
        value = b"%s-%d-" % (self._name.encode(), self._number)
        # Mostly within a sector of the disk, sometimes over several, so that it can tear.
        longest = 1500 if self._ports.random.below(8) == 0 else 100
        value += bytes([65 + self._number % 26]) * self._ports.random.below(longest)
        self._sent[self._number] = value
        frame = _NUMBER.pack(self._number) + value
        connection.transport.write(_LENGTH.pack(len(frame)) + frame)

    def _on_reply(self, connection: _Frames, frame: bytes) -> None:
        number, offset = struct.unpack(">QQ", frame)
        value = self._sent.pop(number, None)
        if value is not None:
            self._ledger.heard(offset, value)
