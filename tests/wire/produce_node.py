"""A running node and a minimal client for tests of Produce."""

import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.types import Uuid
from ottla.testing import run_node

NUMBERS = itertools.count(1)


class Client:
    """One blocking connection that sends given requests."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)

    def close(self) -> None:
        self._socket.close()

    def send(self, key: ApiKey, version: int, message) -> int:
        number = next(NUMBERS)
        header = RequestHeader(key, version, number, "bare")
        self._socket.sendall(request_frame(header, message))
        return number

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, key: ApiKey, version: int, number: int):
        (length,) = struct.unpack(">i", self._exactly(4))
        reply, body = parse_response_header(key, version, self._exactly(length))
        assert reply == number, "replies keep their order"
        return decode(response_class(key), version, body)

    def ask(self, key: ApiKey, version: int, message):
        return self.receive(key, version, self.send(key, version, message))

    def is_closed(self) -> bool:
        """Wait until the other side closes, or says something."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            assert piece, "closed"
            found += piece
        return bytes(found)


class Node:
    """A node, and a connection that tests may use up."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = Client(bootstrap)
        self.ids: dict[str, Uuid] = {}

    @contextmanager
    def connected(self) -> Iterator[Client]:
        client = Client(self.bootstrap)
        try:
            yield client
        finally:
            client.close()

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Make a topic with a name of its own."""
        name = f"t{next(NUMBERS)}"
        settings = [CreatableTopicConfig(key.replace("_", "."), config[key]) for key in config]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)], 10_000)
        (made,) = self.client.ask(ApiKey.CREATE_TOPICS, 7, request).topics
        assert made.error_code == 0, made
        self.ids[name] = made.topic_id
        return name

    def produce(
        self, topic: str, batch: bytes | None, version: int = 9, *, acks: int = -1, index: int = 0
    ) -> PartitionProduceResponse:
        """Send one batch, and say what became of it."""
        request = self.request(topic, batch, acks=acks, index=index)
        response = self.client.ask(ApiKey.PRODUCE, version, request)
        return response.responses[0].partition_responses[0]

    def request(
        self, topic: str, batch: bytes | None, *, acks: int = -1, index: int = 0
    ) -> ProduceRequest:
        data = [PartitionProduceData(index, None if batch is None else bytes(batch))]
        topic_id = self.ids.get(topic, Uuid(bytes(range(16))))
        return ProduceRequest(None, acks, 10_000, [TopicProduceData(topic, topic_id, data)])

    def code(self, topic: str, batch: bytes | None, version: int = 9, **more) -> ErrorCode:
        return ErrorCode(self.produce(topic, batch, version, **more).error_code)

    def stored(self, topic: str, index: int = 0) -> bytes:
        """Return the bytes that a consumer gets, from the start."""
        part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_bytes=1 << 24,
            min_bytes=0,
            max_wait_ms=0,
            topics=[FetchTopic(topic, partitions=[part])],
        )
        response = self.client.ask(ApiKey.FETCH, 12, request)
        (found,) = response.responses[0].partitions
        assert found.error_code == 0
        return bytes(found.records or b"")

    def records(self, topic: str, index: int = 0) -> list[Record]:
        data = self.stored(topic, index)
        return [record for start, _ in batches(data) for record in read_records(data, start)]


@contextmanager
def running_node(**config: object) -> Iterator[Node]:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with run_node(config=settings) as cluster:
        node = Node(cluster.bootstrap)
        try:
            yield node
        finally:
            node.client.close()
