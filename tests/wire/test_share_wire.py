"""Share groups of a running node: join, fetch, acknowledge, let go (KIP-932)."""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import read_records
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid
from ottla.testing import Cluster, run_node

SECONDS_MAX = 60.0
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
        key = ApiKey(request.SCHEMA.api_key or 0)
        version = APIS[key].versions[1] if version is None else version
        header = RequestHeader(key, version, next(self._numbers), "wire")
        self._socket.sendall(bytes(request_frame(header, request)))
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
        topic_id, partition = self.assigned[0]
        told = [fetching.AcknowledgementBatch(a, b, [kind]) for a, b, kind in acks]
        request = fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=more.pop("session", self.session),
            max_wait_ms=more.pop("wait_ms", 5000),
            max_records=more.pop("records", 500),
            max_bytes=1 << 20,
            topics=[fetching.FetchTopic(topic_id, [fetching.FetchPartition(partition, told)])],
            **more,
        )
        reply = self.wire.ask(request, version)
        if reply.error_code == ErrorCode.NONE:
            self.session += 1
        return reply

    def got(self, *args: Any, **more: Any) -> list[tuple[int, int, int]]:
        """Return the ranges that a fetch acquired."""
        return acquired(self.fetch(*args, **more))

    def acknowledge(self, *acks: tuple[int, int, int], **more: Any) -> Any:
        topic_id, partition = self.assigned[0]
        told = [acknowledging.AcknowledgementBatch(a, b, [kind]) for a, b, kind in acks]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=more.pop("session", self.session),
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id, [acknowledging.AcknowledgePartition(partition, told)]
                )
            ],
            **more,
        )
        reply = self.wire.ask(request)
        if reply.error_code == ErrorCode.NONE:
            self.session += 1
        return reply


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
def group(wire: Wire) -> str:
    """A group that begins at the earliest record, and holds records for long."""
    name = f"group-{next(NUMBERS)}"
    configure(wire, name, share_auto_offset_reset="earliest", share_record_lock_duration_ms="60000")
    return name


def configure(wire: Wire, group: str, **configs: str) -> None:
    given = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in configs.items()]
    resource = AlterConfigsResource(GROUP_RESOURCE, group, given)
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


def test_records_are_fetched_accepted_and_gone(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    reply = member.fetch()

    assert acquired(reply) == [(0, 9, 1)]
    assert values(reply) == [str(number).encode() for number in range(10)]
    reply = member.fetch([(0, 9, ACCEPT)], wait_ms=10)
    assert [row.acknowledge_error_code for row in rows(reply)] == [ErrorCode.NONE]
    assert acquired(reply) == []
    assert summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10), "it is durable"


