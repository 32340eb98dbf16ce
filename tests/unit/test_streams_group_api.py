"""StreamsGroupHeartbeat and StreamsGroupDescribe as clients see them, and topic creation."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from controller_images import feature
from coordinator_harness import FakeClock, FakeLog
from streams_harness import counting, image_with_topics

from ottla.api.groups.group_access import GroupAccess
from ottla.api.groups.streams_groups import StreamsGroupHandlers
from ottla.api.groups.streams_topics import KNOWN_MAX, StreamsTopicCreation, creatable
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.kind import StreamsKind
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.coordinators.groups.streams.topics import Status
from ottla.coordinators.groups.streams.topology import InternalTopic
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch
from ottla.runtime.pending import Pending

INTERNAL = ["g-counts-changelog", "g-words-repartition"]
ON = feature("streams.version", 1)


class Peer:
    host = "1.2.3.4"


class AsCaller:
    client_id = "me"
    peer = Peer()
    principal = "User:me"


CALLER = cast("Caller", AsCaller())


class Topics:
    """Creates topics, with given failures."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.keep_ms = 0
        self.failed: dict[str, str] = {}

    def want(self, caller: Caller, topics: Any, keep_ms: int) -> None:
        self.wanted += [each.name for each in topics]
        self.keep_ms = keep_ms

    def failures(self, names: Any) -> dict[str, str]:
        return {name: self.failed[name] for name in names if name in self.failed}


class Broker:
    """The handlers over one in-memory shard."""

    def __init__(
        self,
        access: GroupAccess | None = None,
        *,
        may_create: Any = lambda caller, name: True,
        is_led: bool = True,
        is_served: bool = True,
    ) -> None:
        self.image = image_with_topics({"t": 2}, ON)
        streams = StreamsSettings(initial_rebalance_delay_ms=0, is_served=is_served)
        self.topics = Topics()

        def machine(index: int) -> GroupMachine:
            kind = StreamsKind(StreamsContext(streams, lambda: self.image))
            return GroupMachine(GroupSettings(), kinds=(kind,))

        log = FakeLog()
        runtime = CoordinatorRuntime[GroupMachine](
            RuntimeParts(
                "group-coordinator",
                "__consumer_offsets",
                lambda index: log,
                machine,
                ShardSettings(FakeClock(), decode_group_record),
            )
        )
        if is_led:
            runtime.on_led("__consumer_offsets", 0, LeaderEpoch(1))
            runtime._load_some()
        groups = GroupCoordinator(runtime, GroupSettings(), cast("Any", None))
        self.handlers = StreamsGroupHandlers(
            groups,
            streams,
            lambda: self.image,
            self.topics,
            access or GroupAccess(),
            may_create,
        )

    def complete(self) -> None:
        """Create all topics."""
        self.image = image_with_topics({"t": 2, **dict.fromkeys(INTERNAL, 2)}, ON)

    def beat(self, member_id: str = "a", epoch: int = 0, **fields: Any) -> Any:
        if epoch == 0:
            fields = {"topology": counting(), "rebalance_timeout_ms": 1000, **fields}
            fields |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        request = StreamsGroupHeartbeatRequest("g", member_id, epoch, **fields)
        reply = self.handlers.on_heartbeat(CALLER, request, 0)
        return cast("Any", reply).outcome() if isinstance(reply, Pending) else reply

    def describe(self, *groups: str, operations: bool = False) -> list[Any]:
        request = StreamsGroupDescribeRequest(list(groups), operations)
        return list(self.handlers.on_describe(CALLER, request, 0).groups)


def test_a_member_joins_and_is_described() -> None:
    broker = Broker()
    broker.complete()
    assert broker.beat().error_code == ErrorCode.NONE
    assert broker.topics.wanted == []
    (group,) = broker.describe("g", operations=True)
    assert (group.group_state, group.group_epoch, group.authorized_operations > 0) == (
        "Stable",
        2,
        True,
    )
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("me", "/1.2.3.4")


def test_missing_topics_are_created_and_failures_reported() -> None:
    broker = Broker()
    reply = broker.beat()
    assert broker.topics.wanted == INTERNAL
    assert broker.topics.keep_ms == 10_000
    (status,) = reply.status
    assert status.status_code == Status.MISSING_INTERNAL_TOPICS
    assert "failed" not in status.status_detail
    broker.topics.failed = {INTERNAL[0]: "no room"}
    (status,) = broker.beat().status
    assert status.status_detail.endswith(f"; Creation failed: {INTERNAL[0]} (no room).")


def test_internal_topics_are_not_created_without_authorization() -> None:
    broker = Broker(may_create=lambda caller, name: name != INTERNAL[0])
    (status,) = broker.beat().status
    assert broker.topics.wanted == []
    assert status.status_detail.endswith(f"; Unauthorized to CREATE on topics {INTERNAL[0]}.")


