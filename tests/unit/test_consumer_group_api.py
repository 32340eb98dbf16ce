"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as clients see them."""

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any, cast

import pytest
from consumer_harness import image_with, topic_id
from controller_images import feature
from coordinator_harness import FakeClock, FakeLog
from msgspec.structs import replace

from ottla.api.groups.consumer_groups import ConsumerGroupHandlers
from ottla.api.groups.group_access import GroupAccess
from ottla.api.surface.replies import finish
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.consumer import regex
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.kind import ConsumerKind
from ottla.coordinators.groups.consumer.settings import (
    ConsumerSettings,
    MigrationPolicy,
    assignor_names,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.metadata.replay import replay_all
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.types import LeaderEpoch, Uuid
from ottla.runtime.pending import Pending


class FixedRandom:
    def uuid(self) -> Uuid:
        return Uuid(b"\x01" * 16)


class Peer:
    host = "1.2.3.4"


class AsCaller:
    client_id = "me"
    peer = Peer()
    principal = "User:me"


CALLER = cast("Caller", AsCaller())


FEATURES = [feature("group.version", 1)]


class Broker:
    """The handlers over one in-memory shard."""

    def __init__(
        self,
        access: GroupAccess | None = None,
        *,
        is_led: bool = True,
        is_served: bool = True,
    ) -> None:
        self.image = replay_all(image_with(t=2, secret=1), FEATURES)
        settings, consumer = GroupSettings(), ConsumerSettings(is_served=is_served)
        self.log = FakeLog()

        def machine(index: int) -> GroupMachine:
            kind = ConsumerKind(ConsumerContext(consumer, lambda: self.image))
            return GroupMachine(settings, kinds=(kind,), classic_members=kind)

        runtime = CoordinatorRuntime[GroupMachine](
            RuntimeParts(
                "group-coordinator",
                "__consumer_offsets",
                lambda index: self.log,
                machine,
                ShardSettings(FakeClock(), decode_group_record),
            )
        )
        if is_led:
            runtime.on_led("__consumer_offsets", 0, LeaderEpoch(1))
            runtime._load_some()
        groups = GroupCoordinator(runtime, settings, cast("Any", FixedRandom()))
        self.handlers = ConsumerGroupHandlers(
            groups, consumer, lambda: self.image, access or GroupAccess()
        )

    def beat(self, member_id: str = "a", epoch: int = 0, version: int = 1, **fields: Any) -> Any:
        if epoch == 0:
            fields.setdefault("subscribed_topic_names", ["t"])
            fields.setdefault("rebalance_timeout_ms", 1000)
            fields.setdefault("topic_partitions", [])
        request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, **fields)
        reply = self.handlers.on_heartbeat(CALLER, request, version)
        assert not isinstance(reply, Pending)
        return reply

    def describe(self, *groups: str, operations: bool = False) -> list[Any]:
        request = ConsumerGroupDescribeRequest(list(groups), operations)
        return list(self.handlers.on_describe(CALLER, request, 1).groups)


def test_expressions_that_take_long_are_matched_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regex, "WORK_MAX", 8)
    broker = Broker()
    request = ConsumerGroupHeartbeatRequest(
        "g",
        "a",
        0,
        subscribed_topic_regex="t.*",
        rebalance_timeout_ms=1000,
        topic_partitions=[],
    )
    steps = broker.handlers.on_heartbeat(CALLER, request, 1)
    assert isinstance(steps, Generator)
    next(steps)
    assert broker.describe("g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND, "not decided yet"
    reply: Any = finish(steps)
    assert reply.error_code == 0 and len(reply.assignment.topic_partitions) == 1
    # The names of topics change while expressions are matched: it is tried again, a few times.
    steps = broker.handlers.on_heartbeat(CALLER, replace(request, group_id="h"), 1)
    assert isinstance(steps, Generator)
    count = 0
    with contextlib.suppress(StopIteration):
        while True:
            next(steps)
            count += 1
            broker.image = replay_all(image_with(**{f"t{count}": 1}), FEATURES)
    assert 3 < count < 100
    assert broker.describe("h")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_joins_and_is_described() -> None:
    broker = Broker()
    reply = broker.beat("", version=0, rack_id="r", instance_id="i")
    assert reply.member_id == "AQEBAQEBAQEBAQEBAQEBAQ"
    (group,) = broker.describe("g", operations=True)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert (group.assignor_name, group.authorized_operations > 0) == ("uniform", True)
    (member,) = group.members
    assert (member.client_id, member.client_host, member.member_type) == ("me", "/1.2.3.4", 1)
    assert (member.rack_id, member.instance_id, member.member_epoch) == ("r", "i", 1)
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, topic.topic_id, topic.partitions) == ("t", topic_id("t"), [0, 1])


def test_rejected_heartbeat_has_an_error_message() -> None:
    broker = Broker()
    reply = broker.beat(server_assignor="mine")
    assert reply.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert reply.error_message == (
        "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


def test_request_to_partition_not_led_here_is_rejected() -> None:
    broker = Broker(is_led=False)
    for reply in (broker.beat(), *broker.describe("g")):
        assert (reply.error_code, reply.error_message) == (ErrorCode.NOT_COORDINATOR, None)


def test_disabled_protocol_returns_unsupported_version() -> None:
    broker = Broker(is_served=False)
    reply = broker.beat()
    assert (reply.error_code, reply.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
    broker = Broker()
    broker.image = image_with(t=2)
    assert broker.beat().error_code == ErrorCode.UNSUPPORTED_VERSION
    [group] = broker.describe("g")
    assert (group.error_code, group.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_missing_groups_are_not_found() -> None:
    (missing, nameless) = Broker().describe("x", "")
    assert (missing.error_code, missing.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "x")
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def test_unauthorized_requests_are_rejected() -> None:
    broker = Broker(GroupAccess(read_group=lambda caller, group: False))
    assert broker.beat().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    broker = Broker(GroupAccess(describe_topic=lambda caller, topic: topic != "secret"))
    refused = broker.beat(subscribed_topic_names=["t", "secret"])
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    reply = broker.beat(subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert [each.topic_id for each in reply.assignment.topic_partitions] == [topic_id("t")]
    broker = Broker(GroupAccess(describe_group=lambda caller, group: False))
    assert broker.describe("g")[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_group_with_unauthorized_topics_is_not_described() -> None:
    seen = {"t"}
    broker = Broker(GroupAccess(describe_topic=lambda caller, topic: topic in seen))
    broker.beat()
    seen.clear()
    (group,) = broker.describe("g", operations=True)
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert group.authorized_operations < 0, "nor the authorized operations"


def test_a_reply_waits_for_its_records() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.log.follows = False
        request = ConsumerGroupHeartbeatRequest(
            "g", "a", 0, rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[]
        )
        reply = broker.handlers.on_heartbeat(CALLER, request, 1)
        assert isinstance(reply, Pending)
        assert broker.describe("g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        broker.log.commit()
        assert (await reply).member_epoch == 1
        assert broker.describe("g")[0].group_epoch == 1

    asyncio.run(scenario())


def test_assignors_are_found_by_name_or_kafka_class() -> None:
    range_class = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    assert assignor_names([range_class, "uniform", "range"]) == ("range", "uniform")
    with pytest.raises(ValueError, match="mine"):
        assignor_names(["mine"])


def test_migration_policies_allow_directions() -> None:
    assert [each.may_upgrade() for each in MigrationPolicy] == [True, True, False, False]
    assert [each.may_downgrade() for each in MigrationPolicy] == [True, False, True, False]
