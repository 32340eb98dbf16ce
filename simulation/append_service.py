"""A server that acknowledges appends once they are durable, and clients that keep sending.

    request   length i32, number u64, value      reply   length i32, number u64, offset u64

The server appends requests as they arrive, commits those that arrived meanwhile together, and
replies. Any disk failure ends it: it never acknowledges a write that may not be durable.
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
# Requests in flight per client; more would only lengthen the queues.
OUTSTANDING_MAX = 8

StoreMaker = Callable[[Ports], Store]


class _Frames(asyncio.Protocol):
    """Split a stream into frames."""

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
    """One run of the server. A crash discards it; the next `run` recovers."""

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
            return  # the process ends; clients see the connection close

    def _on_request(self, connection: _Frames, frame: bytes) -> None:
        """Append at once, in arrival order; the reply waits for the commit."""
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
        # Taken before the commit begins: it does not cover what arrives during it.
        batch, self._waiting = self._waiting, []
        await self._store.commit()
        self._reply(batch)

    def _reply(self, batch: list[tuple[_Frames, int, int]]) -> None:
        for connection, number, offset in batch:
            connection.transport.write(_REPLY.pack(16, number, offset))


class AppendClient:
    """Send values that never repeat, and record in the ledger which were acknowledged."""

    def __init__(self, ports: Ports, ledger: Ledger, name: str) -> None:
        self._ports = ports
        self._ledger = ledger
        self._name = name
        self._number = 0
        self._sent: dict[int, bytes] = {}

    async def run(self) -> None:
        """Connect, send until the connection is lost, and reconnect; forever."""
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
        """Send at random intervals; give up a connection that is silent for 10 s."""
        loop = asyncio.get_running_loop()
        self._sent.clear()  # numbers continue, so a late reply on an old connection is ignored
        received = loop.time()
        while not connection.is_lost and loop.time() - received < 10:
            if len(self._sent) < OUTSTANDING_MAX:
                self._send_one(connection)
            before = len(self._sent)
            await asyncio.sleep(0.08 * self._ports.random.fraction())
            if len(self._sent) < before:
                received = loop.time()
        connection.transport.abort()

    def _send_one(self, connection: _Frames) -> None:
        self._number += 1
        value = b"%s-%d-" % (self._name.encode(), self._number)
        # Mostly within one disk sector, sometimes across several, so that a write can tear.
        longest = 1500 if self._ports.random.below(8) == 0 else 100
        value += bytes([65 + self._number % 26]) * self._ports.random.below(longest)
        self._sent[self._number] = value
        frame = _NUMBER.pack(self._number) + value
        connection.transport.write(_LENGTH.pack(len(frame)) + frame)

    def _on_reply(self, connection: _Frames, frame: bytes) -> None:
        number, offset = struct.unpack(">QQ", frame)
        value = self._sent.pop(number, None)
        if value is not None:
            self._ledger.received(offset, value)