def test_rejected_heartbeat_has_an_error_message() -> None:
    reply = Broker().beat(instance_id="i")
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert reply.error_message == "Static membership is not yet supported."


def test_request_to_partition_not_led_here_is_rejected() -> None:
    broker = Broker(is_led=False)
    for reply in (broker.beat(), *broker.describe("g")):
        assert (reply.error_code, reply.error_message) == (ErrorCode.NOT_COORDINATOR, None)


def test_disabled_protocol_returns_unsupported_version() -> None:
    assert Broker(is_served=False).beat().error_code == ErrorCode.UNSUPPORTED_VERSION
    broker = Broker()
    broker.image = image_with_topics({"t": 2}, feature("streams.version", 0))
    assert broker.beat().error_code == ErrorCode.UNSUPPORTED_VERSION
    [group] = broker.describe("g")
    assert (group.error_code, group.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_members_need_the_group_and_every_topic_of_their_topology() -> None:
    nobody = GroupAccess(read_group=lambda caller, name: False)
    assert Broker(nobody).beat().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    for each in ("t", *INTERNAL):
        hidden = {each}
        access = GroupAccess(describe_topic=lambda caller, name, hidden=hidden: name not in hidden)
        assert Broker(access).beat().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_describe_requires_authorization() -> None:
    seen = {"t", *INTERNAL}
    access = GroupAccess(
        describe_group=lambda caller, name: name != "hidden",
        describe_topic=lambda caller, name: name in seen,
    )
    broker = Broker(access)
    broker.complete()
    broker.beat()
    hidden, nameless, found = broker.describe("hidden", "", "g")
    assert hidden.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert len(found.members) == 1
    seen.remove(INTERNAL[0])
    (found,) = broker.describe("g")
    assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (found.members, found.topology) == ([], None)


# -- making topics -----------------------------------------------------------------------


class Controller:
    """The active controller; ``refuses`` by name, ``fault`` if it does not answer."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.refuses: dict[str, ErrorCode] = {}
        self.is_gone = False
        self.answered = asyncio.Event()

    async def forward_message(self, caller: Caller, request: Message, timeout_ms: int) -> Message:
        assert isinstance(request, CreateTopicsRequest)
        self.asked.append([each.name for each in request.topics])
        self.answered.set()
        if self.is_gone:
            raise RequestTimedOut("nobody answers")
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(each.name, error_code=self.refuses.get(each.name, 0))
                for each in request.topics
            ]
        )


def topics(*names: str) -> list[InternalTopic]:
    return [InternalTopic(name, 2) for name in names]


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


def test_topics_are_made_once_and_failures_are_kept_for_a_while() -> None:
    async def body() -> None:
        controller, clock = Controller(), FakeClock()
        creation = StreamsTopicCreation(controller, clock, 1000)
        creation.want(CALLER, topics("a", "b"), 5000)
        creation.want(CALLER, topics("b", "c"), 5000)
        controller.refuses = {
            "b": ErrorCode.INVALID_REPLICATION_FACTOR,
            "c": ErrorCode.TOPIC_ALREADY_EXISTS,
        }
        task = asyncio.create_task(creation.run(lambda: None))
        await wait(lambda: bool(creation.failures(["b"])))
        assert controller.asked[:2] == [["a", "b"], ["c"]]
        assert creation.failures(["a", "b", "c"]) == {"b": "INVALID_REPLICATION_FACTOR"}
        creation.want(CALLER, topics("b"), 5000)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(controller.asked) == 2, "it failed a moment ago"
        clock.advance(5000)
        assert not creation.failures(["b"])
        controller.refuses, controller.is_gone = {}, True
        creation.want(CALLER, topics("b"), 5000)
        await wait(lambda: bool(creation.failures(["b"])))
        assert controller.asked == [["a", "b"], ["c"], ["b"]]
        assert creation.failures(["b"]) == {"b": "nobody answers"}
        task.cancel()

    run(body())


async def wait(is_so: Any) -> None:
    while not is_so():  # noqa: ASYNC110 - the work runs on this event loop
        await asyncio.sleep(0)


def test_requests_in_flight_are_bounded() -> None:
    async def body() -> None:
        controller = Controller()
        creation = StreamsTopicCreation(controller, FakeClock(), 1000)
        creation.want(CALLER, topics(*(f"t{each}" for each in range(KNOWN_MAX + 5))), 5000)
        task = asyncio.create_task(creation.run(lambda: None))
        await wait(controller.answered.is_set)
        assert len(controller.asked[0]) == KNOWN_MAX
        task.cancel()

    run(body())


@pytest.mark.parametrize(("factor", "asked"), [(0, -1), (3, 3)])
def test_topic_without_replication_factor_uses_the_cluster_default(factor: int, asked: int) -> None:
    topic = creatable(InternalTopic("a", 7, factor, (("k", "v"),)))
    assert (topic.num_partitions, topic.replication_factor) == (7, asked)
    assert [(each.name, each.value) for each in topic.configs] == [("k", "v")]
