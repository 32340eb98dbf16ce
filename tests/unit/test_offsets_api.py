"""The handlers of groups and offsets with a coordinator that is elsewhere, loading or slow."""

import asyncio
from typing import Any

import pytest
from coordinator_harness import FakeClock, FakeLog
from immutables import Map

from ottla.api.groups import committed_offsets
from ottla.api.groups.classic_groups import GroupHandlers
from ottla.api.groups.committed_offsets import OffsetHandlers
from ottla.api.groups.find_coordinator import FindCoordinatorHandler
from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.surface.replies import finish, reply_of
from ottla.api.surface.routes import ANONYMOUS, Caller
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.coordinators.topics import partition_for
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.topics import PartitionRegistration, Topic, Topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotAuthorized, NotCoordinator
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.types import LeaderEpoch, Offset, Uuid
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

ID = Uuid(b"0123456789abcdef")
CALLER = Caller(ANONYMOUS, "c", Address("1.2.3.4", 5), "PLAINTEXT")
PARTITION = PartitionRegistration((1,), (1,), 1, 0, 0, (ID,))
TOPICS = Topics(
    by_id=Map({ID: Topic("t", ID, Map({0: PARTITION, 1: PARTITION}))}), ids=Map({"t": ID})
)
IMAGE = Image(topics=TOPICS)


class Harness:
    """Handlers over one shard. ``lead`` makes it load, ``load`` makes it active."""

    def __init__(self, **access: Any) -> None:
        self.log = FakeLog()
        self.runtime = CoordinatorRuntime[GroupMachine](
            RuntimeParts(
                "groups",
                "__consumer_offsets",
                lambda index: self.log,
                lambda index: GroupMachine(),
                ShardSettings(FakeClock(), decode_group_record),
            )
        )
        self.coordinator = GroupCoordinator(self.runtime, GroupSettings(), SystemRandom())
        allowed = GroupAccess(**access) if access else ALLOW_ALL
        self.groups = GroupHandlers(self.coordinator, allowed)
        self.offsets = OffsetHandlers(self.coordinator, lambda: IMAGE, allowed)

    def lead(self) -> "Harness":
        self.runtime.on_led("__consumer_offsets", 0, LeaderEpoch(0))
        return self

    def load(self) -> "Harness":
        self.lead()
        while self.runtime.is_loading():
            self.runtime._load_some()
        return self

    def commit(self, offset: int = 5, topic: str = "t", version: int = 9) -> Any:
        partitions = [OffsetCommitRequestPartition(index, offset) for index in (0, 9)]
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(topic, ID, partitions)])
        return reply_of(self.offsets.on_commit(CALLER, request, version))

    def fetch(self, version: int, *, stable: bool = False) -> Any:
        if version < 8:
            topics = [OffsetFetchRequestTopic("t", [0, 1])]
            request = OffsetFetchRequest("g", topics, require_stable=stable)
        else:
            group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", ID, [0])])
            request = OffsetFetchRequest(groups=[group], require_stable=stable)
        return reply_of(self.offsets.on_fetch(CALLER, request, version))


def committed(reply: Any) -> dict[int, int]:
    (topic,) = reply.topics
    return {each.partition_index: each.error_code for each in topic.partitions}


# -- where a failure is reported -------------------------------------------------------------


