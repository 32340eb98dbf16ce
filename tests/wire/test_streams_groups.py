"""Streams groups of a running node: internal topics, tasks, deletion (KIP-1071)."""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.coordinators.groups.streams.topics import Status
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    RequestTaskIds,
    ResponseTaskIds,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.schema import Message
from ottla.testing import Cluster, run_node

QUICK = {
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 100,
    "group.streams.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
}

NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class Wire:
    """A blocking connection that speaks the newest version of everything."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._numbers = itertools.count(1)

    def ask(self, request: Message) -> Any:
        key = ApiKey(request.SCHEMA.api_key or 0)
        version = APIS[key].versions[1]
        header = RequestHeader(key, version, next(self._numbers), "wire")
        self._socket.sendall(bytes(request_frame(header, request)))
        body = self._read(struct.unpack(">i", self._read(4))[0])
        _, rest = parse_response_header(key, version, body)
        return decode(response_class(key), version, rest)

    def ask_coordinator(self, request: Message) -> Any:
        """Ask until there is a coordinator: a busy machine may lose it for a moment."""
        replies: list[Any] = []

        def is_answered() -> bool:
            replies.append(self.ask(request))
            return replies[-1].error_code not in NOT_YET

        until(is_answered)
        return replies[-1]

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


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_node(config=QUICK) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for future in admin.create_topics([NewTopic("lines", 3, 1)]).values():
            future.result(SECONDS_MAX)
        yield node


@pytest.fixture
def wire(node: Cluster) -> Iterator[Wire]:
    wire = Wire(node.bootstrap)
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    until(lambda: wire.ask(asked).coordinators[0].error_code == ErrorCode.NONE)
    yield wire
    wire.close()


def topology(store: TopicInfo) -> Topology:
    return Topology(0, [Subtopology("0", ["lines"], state_changelog_topics=[store])])


class Member:
    """A thread of an application, by hand."""

    def __init__(self, wire: Wire, group: str, name: str, store: TopicInfo) -> None:
        self.wire, self.group, self.name, self.store = wire, group, name, store
        self.epoch = 0
        self.active: list[ResponseTaskIds] = []
        self.statuses: list[Any] = []

    def beat(self, epoch: int | None = None, **fields: Any) -> Any:
        epoch = self.epoch if epoch is None else epoch
        if epoch == 0:
            fields.setdefault("topology", topology(self.store))
            fields |= {"rebalance_timeout_ms": 60_000, "process_id": f"p-{self.name}"}
        request = StreamsGroupHeartbeatRequest(
            self.group,
            self.name,
            epoch,
            active_tasks=[RequestTaskIds(e.subtopology_id, e.partitions) for e in self.active],
            standby_tasks=[],
            warmup_tasks=[],
            **fields,
        )
        reply = self.wire.ask_coordinator(request)
        if reply.error_code == ErrorCode.NONE:
            self.epoch = reply.member_epoch
            self.statuses = reply.status
            if reply.active_tasks is not None:
                self.active = reply.active_tasks
        return reply

    def has(self, count: int) -> bool:
        """Send a heartbeat; return whether it runs so many tasks then."""
        assert self.beat().error_code == ErrorCode.NONE
        return sum(len(each.partitions) for each in self.active) == count


def join(wire: Wire, group: str, name: str, store: TopicInfo) -> Member:
    """Join a group."""
    member = Member(wire, group, name, store)
    assert member.beat().error_code == ErrorCode.NONE
    return member


def test_internal_topics_are_created_and_tasks_assigned(node: Cluster, wire: Wire) -> None:
    store = TopicInfo("app-store-changelog", 0, 0, [KeyValue("cleanup.policy", "compact")])
    first = join(wire, "app", "one", store)
    assert [each.status_code for each in first.statuses] == [Status.MISSING_INTERNAL_TOPICS]
    until(lambda: first.has(3))
    made = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics().topics
    assert len(made["app-store-changelog"].partitions) == 3
    second = join(wire, "app", "two", store)
    until(
        lambda: sum((first.has(2), second.has(1))) == 2 or sum((first.has(1), second.has(2))) == 2
    )
    (described,) = wire.ask(StreamsGroupDescribeRequest(["app"])).groups
    assert (described.group_state, len(described.members)) == ("Stable", 2)
    listed = {each.group_id: each for each in wire.ask(ListGroupsRequest([], ["streams"])).groups}
    assert (listed["app"].group_type, listed["app"].group_state) == ("streams", "Stable")
    assert deleted(wire, "app") == ErrorCode.NON_EMPTY_GROUP
    for member in (first, second):
        assert member.beat(-1).error_code == ErrorCode.NONE
    assert deleted(wire, "app") == ErrorCode.NONE
    (described,) = wire.ask(StreamsGroupDescribeRequest(["app"])).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def deleted(wire: Wire, group: str) -> int:
    (result,) = wire.ask(DeleteGroupsRequest([group])).results
    return int(result.error_code)


def test_failed_creation_of_an_internal_topic_is_reported(wire: Wire) -> None:
    store = TopicInfo("bad-store-changelog", 0, 0, [KeyValue("cleanup.policy", "nonsense")])
    member = join(wire, "bad", "one", store)

    def failure_is_reported() -> bool:
        member.beat()
        return any(
            "Creation failed: bad-store-changelog (" in e.status_detail for e in member.statuses
        )

    until(failure_is_reported)
    member.beat(-1)


def test_streams_group_rejects_members_of_other_protocols(wire: Wire) -> None:
    member = Member(wire, "nobody", "one", TopicInfo("s"))
    until(lambda: member.beat(5).error_code == ErrorCode.GROUP_ID_NOT_FOUND)
    reply = member.beat(0, topology=Topology(0, [Subtopology("0", ["__consumer_offsets"])]))
    assert reply.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_cluster_without_the_feature_rejects_streams_groups(wire: Wire) -> None:
    def set_level(level: int) -> None:
        update = FeatureUpdateKey("streams.version", level, upgrade_type=2 if level == 0 else 1)
        reply = wire.ask(UpdateFeaturesRequest(10_000, [update]))
        assert reply.error_code == ErrorCode.NONE, reply

    member = Member(wire, "off", "one", TopicInfo("s"))
    set_level(0)
    until(lambda: member.beat().error_code == ErrorCode.UNSUPPORTED_VERSION)
    set_level(1)
    until(lambda: member.beat(7).error_code == ErrorCode.GROUP_ID_NOT_FOUND)
