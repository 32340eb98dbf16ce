"""Helpers of the wire tests: scripted routes, a server around them, raw requests."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from ottla.api.surface.replies import NO_REPLY, Answer, Chunk
from ottla.api.surface.routes import Caller, FastPath, Route, Routes
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.frames import Request, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schema import Message
from ottla.runtime.ports import Address, Network
from ottla.security.certificate_login import LoginByCertificate
from ottla.server.events import NoEvents
from ottla.server.listener import ListenerSpec, Server, ServerSettings, SharedResources

HERE = Address("127.0.0.1", 0)


@dataclass
class Scripted:
    """Handlers whose behaviour a test sets.

    FindCoordinator answers at once with the key it was asked for; ListGroups stays pending until
    `release`; Metadata raises the error of the test; Produce (raw) returns raw chunks.
    """

    chunks: list[Chunk] = field(default_factory=list)
    error: Exception | None = None
    answer: Callable[[FindCoordinatorRequest], object] | None = None
    pending: list["asyncio.Future[object]"] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    keep_body: bool = False
    fast_path: FastPath | None = None

    def find(self, caller: Caller, request: FindCoordinatorRequest, version: int) -> object:
        self.callers.append(caller)
        self.seen.append(request.key)
        if self.answer is not None:
            return self.answer(request)
        return FindCoordinatorResponse(host=request.key, node_id=1, port=2)

    def stay_pending(self, caller: Caller, request: ListGroupsRequest, version: int) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.pending.append(future)
        return future

    async def metadata(self, caller: Caller, request: MetadataRequest, version: int) -> object:
        if self.error is not None:
            raise self.error
        return MetadataResponse(controller_id=7)

    def raw(self, caller: Caller, request: Request, body: memoryview) -> object:
        self.seen.append(bytes(body[:16]))
        if self.keep_body:
            return self._later(body)
        return list(self.chunks)

    async def _later(self, body: memoryview) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.pending.append(future)
        await future
        self.seen.append(bytes(body))
        return list(self.chunks)

    def no_reply(self, caller: Caller, request: Message, version: int) -> object:
        return NO_REPLY

    def hang_up(self, caller: Caller, request: Message, version: int) -> object:
        return Answer(NO_REPLY, close=True)

    def release(self, index: int = 0, reply: object | None = None) -> None:
        self.pending[index].set_result(reply or ListGroupsResponse())

    def routes(self, kind: Listener = Listener.BROKER) -> Routes:
        return Routes(
            kind,
            (
                Route(ApiKey.FIND_COORDINATOR, self.find),
                Route(ApiKey.LIST_GROUPS, self.stay_pending, cancel_when_gone=True),
                Route(ApiKey.METADATA, self.metadata),
                Route(ApiKey.PRODUCE, self.raw, raw=True, fast_path=self.fast_path),
                Route(ApiKey.HEARTBEAT, self.no_reply),
                Route(ApiKey.LEAVE_GROUP, self.hang_up),
                Route(ApiKey.VOTE, self.no_reply),
                # Advertised; on a listener with an authenticator it serves them.
                Route(ApiKey.SASL_HANDSHAKE, self.no_reply),
                Route(ApiKey.SASL_AUTHENTICATE, self.no_reply),
            ),
        )


@dataclass
class Counting(NoEvents):
    """Counts events."""

    opened: int = 0
    closed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    bad: int = 0

    def connection_opened(self, listener: str) -> None:
        self.opened += 1

    def connection_closed(self, listener: str, reason: str) -> None:
        self.closed.append(reason)

    def connection_refused(self, listener: str, reason: str) -> None:
        self.refused.append(reason)

    def bad_bytes(self, listener: str) -> None:
        self.bad += 1


@contextlib.asynccontextmanager
async def running(
    network: Network,
    clock: object,
    scripted: Scripted,
    *,
    shared: SharedResources | None = None,
    settings: ServerSettings | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    authenticator: Callable[[], object] | None = None,
    handed_over: socket.socket | None = None,
    certificate_login: LoginByCertificate | None = None,
) -> AsyncIterator["Running"]:
    """Run a server with one listener until the block ends, then drain it."""
    spec = ListenerSpec(
        "CLIENT",
        HERE,
        scripted.routes(),
        tls=tls,
        authenticator=authenticator,
        handed_over=handed_over,
        certificate_login=certificate_login,
    )
    server = Server(network, clock, [spec], shared, settings)
    ready = asyncio.Event()
    task = asyncio.get_running_loop().create_task(server.run(ready.set))
    waiting = asyncio.get_running_loop().create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not ready.is_set():
        waiting.cancel()
        await task
    try:
        yield Running(server, task)
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


@dataclass
class Running:
    server: Server
    task: "asyncio.Task[None]"

    @property
    def address(self) -> Address:
        return self.server.addresses["CLIENT"]


# -- raw requests --------------------------------------------------------------


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def ask(key: ApiKey, version: int, correlation_id: int, body: Message) -> bytes:
    return bytes(request_frame(RequestHeader(key, version, correlation_id, "test"), body))


def find(correlation_id: int, key: str = "k") -> bytes:
    """FindCoordinator v0: answered at once, host is the key."""
    return ask(ApiKey.FIND_COORDINATOR, 0, correlation_id, FindCoordinatorRequest(key=key))


def list_groups(correlation_id: int) -> bytes:
    """ListGroups v0: stays pending."""
    return ask(ApiKey.LIST_GROUPS, 0, correlation_id, ListGroupsRequest())


def produce(correlation_id: int, body: bytes) -> bytes:
    """Produce v3 with a body that only the raw handler looks at."""
    header = struct.pack(">hhih", ApiKey.PRODUCE, 3, correlation_id, -1)
    return framed(header + body)


class Wire(asyncio.Protocol):
    """A raw client: sends bytes, and reads frames only on request."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_ended = False
        self.transport: asyncio.Transport
        self._changed = asyncio.Event()

    @classmethod
    async def to(cls, network: Network, address: Address) -> "Wire":
        _, wire = await network.dial(address, cls)
        assert isinstance(wire, cls)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended = True
        self._changed.set()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    async def exactly(self, length: int) -> bytes:
        while len(self.received) < length:
            if self.is_ended:
                raise ConnectionResetError(f"ended after {bytes(self.received[:100])!r}")
            self._changed.clear()
            await self._changed.wait()
        taken = bytes(self.received[:length])
        del self.received[:length]
        return taken

    async def frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self.exactly(4))
        return await self.exactly(length)

    async def correlation_ids(self, count: int) -> list[int]:
        return [struct.unpack_from(">i", await self.frame())[0] for _ in range(count)]

    async def is_closed(self) -> bool:
        """Wait for the close; return True if no other bytes were received."""
        while not self.is_ended:
            self._changed.clear()
            await self._changed.wait()
        return not self.received

    def close(self) -> None:
        self.transport.close()
