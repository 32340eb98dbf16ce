"""Metadata, DescribeTopicPartitions and ListConfigResources, asked of an image; auto-creation."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api.cluster.auto_create import (
    IN_FLIGHT_MAX,
    TOPICS_PER_REQUEST,
    TopicCreation,
    creatable_topic,
)
from ottla.api.cluster.describe_settings import DescribeHandlers
from ottla.api.cluster.metadata import ClusterHandlers, InvalidRequest
from ottla.api.cluster.topic_partitions import TopicPartitionsHandlers
from ottla.api.security.access import Access
from ottla.api.surface.replies import finish
from ottla.api.surface.routes import Caller
from ottla.config.generated import BrokerConfig
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid
from ottla.runtime.ports import Address
from ottla.security.acl import AclOperation

ME = Caller("User:a", "client", Address("10.0.0.1", 1), "CLIENT")
GOOD_DIR, LOST_DIR = Uuid(b"g" * 16), Uuid(b"l" * 16)


def broker(node_id: int, *, fenced: bool = False, listener: str = "CLIENT") -> Message:
    return RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=node_id,
        end_points=[BrokerEndpoint(listener, f"h{node_id}", 9092, 0)],
        fenced=fenced,
        log_dirs=[GOOD_DIR],
    )


def topic(name: str, partitions: int, **fields: object) -> Iterable[Message]:
    topic_id = Uuid(name.encode().ljust(16, b"."))
    yield TopicRecord(name, topic_id)
    for number in range(partitions):
        given: dict[str, object] = {
            "replicas": [1, 2, 3],
            "isr": [1, 2],
            "leader": 1,
            "leader_epoch": 4,
            "directories": [GOOD_DIR, GOOD_DIR, GOOD_DIR],
        }
        yield PartitionRecord(partition_id=number, topic_id=topic_id, **{**given, **fields})  # type: ignore[arg-type]


IMAGE: Image = replay_all(
    EMPTY,
    [
        FeatureLevelRecord("metadata.version", 29),
        broker(1),
        broker(2, fenced=True),
        broker(3, listener="OTHER"),
        *topic("a", 3),
        *topic("b", 2, leader=3),
        *topic("c", 4, directories=[LOST_DIR, GOOD_DIR, GOOD_DIR]),
        *topic("d", 1, leader=-1, eligible_leader_replicas=[2], last_known_elr=[3]),
        ConfigRecord(16, "metrics-1", "interval.ms", "1000"),
        ConfigRecord(32, "group-1", "consumer.session.timeout.ms", "50000"),
    ],
)


@dataclass
class Wanted:
    topics: list[str] = field(default_factory=list)

    def __call__(self, caller: Caller, topics: Iterable[str]) -> None:
        self.topics += topics


def metadata(request: MetadataRequest, version: int = 13, wanted: Wanted | None = None):  # type: ignore[no-untyped-def]
    handlers = ClusterHandlers("C", lambda: IMAGE, lambda: 1, create=wanted or Wanted())
    return finish(handlers.metadata_steps(ME, request, version)).topics


def names(*asked: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in asked]


# -- Metadata --------------------------------------------------------------------


def test_metadata_lists_fenced_brokers_while_no_broker_is_unfenced() -> None:
    """An empty list would make librdkafka forget every broker, and wait for one for ever."""
    fenced = [broker(1, fenced=True), broker(2, fenced=True), broker(3, listener="OTHER")]
    unfenced = replay_all(EMPTY, [*fenced, broker(4)])
    nobody = replay_all(EMPTY, fenced[:2])

    def listed(image: Image) -> list[int]:
        handlers = ClusterHandlers("C", lambda: image, lambda: 1, create=Wanted())
        return [
            each.node_id
            for each in finish(handlers.metadata_steps(ME, MetadataRequest([]), 13)).brokers
        ]

    assert listed(unfenced) == [4]
    assert listed(nobody) == [1, 2]


def test_topic_requested_twice_is_described_and_created_once() -> None:
    wanted = Wanted()
    request = MetadataRequest(names(*["a", "new"] * 5000), allow_auto_topic_creation=True)
    replies = metadata(request, wanted=wanted)
    assert [(t.name, t.error_code) for t in replies] == [
        ("a", ErrorCode.NONE),
        ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert wanted.topics == ["new"]


def test_only_valid_topics_are_created_and_only_if_the_request_allows_it() -> None:
    wanted = Wanted()
    bad = "no/name"
    replies = metadata(MetadataRequest(names("new", bad, "")), wanted=wanted)
    assert [t.error_code for t in replies] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert wanted.topics == ["new"]
    metadata(MetadataRequest(names("other"), allow_auto_topic_creation=False), wanted=wanted)
    by_id = MetadataRequest([MetadataRequestTopic(Uuid(b"x" * 16), None)])
    assert metadata(by_id, wanted=wanted)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    metadata(MetadataRequest(None), wanted=wanted)
    assert wanted.topics == ["new"]


@pytest.mark.parametrize(
    "item", [MetadataRequestTopic(name=None), MetadataRequestTopic(Uuid(b"x" * 16), "a")]
)
def test_topic_ids_need_a_version_that_has_them(item: MetadataRequestTopic) -> None:
    with pytest.raises(InvalidRequest):
        metadata(MetadataRequest([item]), 11)


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_leader_without_the_listener_has_its_own_error_since_version_6(
    version: int, code: ErrorCode
) -> None:
    (reply,) = metadata(MetadataRequest(names("b")), version)
    assert {(p.error_code, p.leader_id) for p in reply.partitions} == {(code, -1)}


def test_version_0_lists_only_live_brokers() -> None:
    (reply,) = metadata(MetadataRequest(names("a")), 0)
    first = reply.partitions[0]
    assert (first.replica_nodes, first.isr_nodes, first.leader_id) == ([1], [1], 1)
    assert first.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    (reply,) = metadata(MetadataRequest(names("a")), 1)
    assert reply.partitions[0].replica_nodes == [1, 2, 3]


def test_replica_in_a_failed_directory_of_a_live_broker_is_offline() -> None:
    a, c = metadata(MetadataRequest(names("a", "c")))
    assert a.partitions[0].offline_replicas == [2, 3]
    assert c.partitions[0].offline_replicas == [1, 2, 3]


# -- DescribeTopicPartitions -----------------------------------------------------


def page(limit: int, cursor: RequestCursor | None = None, *asked: str, most: int = 2000):  # type: ignore[no-untyped-def]
    handlers = TopicPartitionsHandlers(lambda: IMAGE, most)
    request = DescribeTopicPartitionsRequest([TopicRequest(n) for n in asked], limit, cursor)
    return finish(handlers.describe_topic_partitions_steps(ME, request, 0))


@given(st.integers(-3, 12), st.integers(1, 12))
def test_pages_together_list_every_partition_once(limit: int, most: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(20):
        reply = page(limit, cursor, most=most)
        found = [(t.name, p.partition_index) for t in reply.topics for p in t.partitions]
        assert len(found) <= max(1, min(limit, most))
        seen += found
        if reply.next_cursor is None:
            break
        cursor = RequestCursor(reply.next_cursor.topic_name, reply.next_cursor.partition_index)
    assert seen == [
        (n, p) for n, count in zip("abcd", (3, 2, 4, 1), strict=True) for p in range(count)
    ]


def test_page_has_eligible_leaders_and_unknown_topics() -> None:
    reply = page(100, None, "d", "none", "no/name", "d")
    assert [(t.name, t.error_code) for t in reply.topics] == [
        ("d", ErrorCode.NONE),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    (only,) = reply.topics[0].partitions
    assert (only.eligible_leader_replicas, only.last_known_elr, only.leader_id) == ([2], [3], -1)


@pytest.mark.parametrize("cursor", [RequestCursor("b", 0), RequestCursor("a", -1)])
def test_invalid_cursor_is_rejected(cursor: RequestCursor) -> None:
    with pytest.raises(InvalidRequest):
        page(10, cursor, "a")


def test_cursor_after_the_last_partition_continues_with_the_next_topic() -> None:
    reply = page(10, RequestCursor("a", 7), "a", "b")
    assert [(t.name, len(t.partitions)) for t in reply.topics] == [("a", 0), ("b", 2)]


# -- ListConfigResources ---------------------------------------------------------


def listed(types: list[int], version: int = 1) -> list[tuple[int, str]] | ErrorCode:
    handlers = DescribeHandlers(1, lambda: IMAGE, {})
    request = ListConfigResourcesRequest(types)
    reply = handlers.on_list_config_resources(ME, request, version)
    if reply.error_code:
        return ErrorCode(reply.error_code)
    return [(r.resource_type, r.resource_name) for r in reply.config_resources]


def test_config_resources_are_listed_by_type() -> None:
    assert listed([]) == [
        (16, "metrics-1"),
        *((2, name) for name in "abcd"),
        *((4, node) for node in "12"),
        *((8, node) for node in "12"),
        (32, "group-1"),
    ]
    assert listed([32, 16]) == [(16, "metrics-1"), (32, "group-1")]
    assert listed([], version=0) == [(16, "metrics-1")]
    assert listed([7]) is ErrorCode.UNSUPPORTED_VERSION


# -- auto-creation ---------------------------------------------------------------


@dataclass
class Controller:
    asked: list[tuple[str, list[str]]] = field(default_factory=list)
    gates: list["asyncio.Future[None]"] = field(default_factory=list)
    fails: bool = False

    async def forward_message(self, caller: Caller, request: Message, timeout_ms: int) -> Message:
        assert isinstance(request, CreateTopicsRequest) and timeout_ms == 500
        self.asked.append((caller.principal, [each.name for each in request.topics]))
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate
        if self.fails:
            raise RequestTimedOut("nobody")
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(each.name) for each in request.topics]
        )


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("fails", [False, True])
def test_topic_being_created_is_not_requested_twice(fails: bool) -> None:
    async def main() -> None:
        controller = Controller(fails=fails)
        creation = TopicCreation(controller, CreatableTopic, 500)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(creation.run(lambda: None))
            creation.want(ME, ["a", "b"])
            await settle()
            creation.want(ME, ["b", "c"])
            creation.want(ME, ["d", "c"])
            await settle()
            assert controller.asked == [("User:a", ["a", "b"])]
            controller.gates[0].set_result(None)
            await settle()
            assert controller.asked[1:] == [("User:a", ["c", "d"])]
            creation.want(ME, ["a"])
            controller.gates[1].set_result(None)
            await settle()
            assert controller.asked[2:] == [("User:a", ["a"])]
            running.cancel()

    asyncio.run(main())


def test_topics_being_created_are_bounded() -> None:
    async def main() -> None:
        controller = Controller()
        creation = TopicCreation(controller, CreatableTopic, 500)
        creation.want(ME, (f"t{n}" for n in range(IN_FLIGHT_MAX + 7)))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(creation.run(lambda: None))
            await settle()
            for gate in controller.gates:
                gate.set_result(None)
                await settle()
            sizes = [len(topics) for _, topics in controller.asked]
            assert sizes == [TOPICS_PER_REQUEST] * (IN_FLIGHT_MAX // TOPICS_PER_REQUEST)
            running.cancel()

    asyncio.run(main())


def test_internal_topics_are_created_with_their_own_settings() -> None:
    config = BrokerConfig(
        node_id=1,
        process_roles=("broker",),
        controller_listener_names=("CONTROLLER",),
        num_partitions=4,
        default_replication_factor=2,
    )

    def made(name: str) -> tuple[int, int, dict[str, str | None]]:
        found = creatable_topic(name, config)
        configs = {each.name: each.value for each in found.configs}
        return found.num_partitions, found.replication_factor, configs

    assert made("plain") == (4, 2, {})
    assert made("__consumer_offsets")[:2] == (50, 3)
    assert made("__consumer_offsets")[2]["cleanup.policy"] == "compact"
    assert made("__transaction_state")[2]["min.insync.replicas"] == "2"
    assert made("__share_group_state")[2]["retention.ms"] == "-1"


class Hiding(Access):
    """Allows everything but describing one topic."""

    def __init__(self, hidden: str) -> None:
        super().__init__()
        self._hidden = hidden

    def allows(self, caller: Caller, operation: object, kind: object, name: str, **_: bool) -> bool:  # type: ignore[override]
        return name != self._hidden


def test_refused_topics_are_last_and_named_on_a_full_page_too() -> None:
    asked = [TopicRequest(name) for name in ("d", "b", "a")]
    for hidden, limit in (("a", 100), ("d", 1)):
        handlers = TopicPartitionsHandlers(lambda: IMAGE, 2000, Hiding(hidden))
        request = DescribeTopicPartitionsRequest(asked, limit)
        *replies, last = finish(handlers.describe_topic_partitions_steps(ME, request, 0)).topics
        assert (last.name, last.error_code) == (hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert not last.partitions and hidden not in [topic.name for topic in replies]


class NoCreation(Access):
    """Allows everything but the creation of topics, and describing a hidden one."""

    def allows(self, caller: Caller, operation: object, kind: object, name: str, **_: bool) -> bool:  # type: ignore[override]
        return operation is not AclOperation.CREATE and name != "__consumer_offsets"


def test_invalid_name_is_refused_to_a_client_that_may_not_create_topics() -> None:
    wanted = Wanted()
    handlers = ClusterHandlers("C", lambda: IMAGE, lambda: 1, create=wanted, access=NoCreation())
    asked = MetadataRequest(names("a", "no/name", "__consumer_offsets"))
    replies = finish(handlers.metadata_steps(ME, asked, 13)).topics
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(t.name, t.error_code) for t in replies] == [
        ("a", ErrorCode.NONE),
        ("no/name", refused),
        ("__consumer_offsets", refused),
    ]
    assert not replies[2].is_internal, "as in Kafka, nothing is said about a hidden topic"
    assert wanted.topics == []