@pytest.mark.parametrize(
    ("led", "code"),
    [(False, ErrorCode.NOT_COORDINATOR), (True, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_failure_is_reported_in_the_field_of_its_version(led: bool, code: ErrorCode) -> None:
    harness = Harness().lead() if led else Harness()
    first = harness.fetch(1)
    assert first.error_code == ErrorCode.NONE
    found = {each.partition_index: each.error_code for each in first.topics[0].partitions}
    assert found == {0: code, 1: code}
    assert {each.committed_offset for each in first.topics[0].partitions} == {-1}
    second = harness.fetch(2)
    assert (second.error_code, second.topics) == (code, [])
    (group,) = harness.fetch(8).groups
    assert (group.group_id, group.error_code, group.topics) == ("g", code, [])
    assert committed(harness.commit()) == {0: code, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_topic_twice_in_a_commit_or_delete_is_answered_twice() -> None:
    """Kafka merges the partitions of a topic only where it rejected some of them itself."""
    harness = Harness().load()
    topics = [OffsetCommitRequestTopic("t", ID, [OffsetCommitRequestPartition(0, 5)])] * 2
    request = OffsetCommitRequest("g", topics=topics)
    reply: Any = reply_of(harness.offsets.on_commit(CALLER, request, 9))
    assert [len(topic.partitions) for topic in reply.topics] == [1, 1]
    rows = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])] * 2
    deleted: Any = reply_of(harness.offsets.on_delete(CALLER, OffsetDeleteRequest("g", rows), 0))
    assert [len(topic.partitions) for topic in deleted.topics] == [1, 1]


def test_commit_of_more_offsets_than_a_batch_holds_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness().load()
    monkeypatch.setattr(committed_offsets, "COMMITS_MAX", 1)
    assert committed(harness.commit())[0] == ErrorCode.NONE
    topics = [OffsetCommitRequestTopic("t", ID, [OffsetCommitRequestPartition(0, 5)])] * 2
    with pytest.raises(committed_offsets.CommitTooLarge) as raised:
        harness.offsets.on_commit(CALLER, OffsetCommitRequest("g", topics=topics), 9)
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_commit_that_fails_later_gets_the_same_error() -> None:
    async def story() -> None:
        harness = Harness().load()
        harness.log.follows = False
        pending = harness.commit()
        waiting = harness.fetch(9, stable=True)
        harness.runtime.on_unled("__consumer_offsets", 0, LeaderEpoch(1))
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert committed(await pending) == {0: ErrorCode.NOT_COORDINATOR, 9: missing}
        (group,) = (await waiting).groups
        assert group.error_code == ErrorCode.NOT_COORDINATOR

    asyncio.run(story())


def test_unreplicated_marker_gets_a_timeout_error() -> None:
    async def story() -> None:
        harness = Harness().load()
        harness.log.follows = False
        pending, waiting = harness.commit(), harness.fetch(9, stable=True)
        shard = harness.runtime.shard(0)
        shard._settings.clock.advance(5000)
        shard.on_due()
        assert committed(await pending)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        # Consumers before 3.9 retry only on this error.
        (group,) = (await waiting).groups
        assert group.error_code == ErrorCode.NOT_COORDINATOR

    asyncio.run(story())


def test_returned_offset_does_not_go_back_after_a_change_of_coordinator() -> None:
    """A new leader learns the high watermark from its followers."""

    async def story() -> None:
        harness = Harness().load()
        harness.commit(5)
        harness.commit(7)
        assert harness.fetch(9).groups[0].topics[0].partitions[0].committed_offset == 7
        harness.log.high_watermark = Offset(1)
        harness.runtime.on_unled("__consumer_offsets", 0, LeaderEpoch(0))
        harness.load()
        waiting = asyncio.ensure_future(harness.fetch(9))
        await asyncio.sleep(0)
        assert not waiting.done()
        harness.log.commit()
        (group,) = (await waiting).groups
        assert group.topics[0].partitions[0].committed_offset == 7
        # From then on committed reads do not wait.
        harness.log.follows = False
        pending = harness.commit(9)
        assert harness.fetch(9).groups[0].topics[0].partitions[0].committed_offset == 7
        harness.log.commit()
        await pending

    asyncio.run(story())


def test_heartbeat_succeeds_and_list_fails_while_loading() -> None:
    harness = Harness().lead()
    beat = reply_of(harness.groups.on_heartbeat(CALLER, HeartbeatRequest("g", 1, "m"), 4))
    assert beat == HeartbeatResponse()
    listed = finish(harness.groups.on_list(CALLER, ListGroupsRequest(), 5))
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (found,) = finish(harness.groups.describe_steps(CALLER, DescribeGroupsRequest(["g"]), 5)).groups
    assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_groups_coordinated_elsewhere_return_not_coordinator() -> None:
    harness = Harness()
    with pytest.raises(NotCoordinator):
        reply_of(harness.groups.on_heartbeat(CALLER, HeartbeatRequest("g", 1, "m"), 4))

    async def delete() -> Any:
        return await harness.groups.on_delete(CALLER, DeleteGroupsRequest(["g"]), 2)

    (result,) = asyncio.run(delete()).results
    assert (result.group_id, result.error_code) == ("g", ErrorCode.NOT_COORDINATOR)
    assert finish(harness.groups.on_list(CALLER, ListGroupsRequest(), 5)).groups == []


# -- who may ---------------------------------------------------------------------------------


def nobody(caller: Caller, name: str) -> bool:
    return False


def test_unauthorized_client_learns_nothing_about_a_group() -> None:
    harness = Harness(read_group=nobody, describe_group=nobody, delete_group=nobody).load()
    with pytest.raises(NotAuthorized):
        harness.groups.on_join(CALLER, JoinGroupRequest("g", 10_000), 9)
    with pytest.raises(NotAuthorized):
        harness.commit()
    with pytest.raises(NotAuthorized):
        harness.offsets.on_delete(CALLER, OffsetDeleteRequest("g"), 0)
    (group,) = harness.fetch(9).groups
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert harness.log.batches == []


def test_topics_that_may_not_be_seen_are_not_shown() -> None:
    without_acls = Harness().load()
    without_acls.commit(5)
    harness = Harness(describe_topic=nobody, read_topic=nobody)
    harness.log = without_acls.log
    harness.load()
    (group,) = harness.fetch(9).groups
    (partition,) = group.topics[0].partitions
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert partition.committed_offset == -1
    whole = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    reply: Any = reply_of(harness.offsets.on_fetch(CALLER, whole, 9))
    assert reply.groups[0].topics == []
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert committed(harness.commit(6)) == {0: denied, 9: denied}


def test_list_without_cluster_access_shows_authorized_groups() -> None:
    harness = Harness(
        describe_cluster=lambda caller: False, describe_group=lambda caller, name: name == "mine"
    ).load()
    for group in ("mine", "theirs"):
        where = OffsetCommitRequestTopic("t", ID, [OffsetCommitRequestPartition(0, 1)])
        harness.offsets.on_commit(CALLER, OffsetCommitRequest(group, topics=[where]), 9)
    listed = finish(harness.groups.on_list(CALLER, ListGroupsRequest(), 5)).groups
    assert [each.group_id for each in listed] == ["mine"]


@pytest.mark.parametrize(
    ("key_type", "key", "code"),
    [
        (0, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, "tx", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, "g:AAAAAAAAAAAAAAAAAAAAAQ:1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_find_coordinator_requires_authorization(key_type: int, key: str, code: int) -> None:
    made: list[str] = []
    denied = GroupAccess(
        describe_group=nobody,
        describe_transactional_id=nobody,
        cluster_action=lambda caller: False,
    )
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    for access, expected in ((denied, code), (GroupAccess(), 15)):
        handler = FindCoordinatorHandler(lambda: EMPTY, made.append, access)
        (found,) = finish(handler.find_coordinator_steps(CALLER, request, 6)).coordinators
        assert (found.error_code, found.node_id) == (expected, -1)
    topics = ["__consumer_offsets", "__transaction_state", "__share_group_state"]
    assert made == [topics[key_type]]


# -- the image, the hash -----------------------------------------------------------------------


def test_offsets_go_with_their_topic() -> None:
    harness = Harness().load()
    harness.commit(5)
    harness.coordinator.on_image(delta_between(IMAGE, EMPTY), EMPTY)
    (group,) = harness.fetch(9).groups
    assert group.topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", 0), ("g", 3), ("group-1", 49), ("polygenelubricants", 0), ("ünï-😀", 37), ("a:b:3", 42)],
)
def test_keys_belong_where_kafka_puts_them(key: str, expected: int) -> None:
    assert partition_for(key, 50) == expected