@pytest.mark.parametrize("version", [1, 2])
def test_two_members_never_hold_the_same_record(
    wire: Wire, group: str, topic: str, version: int
) -> None:
    first, second = (Member(wire, group, topic).join() for _ in range(2))

    assert first.got(version=version) == [(0, 9, 1)]
    assert second.got(version=version, wait_ms=10) == []

    assert rows(first.acknowledge((2, 3, RELEASE)))[0].error_code == ErrorCode.NONE
    assert second.got(version=version) == [(2, 3, 2)]
    refused = first.acknowledge((2, 2, ACCEPT))
    assert rows(refused)[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_a_strict_fetch_gets_no_more_than_it_asked_for(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    assert member.got(records=4, share_acquire_mode=1) == [(0, 3, 1)]
    assert member.got(records=4, share_acquire_mode=1) == [(4, 7, 1)]


def test_a_waiting_fetch_is_woken_by_what_comes(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    member = Member(wire, group, topic).join()
    assert member.got() == [(0, 9, 1)]
    began = time.monotonic()

    produce(node, topic, range(10, 12))

    assert member.got(wait_ms=50_000) == [(10, 11, 1)]
    assert time.monotonic() - began < 45


def test_a_lock_that_expires_gives_the_records_to_another(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    configure(wire, group, share_record_lock_duration_ms="1000")
    first, second = (Member(wire, group, topic).join() for _ in range(2))
    reply = first.fetch()
    assert acquired(reply) == [(0, 9, 1)]
    assert reply.acquisition_lock_timeout_ms == 1000

    assert second.got(wait_ms=10_000) == [(0, 9, 2)]
    late = first.acknowledge((0, 9, ACCEPT))
    assert rows(late)[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_a_session_that_ends_releases_what_was_held(wire: Wire, group: str, topic: str) -> None:
    first, second = (Member(wire, group, topic).join() for _ in range(2))
    assert first.got() == [(0, 9, 1)]

    assert first.acknowledge((0, 4, ACCEPT), session=-1).error_code == ErrorCode.NONE

    assert second.got() == [(5, 9, 2)]
    gone = first.acknowledge((5, 9, ACCEPT), session=3)
    assert gone.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_sessions_are_checked(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    assert member.fetch(session=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    with_acks = member.fetch([(0, 0, ACCEPT)], session=0)
    assert with_acks.error_code == ErrorCode.INVALID_REQUEST
    assert member.got() == [(0, 9, 1)]
    assert member.fetch(session=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    first = member.acknowledge((0, 0, ACCEPT), session=0)
    assert first.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_renewed_lock_is_told(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()

    reply = member.acknowledge((0, 9, RENEW), is_renew_ack=True)

    assert rows(reply)[0].error_code == ErrorCode.NONE
    assert reply.acquisition_lock_timeout_ms == 60_000
    unasked = member.acknowledge((0, 9, RENEW))
    assert rows(unasked)[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_group_is_described_and_left(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    (found,) = wire.ask(ShareGroupDescribeRequest([group])).groups

    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert [m.member_id for m in found.members] == [member.id]
    assert found.members[0].assignment.topic_partitions[0].topic_name == topic
    listed = {g.group_id: g for g in wire.ask(ListGroupsRequest()).groups}
    assert (listed[group].protocol_type, listed[group].group_type) == ("share", "share")

    member.epoch = -1
    assert member.beat().error_code == ErrorCode.NONE
    (found,) = wire.ask(ShareGroupDescribeRequest([group])).groups
    assert found.group_state == "Empty"


def test_a_member_that_is_not_what_it_thinks(wire: Wire, group: str, topic: str) -> None:
    stranger = Member(wire, group, topic)
    stranger.epoch = 3
    assert stranger.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = Member(wire, group, topic).join()
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member.epoch += 5
    assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH


def offsets(wire: Wire, group: str) -> list[tuple[int, int, int]]:
    """Return partition, start and lag of everything that a group has read."""
    asked = [DescribeShareGroupOffsetsRequestGroup(group, None)]
    (found,) = wire.ask(DescribeShareGroupOffsetsRequest(asked)).groups
    assert found.error_code == ErrorCode.NONE, found.error_message
    return [(p.partition_index, p.start_offset, p.lag) for t in found.topics for p in t.partitions]


def alter(wire: Wire, group: str, topic: str, start: int) -> Any:
    partitions = [AlterShareGroupOffsetsRequestPartition(0, start)]
    topics = [AlterShareGroupOffsetsRequestTopic(topic, partitions)]
    return wire.ask(AlterShareGroupOffsetsRequest(group, topics))


def leave(member: Member) -> None:
    assert member.acknowledge(session=-1).error_code == ErrorCode.NONE
    member.epoch = -1
    assert member.beat().error_code == ErrorCode.NONE


def test_offsets_are_described_reset_and_forgotten(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 3, ACCEPT), (5, 6, ACCEPT))
    assert offsets(wire, group) == [(0, 4, 4)]
    assert alter(wire, group, topic, 1).error_code == ErrorCode.NON_EMPTY_GROUP
    leave(member)

    altered = alter(wire, group, topic, 1)

    assert altered.error_code == ErrorCode.NONE
    assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert offsets(wire, group) == [(0, 1, 9)]
    again = Member(wire, group, topic).join()
    assert again.got() == [(1, 9, 1)], "the window of before is gone, its acknowledgements too"
    leave(again)
    asked = [DeleteShareGroupOffsetsRequestTopic(topic)]
    deleted = wire.ask(DeleteShareGroupOffsetsRequest(group, asked))
    assert [row.error_code for row in deleted.responses] == [ErrorCode.NONE]
    assert offsets(wire, group) == []


def test_a_group_of_the_same_name_begins_anew(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 3, ACCEPT))
    leave(member)
    (deleted,) = wire.ask(DeleteGroupsRequest([group])).results
    assert deleted.error_code == ErrorCode.NONE

    assert summary(wire, group, member.assigned[0]) == (ErrorCode.NONE, -1, 0), "no state is left"

    again = Member(wire, group, topic).join()

    assert again.got() == [(0, 9, 1)]


def test_a_group_with_members_is_not_deleted(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch([])
    member.acknowledge((0, 3, ACCEPT))

    (refused,) = wire.ask(DeleteGroupsRequest([group])).results

    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    assert summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 4), "it keeps its state"


def test_what_is_kept_of_a_deleted_topic_goes_with_it(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 3, ACCEPT))
    before = set(member.assigned)

    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic)], timeout_ms=10_000)
    (deleted,) = wire.ask(request).responses
    assert deleted.error_code == ErrorCode.NONE

    until(lambda: offsets(wire, group) == [])
    create(wire, topic)
    until(lambda: member.beat().error_code == 0 and set(member.assigned) - before != set())
    assert offsets(wire, group) == [(0, -1, -1)], "begun anew, under another id"


def test_the_log_of_share_state_is_trimmed(wire: Wire, group: str, topic: str) -> None:
    """Snapshots every other update: what is before them goes."""
    member = Member(wire, group, topic).join()
    member.fetch()

    def starts() -> list[int]:
        asked = [ListOffsetsPartition(index, -1, EARLIEST) for index in range(2)]
        reply = wire.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(STATE, asked)]), 10)
        return [part.offset for part in reply.topics[0].partitions]

    before = starts()
    for offset in range(10):
        assert rows(member.acknowledge((offset, offset, ACCEPT)))[0].error_code == ErrorCode.NONE

    until(lambda: starts() != before)
    assert summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10)


def test_a_member_whose_connection_is_gone_holds_nothing(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    lost = Wire(node.bootstrap)
    first, second = Member(lost, group, topic).join(), Member(wire, group, topic).join()
    assert first.got() == [(0, 9, 1)]

    lost.close()

    assert second.got(wait_ms=10_000) == [(0, 9, 2)], "long before the lock of a minute is over"
    back = Member(wire, group, topic)
    back.id, back.epoch, back.assigned, back.session = first.id, first.epoch, first.assigned, 1
    assert back.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_that_comes_again_on_another_connection_keeps_its_session(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    lost = Wire(node.bootstrap)
    member = Member(lost, group, topic).join()
    member.fetch(records=1, share_acquire_mode=1)
    member.wire, member.session = wire, 0
    assert member.got(records=1, share_acquire_mode=1) == [(1, 1, 1)]

    lost.close()

    assert member.got(records=1, share_acquire_mode=1) == [(2, 2, 1)]
    assert rows(member.acknowledge((0, 2, ACCEPT)))[0].error_code == ErrorCode.NONE


# -- dead letters ------------------------------------------------------------------------


def letters(node: Cluster, topic: str, count: int) -> list[tuple[bytes | None, dict[str, str]]]:
    """Return what is in a dead-letter topic, once there are so many."""
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader"})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, dict[str, str]]] = []

    def is_enough() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            headers = {name: value.decode() for name, value in message.headers() or ()}
            found.append((message.value(), headers))
        return len(found) >= count

    try:
        until(is_enough)
    finally:
        reader.close()
    return found


def test_what_nobody_could_use_goes_to_the_dead_letter_topic(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    create(wire, f"dlq.{topic}", ottla_errors_deadletterqueue_group_enable="true")
    configure(
        wire,
        group,
        ottla_errors_deadletterqueue_topic_name=f"dlq.{topic}",
        ottla_errors_deadletterqueue_copy_record_enable="true",
    )
    member = Member(wire, group, topic).join()
    assert member.got() == [(0, 9, 1)]
    member.acknowledge((0, 2, ACCEPT), (3, 3, REJECT), (4, 8, ACCEPT), (9, 9, RELEASE))
    for delivery in range(2, 6):
        assert member.got() == [(9, 9, delivery)]
        member.acknowledge((9, 9, RELEASE))

    found = letters(node, f"dlq.{topic}", 2)

    assert [value for value, _ in found] == [b"3", b"9"]
    assert [headers["_dlq.errors.reason"] for _, headers in found] == [
        "rejected",
        "delivery count limit reached",
    ]
    assert found[1][1] == {
        "_dlq.errors.group": group,
        "_dlq.errors.topic": topic,
        "_dlq.errors.partition": "0",
        "_dlq.errors.offset": "9",
        "_dlq.errors.delivery.count": "5",
        "_dlq.errors.reason": "delivery count limit reached",
    }
    until(lambda: summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10))
    assert member.got(wait_ms=10) == [], "and it is delivered no more"


@pytest.mark.parametrize("name", ["orders", "dlq.closed"])
def test_a_topic_that_does_not_allow_it_gets_no_dead_letters(
    wire: Wire, node: Cluster, group: str, topic: str, name: str
) -> None:
    dead = f"{name}-{topic}"
    enabled = {} if name == "dlq.closed" else {"ottla_errors_deadletterqueue_group_enable": "true"}
    create(wire, dead, **enabled)
    configure(wire, group, ottla_errors_deadletterqueue_topic_name=dead)
    member = Member(wire, group, topic).join()
    member.fetch()

    member.acknowledge((0, 9, REJECT))

    until(lambda: summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10))
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader"})
    assert reader.get_watermark_offsets(TopicPartition(dead, 0), timeout=SECONDS_MAX) == (0, 0)
    reader.close()
