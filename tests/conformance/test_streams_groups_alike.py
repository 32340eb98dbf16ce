"""The same heartbeats to Apache Kafka and to a node of ours get the same answers (KIP-1071)."""

import itertools
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from conftest import Broker
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
    CopartitionGroup,
    KeyValue,
    RequestEndpoint,
    RequestTaskIds,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.schema import Message
from ottla.testing import run_node

pytestmark = pytest.mark.jvm

SECONDS_MAX = 60.0
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
        time.sleep(0.05)


def stores(source: str, epoch: int = 1, **fields: Any) -> Topology:
    store = TopicInfo(f"{source}-store-changelog", 0, 1, [KeyValue("cleanup.policy", "compact")])
    fields.setdefault("state_changelog_topics", [store])
    return Topology(epoch, [Subtopology("0", [source], **fields)])


def joining(group: str, member: str, topology: Topology | None) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group,
        member,
        0,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"p-{member}",
    )


class Play:
    """One run of the piece: what was answered, in order."""

    def __init__(self, address: str) -> None:
        self.wire = Wire(address)
        self.seen: list[Any] = []
        admin = AdminClient({"bootstrap.servers": address})
        for future in admin.create_topics([NewTopic("lines", 3, 1)]).values():
            future.result(SECONDS_MAX)
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        until(lambda: self.wire.ask(asked).coordinators[0].error_code == ErrorCode.NONE)
        self.wire.ask_coordinator(StreamsGroupHeartbeatRequest("nobody", "m", 3))

    def beat(self, request: StreamsGroupHeartbeatRequest) -> Any:
        """Send a heartbeat and note the answer."""
        reply = self.wire.ask_coordinator(request)
        self.note(reply)
        return reply

    def note(self, reply: Any) -> None:
        said = [(each.status_code, each.status_detail) for each in reply.status or ()]
        endpoints = [
            (each.user_endpoint.host, tasks_of_topics(each.active_partitions))
            for each in reply.partitions_by_user_endpoint or ()
        ]
        self.seen.append(
            (
                ErrorCode(reply.error_code).name,
                reply.error_message,
                reply.member_epoch,
                said,
                tasks(reply.active_tasks),
                tasks(reply.standby_tasks),
                sorted(endpoints),
                reply.heartbeat_interval_ms,
            )
        )

    def go_on(self, group: str, member: str, epoch: int, numbers: list[int] | None = None) -> Any:
        """Send what a running member sends, with the tasks it runs where they are named."""
        request = StreamsGroupHeartbeatRequest(group, member, epoch)
        if numbers is not None:
            listed = [RequestTaskIds("0", numbers)] if numbers else []
            request = replace(request, active_tasks=listed, standby_tasks=[], warmup_tasks=[])
        return self.beat(request)

    def describe(self, group: str) -> None:
        (found,) = self.wire.ask(StreamsGroupDescribeRequest([group])).groups
        self.seen.append(
            (
                found.error_code,
                found.error_message,
                found.group_state,
                found.group_epoch,
                found.assignment_epoch,
                found.topology,
                [(m.member_id, m.assignment, m.target_assignment) for m in by_id(found.members)],
                [(m.process_id, m.topology_epoch, m.is_classic) for m in by_id(found.members)],
            )
        )


def tasks(listed: Any) -> Any:
    if listed is None:
        return None
    return sorted((each.subtopology_id, sorted(each.partitions)) for each in listed)


def tasks_of_topics(listed: Any) -> Any:
    return sorted((each.topic, sorted(each.partitions)) for each in listed)


def by_id(members: list[Any]) -> list[Any]:
    return sorted(members, key=lambda each: each.member_id)


