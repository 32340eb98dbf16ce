"""One node on an event loop in its own thread, for tests with plain sockets."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from tests.patience import SECONDS_MAX

from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.schema import Message
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def settings(root: Path, *extra: str, listeners: str = "") -> Loaded:
    """A combined node with one client listener unless ``listeners`` says otherwise."""
    listeners = listeners or "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    return load(
        f"process.roles=broker,controller\nnode.id=1\nlisteners={listeners}\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "OTHER:PLAINTEXT\n"
        f"log.dirs={root / 'data'}\nbroker.heartbeat.interval.ms=200\n" + "\n".join(extra)
    )


def format_one(loaded: Loaded, release_version: str | None = None) -> Loaded:
    quorum = Quorum(is_standalone=True)
    options = FormatOptions(cluster_id=CLUSTER, quorum=quorum, release_version=release_version)
    random = SystemRandom()
    format_node(RealDisk(), random, SystemClock().now(), plan_format(loaded, options, random))
    return loaded


class OneNode:
    """A node that runs beside the test; `call` runs something on its loop."""

    def __init__(self, loaded: Loaded) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self.node = self.call(Node.start(loaded))
        except BaseException:
            self._close_loop()
            raise
        self.call(self._unfenced())

    async def _unfenced(self) -> None:
        await self.node.wait_image(lambda image: image.cluster.is_unfenced(self.node.node_id))

    def call(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(SECONDS_MAX)

    @property
    def address(self) -> Address:
        found = self.node.listen_addr
        assert found is not None
        return found

    def stop(self) -> None:
        self.call(self.node.shutdown())
        self._close_loop()

    def _close_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS_MAX)
        self._loop.close()


@contextlib.contextmanager
def one_node(loaded: Loaded) -> Iterator[OneNode]:
    running = OneNode(format_one(loaded))
    try:
        yield running
    finally:
        running.stop()


class Line:
    """A blocking connection that sends arbitrary bytes and requests."""

    def __init__(self, address: Address) -> None:
        self.sock = socket.create_connection((address.host, address.port), timeout=SECONDS_MAX)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *why: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self.sock.recv(length - len(parts))
            if not part:
                raise ConnectionResetError(f"ended after {len(parts)} bytes")
            parts += part
        return bytes(parts)

    def frame(self) -> bytes:
        (length,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(length)

    def is_closed(self) -> bool:
        """Wait for the end; True when nothing but the end came."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True


def ask(node: OneNode, request: Message, version: int | None = None, *, at: Any = None) -> Any:
    """Send a request, by default in its newest version; return the response."""
    key = ApiKey(request.SCHEMA.api_key or 0)
    version = APIS[key].versions[1] if version is None else version
    address: Address = node.address if at is None else at
    with Line(address) as line:
        line.send(bytes(request_frame(RequestHeader(key, version, 7, "test"), request)))
        _, body = parse_response_header(key, version, memoryview(line.frame()))
        return decode(response_class(key), version, bytes(body))
