"""A node, and members of share groups that send plain requests."""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import read_records
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid
from ottla.testing import Cluster, run_node

NUMBERS = itertools.count()
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP_RESOURCE = 32
STATE = "__share_group_state"
EARLIEST = -2


class Wire:
    """A blocking connection that speaks any version."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._numbers = itertools.count(1)

    def ask(self, request: Message, version: int | None = None) -> Any:
        return self.send(request, version)()

    def send(self, request: Message, version: int | None = None) -> Callable[[], Any]:
        """Send a request; the function returned reads its reply. Replies come in order."""
        key = ApiKey(request.SCHEMA.api_key or 0)
        version = APIS[key].versions[1] if version is None else version
        header = RequestHeader(key, version, next(self._numbers), "wire")
        self._socket.sendall(bytes(request_frame(header, request)))
        return lambda: self._reply(key, version)

    def _reply(self, key: ApiKey, version: int) -> Any:
        body = self._read(struct.unpack(">i", self._read(4))[0])
        _, rest = parse_response_header(key, version, body)
        return decode(response_class(key), version, rest)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            assert piece, "the node hung up"
            found += piece
        return found

    def close(self) -> None:
        self._socket.close()


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.02)


class Member:
    """A share consumer, by hand."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire, self.group, self.topic = wire, group, topic
        self.id = f"member-{next(NUMBERS)}"
        self.epoch = 0
        self.session = 0
        self.assigned: list[tuple[Uuid, int]] = []

    def beat(self, **more: Any) -> Any:
        names = [self.topic] if self.epoch == 0 else None
        request = ShareGroupHeartbeatRequest(self.group, self.id, self.epoch, None, names)
        reply = self.wire.ask(request)
        if reply.error_code == ErrorCode.NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.assigned = [
                    (t.topic_id, p) for t in reply.assignment.topic_partitions for p in t.partitions
                ]
        return reply

    def join(self) -> "Member":
        until(lambda: self.beat().error_code == 0 and bool(self.assigned))
        return self

    def fetch(self, acks: list[tuple[int, int, int]] = (), version: int = 2, **more: Any) -> Any:  # type: ignore[assignment]
        reply = self.wire.ask(self.fetch_request(acks, **more), version)
        if reply.error_code == ErrorCode.NONE:
            self.session += 1
        return reply

    def fetch_request(self, acks: Iterable[tuple[int, int, int]] = (), **more: Any) -> Message:
        topic_id, partition = self.assigned[0]
        replies = [fetching.AcknowledgementBatch(a, b, [kind]) for a, b, kind in acks]
        return fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=more.pop("session", self.session),
            max_wait_ms=more.pop("wait_ms", 5000),
            max_records=more.pop("records", 500),
            max_bytes=1 << 20,
            topics=[fetching.FetchTopic(topic_id, [fetching.FetchPartition(partition, replies)])],
            **more,
        )

    def got(self, *args: Any, **more: Any) -> list[tuple[int, int, int]]:
        """Return the ranges that a fetch acquired."""
        return acquired(self.fetch(*args, **more))

    def acknowledge(self, *acks: tuple[int, int, int], **more: Any) -> Any:
        reply = self.wire.ask(self.acknowledge_request(*acks, **more))
        if reply.error_code == ErrorCode.NONE:
            self.session += 1
        return reply

    def acknowledge_request(self, *acks: tuple[int, int, int], **more: Any) -> Message:
        topic_id, partition = self.assigned[0]
        replies = [acknowledging.AcknowledgementBatch(a, b, [kind]) for a, b, kind in acks]
        return acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=more.pop("session", self.session),
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id, [acknowledging.AcknowledgePartition(partition, replies)]
                )
            ],
            **more,
        )


def rows(reply: Any) -> list[Any]:
    return [partition for topic in reply.responses for partition in topic.partitions]


def acquired(reply: Any) -> list[tuple[int, int, int]]:
    assert reply.error_code == ErrorCode.NONE
    assert all(row.error_code == ErrorCode.NONE for row in rows(reply))
    return [
        (a.first_offset, a.last_offset, a.delivery_count)
        for row in rows(reply)
        for a in row.acquired_records
    ]


def values(reply: Any) -> list[bytes]:
    return [
        bytes(record.value)
        for row in rows(reply)
        for position, header in batches(row.records)
        for record in read_records(row.records[position : position + header.size])
    ]


def summary(wire: Wire, group: str, place: tuple[Uuid, int]) -> tuple[int, int, int]:
    """Return what is kept of a share partition: code, start, state epoch."""
    topic_id, partition = place
    asked = [ReadStateSummaryData(topic_id, [PartitionData(partition)])]
    reply = wire.ask(ReadShareGroupStateSummaryRequest(group, asked))
    (found,) = reply.results[0].partitions
    return found.error_code, found.start_offset, found.state_epoch


def leave(member: Member) -> None:
    assert member.acknowledge(session=-1).error_code == ErrorCode.NONE
    member.epoch = -1
    assert member.beat().error_code == ErrorCode.NONE


def offsets(wire: Wire, group: str) -> list[tuple[int, int, int]]:
    """Return partition, start and lag of everything that a group has read."""
    asked = [DescribeShareGroupOffsetsRequestGroup(group, None)]
    (found,) = wire.ask(DescribeShareGroupOffsetsRequest(asked)).groups
    assert found.error_code == ErrorCode.NONE, found.error_message
    return [(p.partition_index, p.start_offset, p.lag) for t in found.topics for p in t.partitions]


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    config = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "1000",
        "share.coordinator.state.topic.prune.interval.ms": "200",
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
        "share.coordinator.cold.partition.snapshot.interval.ms": "500",
    }
    with run_node(config=config) as cluster:
        yield cluster


@pytest.fixture
def wire(node: Cluster) -> Iterator[Wire]:
    wire = Wire(node.bootstrap)
    try:
        until(lambda: wire.ask(FindCoordinatorRequest("any", 0), 3).error_code == 0)
        until(lambda: wire.ask(ListGroupsRequest()).error_code == 0)
        yield wire
    finally:
        wire.close()


@pytest.fixture
def other_wire(node: Cluster) -> Iterator[Wire]:
    """A second connection."""
    wire = Wire(node.bootstrap)
    yield wire
    wire.close()


@pytest.fixture
def group(wire: Wire) -> str:
    """A group that begins at the earliest record, and holds records for long."""
    name = f"group-{next(NUMBERS)}"
    configure(wire, name, share_auto_offset_reset="earliest", share_record_lock_duration_ms="60000")
    return name


def configure(wire: Wire, group: str, resource_type: int = GROUP_RESOURCE, **configs: str) -> None:
    given = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type, group, given)
    (altered,) = wire.ask(IncrementalAlterConfigsRequest([resource])).responses
    assert altered.error_code == ErrorCode.NONE, altered.error_message


@pytest.fixture
def topic(wire: Wire, node: Cluster) -> str:
    """A topic of one partition with ten records."""
    name = f"topic-{next(NUMBERS)}"
    create(wire, name)
    produce(node, name, range(10))
    return name


def create(wire: Wire, name: str, **configs: str) -> None:
    """Create a topic of one partition, once the broker is not fenced."""
    given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=given)], 10_000)
    until(lambda: wire.ask(request).topics[0].error_code == ErrorCode.NONE)


def produce(node: Cluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 50})
    for number in numbers:
        producer.produce(topic, str(number).encode())
    assert producer.flush(SECONDS_MAX) == 0
