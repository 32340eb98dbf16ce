"""A minimal client: one blocking connection that sends exactly the given bytes."""

import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

NUMBERS = itertools.count(1)


class RawClient:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)

    @classmethod
    @contextmanager
    def to(cls, bootstrap: str) -> "Iterator[RawClient]":
        client = cls(bootstrap)
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        self.sock.close()

    def send_bytes(self, data: bytes) -> None:
        self.sock.sendall(data)

    def frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self.sock.recv(count - len(found))
            if not piece:
                raise ConnectionResetError(f"ended after {len(found)} bytes")
            found += piece
        return bytes(found)

    def is_closed(self) -> bool:
        """Wait for the end of the connection; True when nothing was received before it."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def ask(self, key: ApiKey, version: int, message):
        number = next(NUMBERS)
        self.send_bytes(request_frame(RequestHeader(key, version, number, "raw"), message))
        reply, body = parse_response_header(key, version, self.frame())
        assert reply == number, "replies keep their order"
        return decode(response_class(key), version, body)

    def topic(self, name: str = "", **config: str) -> str:
        """Create a topic; without a name it gets a unique one."""
        name = name or f"t{next(NUMBERS)}"
        settings = [CreatableTopicConfig(key.replace("_", "."), config[key]) for key in config]
        made = CreateTopicsRequest([CreatableTopic(name, 1, 1, [], settings)], 10_000)
        (answer,) = self.ask(ApiKey.CREATE_TOPICS, 7, made).topics
        assert answer.error_code == 0, answer
        return name

    def produce(self, topic: str, batch: bytes, version: int = 9) -> PartitionProduceResponse:
        """Send one batch and return its error code."""
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
        answer = self.ask(ApiKey.PRODUCE, version, ProduceRequest(None, -1, 10_000, data))
        return answer.responses[0].partition_responses[0]
