"""One blocking connection to a broker, and topics made through it."""

import socket
from collections.abc import Sequence
from time import perf_counter, sleep
from typing import TypeVar

from benchmarks.broker.brokers import Broker
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode_prefix
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.schema import Message

WAIT_S_MAX = 60.0
POLL_S = 0.05
LATEST = -1
NAMES_UP_TO = {ApiKey.OFFSET_COMMIT: 9, ApiKey.PRODUCE: 12}

Reply = TypeVar("Reply", bound=Message)


def frame_of(request: Message, version: int | None = None) -> bytes:
    """Return the frame of a request, in its newest version by default."""
    assert request.SCHEMA.api_key is not None
    assert request.SCHEMA.versions is not None
    key = ApiKey(request.SCHEMA.api_key)
    if version is None:
        version = NAMES_UP_TO.get(key, request.SCHEMA.versions[1])
    return bytes(request_frame(RequestHeader(key, version, 1, "bench"), request))


class Line:
    """One connection, one request at a time unless frames are sent by hand."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), WAIT_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._have = bytearray()

    def receive(self) -> bytes:
        """Return the next reply, without its length."""
        while True:
            frame = self.take()
            if frame is not None:
                return frame
            self.read()

    def read(self) -> None:
        """Read the available bytes; blocks if there are none."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker hung up")
        self._have += data

    def take(self) -> bytes | None:
        """Return the next reply if it is complete."""
        have = self._have
        if len(have) < 4:
            return None
        size = int.from_bytes(have[:4], "big")
        if len(have) < 4 + size:
            return None
        frame = bytes(have[4 : 4 + size])
        del have[: 4 + size]
        return frame

    def ask(self, request: Message, kind: type[Reply], version: int | None = None) -> Reply:
        """Send a request and return its reply."""
        self.socket.sendall(frame_of(request, version))
        return parsed(self.receive(), kind, version)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def parsed(frame: bytes, kind: type[Reply], version: int | None = None) -> Reply:
    """Return a reply from its frame."""
    assert kind.SCHEMA.api_key is not None
    assert kind.SCHEMA.versions is not None
    key = ApiKey(kind.SCHEMA.api_key)
    if version is None:
        version = NAMES_UP_TO.get(key, kind.SCHEMA.versions[1])
    _, body = parse_response_header(key, version, frame)
    return decode_prefix(kind, version, body)[0]


def make_topic(nodes: Sequence[Broker], name: str, partitions: int, isr_min: int = 1) -> None:
    """Create a topic on all nodes, and wait until its leaders serve it with all replicas in sync.

    Kafka names a leader a moment before it serves the partition. The nodes have the ids 1, 2, ...
    """
    line, replicas = Line(nodes[0]), len(nodes)
    configs = [CreatableTopicConfig("min.insync.replicas", str(isr_min))]
    topic = CreatableTopic(name, partitions, replicas, configs=configs)
    deadline = perf_counter() + WAIT_S_MAX
    while True:
        reply = line.ask(CreateTopicsRequest([topic], 30_000), CreateTopicsResponse)
        # A broker that has just started is still fenced, and a quorum may elect its leader. A
        # request that timed out may have created the topic.
        if reply.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            break
        assert perf_counter() < deadline, reply
        sleep(POLL_S)
    while not (leaders := _leaders(line, name, partitions, replicas)):
        assert perf_counter() < deadline, f"{name} is not led"
        sleep(POLL_S)
    line.close()
    for leader in set(leaders.values()):
        line = Line(nodes[leader - 1])
        led = [index for index, node_id in leaders.items() if node_id == leader]
        while not _are_served(line, name, led):
            assert perf_counter() < deadline, f"{name} is not served"
            sleep(POLL_S)
        line.close()


def _leaders(line: Line, name: str, partitions: int, replicas: int) -> dict[int, int]:
    """Return the leaders of all partitions; none unless all of their replicas are in sync."""
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    topic = line.ask(request, MetadataResponse).topics[0]
    leaders = {
        partition.partition_index: partition.leader_id
        for partition in topic.partitions
        if not partition.error_code and len(partition.isr_nodes) == replicas
    }
    return leaders if len(leaders) == partitions else {}


def _are_served(line: Line, name: str, indexes: Sequence[int]) -> bool:
    partitions = [ListOffsetsPartition(index, timestamp=LATEST) for index in indexes]
    topics = [ListOffsetsTopic(name, partitions)]
    reply = line.ask(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse)
    return not any(partition.error_code for partition in reply.topics[0].partitions)


def delete_topic(broker: Broker, name: str) -> None:
    """Delete a topic; its files are removed later."""
    line = Line(broker)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=30_000)
    reply = line.ask(request, DeleteTopicsResponse)
    assert reply.responses[0].error_code == ErrorCode.NONE, reply
    line.close()