def refusals(play: Play) -> None:
    """What no client sends."""
    good = joining("refused", "m", stores("lines"))
    for bad in (
        replace(good, member_id=""),
        replace(good, group_id=""),
        replace(good, rack_id=""),
        replace(good, instance_id="i"),
        replace(good, rebalance_timeout_ms=-1),
        replace(good, topology=None),
        replace(good, member_epoch=5),
        replace(good, member_epoch=-3, topology=None),
        replace(good, standby_tasks=None),
        replace(good, active_tasks=[RequestTaskIds("0", [0])]),
        replace(good, warmup_tasks=[RequestTaskIds("0", [0])]),
        replace(good, task_offsets=[]),
        replace(good, topology=stores("lines", source_topic_regex=["l.*"])),
        replace(good, topology=stores("lines", state_changelog_topics=[TopicInfo("s", 3)])),
        replace(good, topology=stores("__consumer_offsets", state_changelog_topics=[])),
        replace(good, topology=stores("no topic", state_changelog_topics=[])),
        StreamsGroupHeartbeatRequest("nobody", "m", 3),
        StreamsGroupHeartbeatRequest("nobody", "m", -1),
    ):
        play.beat(bad)
    play.describe("refused")


def missing_sources(play: Play) -> None:
    play.beat(joining("early", "m", stores("nothing")))
    play.go_on("early", "m", 2)
    play.describe("early")
    play.go_on("early", "m", -1)


def unequal_topics(play: Play) -> None:
    """A join of topics with unlike numbers of partitions."""
    topics = ["lines", "__x-five"]
    group = CopartitionGroup(source_topics=[0, 1])
    topology = Topology(0, [Subtopology("0", topics, copartition_groups=[group])])
    play.beat(joining("unequal", "m", topology))
    play.go_on("unequal", "m", -1)


def two_members(play: Play) -> None:
    """Topics are made, tasks given, and shared with later members."""
    first = replace(joining("app", "a", stores("lines")), user_endpoint=RequestEndpoint("here", 1))
    play.beat(first)

    def has_tasks() -> bool:
        reply = play.wire.ask(
            StreamsGroupHeartbeatRequest(
                "app", "a", 2, active_tasks=[], standby_tasks=[], warmup_tasks=[]
            )
        )
        if reply.member_epoch > 2:
            play.note(reply)
        return bool(reply.member_epoch > 2)

    until(has_tasks)
    play.describe("app")
    play.beat(joining("app", "b", stores("lines")))
    play.go_on("app", "a", 3, [0, 1, 2])
    play.describe("app")
    play.go_on("app", "b", 4, [])
    play.go_on("app", "a", 3, [0, 1])
    play.go_on("app", "b", 4, [])
    play.describe("app")
    for epoch, numbers in ((9, None), (1, None), (3, [2]), (4, [7])):
        play.go_on("app", "a", epoch, numbers)
    play.go_on("app", "c", 4)
    play.beat(joining("app", "c", stores("lines", epoch=2)))
    play.beat(joining("app", "c", stores("other", epoch=1)))
    play.beat(joining("app", "c", stores("lines", epoch=0)))
    play.beat(replace(StreamsGroupHeartbeatRequest("app", "c", 5), shutdown_application=True))
    play.go_on("app", "b", 4)


def the_end(play: Play) -> None:
    listed = play.wire.ask(ListGroupsRequest([], ["streams"])).groups
    play.seen.append(sorted((e.group_id, e.protocol_type, e.group_type) for e in listed))
    play.seen.append([r.error_code for r in play.wire.ask(DeleteGroupsRequest(["app"])).results])
    for member in ("a", "b", "c"):
        play.go_on("app", member, -1)
    play.describe("app")
    play.seen.append([r.error_code for r in play.wire.ask(DeleteGroupsRequest(["app"])).results])
    play.describe("app")


def played(address: str) -> list[Any]:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic("__x-five", 5, 1)]).values():
        future.result(SECONDS_MAX)
    play = Play(address)
    for part in (refusals, missing_sources, unequal_topics, two_members, the_end):
        play.seen.append(part.__name__)
        part(play)
    play.wire.close()
    return play.seen


def test_kafka_and_we_answer_alike(broker: Broker) -> None:
    with (broker.directory / "server.properties").open("a") as properties:
        properties.writelines(f"{key}={value}\n" for key, value in QUICK.items())
    broker.start()
    theirs = played(broker.address)
    with run_node(config=QUICK) as node:
        ours = played(node.bootstrap)
    for their, our in itertools.zip_longest(theirs, ours):
        assert our == their
