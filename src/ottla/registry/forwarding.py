"""Repeats a request at the registry of the node that leads ``_schemas``.

Brokers register the address of their registry with the controller, as one more listener, so every
node finds it in the metadata image. One connection per request: forwarded writes are rare.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import h11
import msgspec

from ottla.config.listeners import REGISTRY_LISTENER
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.protocol.types import NO_LEADER
from ottla.registry.http_app import FORWARD_HEADER
from ottla.registry.http_call import (
    APPLIED_HEADER,
    HOST_HEADER,
    PRINCIPAL_HEADER,
    RawRequest,
    Reply,
)
from ottla.registry.rules import errors
from ottla.registry.rules.records import TOPIC
from ottla.registry.service import LeaderUnreachable
from ottla.runtime.ports import Address

TLS_PROTOCOL: Final = 1
"""Kafka's number of the protocol SSL."""
REPLY_BYTES_MAX: Final = 64 << 20
_PIECE_BYTES: Final = 64 * 1024
_PASSED_ON: Final = ("accept", "authorization", "content-type", PRINCIPAL_HEADER, HOST_HEADER)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LeaderAddress(msgspec.Struct, frozen=True):
    """Where the leader's registry is."""

    address: Address
    is_tls: bool


def leader_address(image: Image) -> LeaderAddress | None:
    """Return the registry of the node that leads the topic; None if there is none."""
    topic = image.topics.named(TOPIC)
    partition = None if topic is None else topic.partitions.get(0)
    if partition is None or partition.leader == NO_LEADER:
        return None
    broker = image.cluster.brokers.get(partition.leader)
    endpoint = None if broker is None else broker.listeners.get(REGISTRY_LISTENER)
    if endpoint is None:
        return None
    address = Address(endpoint.host, endpoint.port)
    return LeaderAddress(address, endpoint.security_protocol == TLS_PROTOCOL)


class ForwardingSettings(msgspec.Struct, frozen=True):
    """``tls`` returns the context of a connection to a registry with TLS."""

    timeout_ms: int = 10_000
    tls: Callable[[], ssl.SSLContext] | None = None


class LeaderForwarding:
    """`Leader` of the cluster's metadata image."""

    def __init__(
        self, watch: ImageWatch, create_topic: Callable[[], None], settings: ForwardingSettings
    ) -> None:
        self._watch = watch
        self._create_topic = create_topic
        self._settings = settings

    async def prepare(self) -> None:
        """Have the topic created if it does not exist, and wait until the image has it.

        Raises:
            Rejection: it does not appear in time.
        """
        if self._watch.image.topics.named(TOPIC) is not None:
            return
        self._create_topic()
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                await self._watch.wait_image(_has_leader)
        except TimeoutError:
            raise errors.store_failed(f"The topic {TOPIC} could not be created in time") from None

    async def send(self, request: RawRequest) -> Reply:
        """Repeat a request at the leader. Raises LeaderUnreachable."""
        leader = leader_address(self._watch.image)
        if leader is None:
            text = f"no node leads {TOPIC}, or its registry is not configured"
            raise LeaderUnreachable(text, is_certain=True)
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                streams = await self._connect(leader)
                try:
                    return await _exchange(streams, leader.address, request)
                finally:
                    streams[1].close()
        except TimeoutError:
            raise LeaderUnreachable("it did not answer in time", is_certain=False) from None
        except (OSError, h11.ProtocolError, UnicodeError) as error:
            raise LeaderUnreachable(str(error), is_certain=False) from error

    async def _connect(self, leader: LeaderAddress) -> Streams:
        address = leader.address
        tls = None
        if leader.is_tls:
            if self._settings.tls is None:  # nothing may be sent in clear text
                raise LeaderUnreachable(f"{address} needs TLS", is_certain=True)
            tls = self._settings.tls()
        try:
            return await asyncio.open_connection(address.host, address.port, ssl=tls)
        except OSError as error:
            raise LeaderUnreachable(f"{address}: {error}", is_certain=True) from error


def _has_leader(image: Image) -> bool:
    topic = image.topics.named(TOPIC)
    partition = None if topic is None else topic.partitions.get(0)
    return partition is not None and partition.leader != NO_LEADER


async def _exchange(streams: Streams, address: Address, request: RawRequest) -> Reply:
    """Send a request and read its reply. Raises LeaderUnreachable if it is not the leader."""
    reader, writer = streams
    connection = h11.Connection(h11.CLIENT)
    headers = [(name, value) for name, value in request.headers if name.lower() in _PASSED_ON]
    headers += [("host", str(address)), (FORWARD_HEADER, "true"), ("connection", "close")]
    headers.append(("content-length", str(len(request.body))))
    head = h11.Request(method=request.method, target=request.path, headers=headers)
    writer.write(connection.send(head) or b"")
    writer.write(connection.send(h11.Data(data=request.body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    status, found, body = 0, {}, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_PIECE_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
            found = {name.decode().lower(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > REPLY_BYTES_MAX:
                raise LeaderUnreachable("its reply is too large", is_certain=False)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return _reply(status, found, bytes(body))


def _reply(status: int, headers: dict[str, str], body: bytes) -> Reply:
    if status == 0:
        raise LeaderUnreachable("it closed the connection", is_certain=False)
    if status >= 500 and f'"error_code":{errors.no_leader().code}'.encode() in body:
        raise LeaderUnreachable("it does not lead the topic any more", is_certain=True)
    passed = ((name, headers[name]) for name in (APPLIED_HEADER, "www-authenticate")
              if name in headers)  # fmt: skip
    return Reply(status, body, tuple(passed))
