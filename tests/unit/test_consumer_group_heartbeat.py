"""ConsumerGroupHeartbeat: joining, moving partitions from one owner to the next, and refusals."""

from typing import Any

import pytest
from consumer_world import ConsumerWorld, image_with, named, topic_id
from controller_images import GROUP, config
from msgspec.structs import replace

from ottla.coordinators.groups.consumer.member import ClassicMetadata, ConsumerMember
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.metadata.replay import replay_all
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CoordinatorNotAvailable, Fault, NotEnoughReplicas
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.internal.metadata_cluster import RegisterBrokerRecord
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def refused(world: ConsumerWorld, *args: Any, **fields: Any) -> ErrorCode:
    before = world.machine.groups
    with pytest.raises(Fault) as caught:
        world.beat(*args, **fields)
    assert world.machine.groups is before, "a refusal changes nothing"
    return caught.value.code


def joining_refused(world: ConsumerWorld, *args: Any, **fields: Any) -> ErrorCode:
    with pytest.raises(Fault) as caught:
        world.enter(*args, **fields)
    return caught.value.code


# -- joining ---------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    world = ConsumerWorld()
    reply = world.enter("a", "t", "u")
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 1, 5000)
    assert named(reply) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    assert world.consumers().state_name() == "Stable"


def test_a_join_writes_kafkas_records_in_kafkas_order() -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert [type(record.key) for record in world.records()] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    assert len(world.log.batches) == 1
    value = world.records()[0].value.message
    assert (value.client_id, value.client_host) == ("client", "/1.2.3.4")
    assert (value.instance_id, value.subscribed_topic_names) == (None, ["t"])
    assert value.classic_member_metadata is None


def test_a_consumer_member_is_written_as_kafka_writes_it() -> None:
    """Kafka 4.2.1 wrote these bytes: a tagged struct that is null is a zero."""
    member = ConsumerMember(
        "a", client_id="c", client_host="h", topic_names=("t",), rebalance_timeout_ms=5
    )
    golden = bytes.fromhex("00000263026802027401000000050001000100")
    assert encode(member.metadata_value(), 0) == golden
    read = decode(ConsumerGroupMemberMetadataValue, 0, golden)
    assert ConsumerMember("a").with_metadata(read) == member
    classic = replace(member, classic=ClassicMetadata(1, ()))
    golden = bytes.fromhex("00000263026802027401000000050001000701000000010100")
    assert encode(classic.metadata_value(), 0) == golden
    assert decode(ConsumerGroupMemberMetadataValue, 0, golden) == classic.metadata_value()


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    world = ConsumerWorld()
    world.enter("a")
    reply = world.beat("a", 1)
    assert (reply.member_epoch, reply.assignment, len(world.log.batches)) == (1, None, 1)
    full = world.beat("a", 1, {"t": [0]}, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"])
    assert named(full) == {"t": [0, 1, 2, 3]}
    assert len(world.log.batches) == 1


def test_a_member_of_version_0_is_given_an_id() -> None:
    world = ConsumerWorld()
    request = ConsumerGroupHeartbeatRequest(
        "g", "", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert world.send(request, version=0).reply.member_id == "fresh"
    with pytest.raises(Fault) as caught:
        world.send(request, version=1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_member_without_topics_is_a_member_nonetheless() -> None:
    world = ConsumerWorld()
    reply = world.enter("a", subscribed_topic_names=[])
    assert (reply.member_epoch, named(reply)) == (1, {})


def test_topics_that_are_not_there_are_read_once_they_are() -> None:
    world = ConsumerWorld(image=image_with(u=1))
    assert named(world.enter("a")) == {}
    world.image = image_with(u=1, t=2)
    reply = world.beat("a", 1, {})
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1]})


def test_joining_again_with_epoch_0_goes_on_where_it_was() -> None:
    world = ConsumerWorld()
    world.enter("a")
    reply = world.enter("a")
    assert (reply.member_epoch, named(reply)) == (1, {"t": [0, 1, 2, 3]})


def test_full_group_rejects_other_members() -> None:
    world = ConsumerWorld(consumer=ConsumerSettings(max_size=1))
    world.enter("a")
    assert joining_refused(world, "b") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("a", 1).member_epoch == 1


# -- reconciliation ----------------------------------------------------------------------


def test_partition_is_revoked_before_another_member_gets_it() -> None:
    world = ConsumerWorld()
    world.enter("a")
    reply = world.enter("b")
    assert (reply.member_epoch, named(reply)) == (2, {})
    assert world.consumers().state_name() == "Reconciling"

    reply = world.beat("a", 1)
    assert (reply.member_epoch, named(reply)) == (1, {"t": [0, 1]})
    assert world.consumers().members["a"].state is MemberState.UNREVOKED
    assert world.beat("b", 2).assignment is None
    assert world.beat("a", 1, {"t": [0, 1, 2]}).assignment is None, "it still reads 2"

    reply = world.beat("a", 1, {"t": [0, 1]})
    assert (reply.member_epoch, reply.assignment) == (2, None)
    assert named(world.beat("b", 2)) == {"t": [2, 3]}
    assert world.consumers().state_name() == "Stable"


def test_member_that_reports_owned_partitions_skips_revocation() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    reply = world.beat("a", 1, {"t": [0, 1]})
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1]})


@pytest.mark.parametrize("names", [["u"], []])
def test_unsubscribing_while_a_revocation_is_pending_revokes_the_rest_at_once(
    names: list[str],
) -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    assert named(world.beat("a", 1)) == {"t": [0, 1]}, "2 and 3 are pending revocation"

    reply = world.beat("a", 1, subscribed_topic_names=names)

    assert (reply.member_epoch, named(reply)) == (1, {})
    assert world.assigned("a") == {}, "describe shows it, too"
    assert world.consumers().members["a"].state is MemberState.UNREVOKED
    assert world.beat("a", 1, {"t": [1]}).assignment is None, "it still reads 1"
    moved = world.beat("a", 1, {})
    assert moved.member_epoch == 3
    assert named(world.beat("b", 2)) == {"t": [0, 1, 2, 3]}


def test_subscribing_to_another_topic_keeps_what_is_not_pending_revocation() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 1)

    reply = world.beat("a", 1, subscribed_topic_names=["t", "u"])

    assert (reply.member_epoch, reply.assignment) == (1, None)
    assert world.assigned("a") == {"t": [0, 1]}


def test_resubscribing_while_a_revocation_is_pending_returns_the_partitions() -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert named(world.beat("a", 1, subscribed_topic_names=[])) == {}
    assert world.beat("a", 1, subscribed_topic_names=["t"]).assignment is None

    reply = world.beat("a", 1, {})

    assert named(reply) == {"t": [0, 1, 2, 3]}
    assert world.consumers().state_name() == "Stable"


def test_a_member_that_must_revoke_again_keeps_its_epoch() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    assert named(world.beat("a", 1)) == {"t": [0, 1]}
    world.enter("c")
    world.enter("d")

    reply = world.beat("a", 1, {"t": [0, 1]})

    assert reply.member_epoch == 1, "it holds what the newer target gives to others"
    assert len(named(reply)["t"]) == 1
    assert world.consumers().members["a"].state is MemberState.UNREVOKED


def test_previous_epoch_is_accepted_when_the_reply_was_lost() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 1, {"t": [0, 1]})
    assert world.beat("a", 1, {"t": [0]}).member_epoch == 2
    assert refused(world, "a", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "a", 1, {"t": [0, 3]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "a", 1, {"u": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "a", 3) is ErrorCode.FENCED_MEMBER_EPOCH


def test_more_partitions_are_another_epoch() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.beat("a", 1)
    world.image = image_with(t=5, u=2)
    reply = world.beat("a", 1)
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1, 2, 3, 4]})
    world.image = image_with(t=5, u=3)
    assert world.beat("a", 2).member_epoch == 2, "nobody reads u"


def test_other_racks_are_another_epoch_and_the_same_news_is_not() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.beat("a", 1)
    world.image = replay_all(world.image, [RegisterBrokerRecord(broker_id=1, rack="r")])
    assert world.beat("a", 1).member_epoch == 2
    world.image = replay_all(world.image, [RegisterBrokerRecord(broker_id=1, rack="s")])
    assert world.beat("a", 2).member_epoch == 3
    world.image = replay_all(world.image, [RegisterBrokerRecord(broker_id=2, rack="s")])
    assert world.beat("a", 3).member_epoch == 3


def test_deleted_topic_is_unassigned() -> None:
    world = ConsumerWorld()
    world.enter("a", "t", "u")
    world.image = image_with(t=4)
    assert named(world.beat("a", 1)) == {"t": [0, 1, 2, 3]}
    assert world.beat("a", 1, {"t": [0, 1, 2, 3]}).member_epoch == 2


def test_a_changed_subscription_is_another_epoch() -> None:
    world = ConsumerWorld()
    world.enter("a")
    reply = world.beat("a", 1, subscribed_topic_names=["u", "t", "u"])
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1, 2, 3], "u": [0, 1]})
    assert world.beat("a", 2, subscribed_topic_names=["t", "u"]).member_epoch == 2


def test_a_refused_write_leaves_everything_as_it_was() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.beat("a", 1)
    world.image = image_with(t=5)
    world.log.fault = NotEnoughReplicas("alone")
    with pytest.raises(CoordinatorNotAvailable):
        world.beat("a", 1)
    world.log.fault = None
    assert world.beat("a", 1).member_epoch == 2


# -- assignors, settings -----------------------------------------------------------------


def test_members_choose_the_assignor() -> None:
    world = ConsumerWorld()
    world.enter("a", "t", "u", server_assignor="range")
    world.enter("b", "t", "u", server_assignor="range")
    owned: dict[str, Any] = {}
    world.settle(owned)
    assert world.assigned("a") == {"t": [0, 1], "u": [0]}
    assert world.assigned("b") == {"t": [2, 3], "u": [1]}
    assert joining_refused(world, "c", server_assignor="mine") is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_group_configs_override_broker_settings() -> None:
    world = ConsumerWorld()
    world.image = replay_all(
        world.image,
        [
            config(GROUP, "g", "consumer.heartbeat.interval.ms", "7000"),
            config(GROUP, "g", "consumer.session.timeout.ms", "47000"),
        ],
    )
    assert world.enter("a").heartbeat_interval_ms == 7000
    world.pass_ms(46_999)
    assert "a" in world.consumers().members
    world.pass_ms(1)
    assert world.consumers().is_empty()


# -- leaving -----------------------------------------------------------------------------


def test_leaving_member_frees_its_partitions_at_once() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    reply = world.beat("a", -1)
    assert (reply.member_id, reply.member_epoch) == ("a", -1)
    assert named(world.beat("b", 2)) == {"t": [0, 1, 2, 3]}
    assert world.consumers().epoch == 3


def test_member_without_heartbeat_for_a_session_is_removed() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.pass_ms(44_000)
    world.beat("b", 2)
    world.pass_ms(1_000)
    assert list(world.consumers().members) == ["b"]
    assert refused(world, "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_session_timeout_that_cannot_be_written_is_retried() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.log.fault = NotEnoughReplicas("alone")
    world.pass_ms(45_000)
    assert not world.consumers().is_empty()
    world.log.fault = None
    world.pass_ms(500)
    assert world.consumers().is_empty()


def test_member_that_does_not_revoke_within_its_timeout_is_removed() -> None:
    world = ConsumerWorld()
    world.enter("a", rebalance_timeout_ms=10_000)
    world.enter("b")
    world.beat("a", 1, {"t": [0, 1, 2, 3]})
    world.pass_ms(9_999)
    world.beat("a", 1, {"t": [0, 1, 2, 3]})
    world.pass_ms(1)
    assert list(world.consumers().members) == ["b"]


def test_member_that_revokes_in_time_stays() -> None:
    world = ConsumerWorld()
    world.enter("a", rebalance_timeout_ms=10_000)
    world.enter("b")
    world.beat("a", 1)
    world.beat("a", 1, {"t": [0, 1]})
    world.pass_ms(11_000)
    assert sorted(world.consumers().members) == ["a", "b"]


# -- static members ----------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had() -> None:
    world = ConsumerWorld()
    world.enter("a", instance_id="i")
    world.enter("b")
    world.settle({"a": {"t": [0, 1, 2, 3]}})
    before, epoch = world.assigned("a"), world.consumers().epoch
    world.beat("a", -2, instance_id="i")
    assert world.consumers().members["a"].epoch == -2
    reply = world.enter("a2", instance_id="i")
    assert (named(reply), reply.member_epoch) == (before, epoch)
    assert (world.consumers().epoch, sorted(world.consumers().members)) == (epoch, ["a2", "b"])
    assert refused(world, "a", epoch, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_instance_id_in_use_is_not_released() -> None:
    world = ConsumerWorld()
    world.enter("a", instance_id="i")
    assert joining_refused(world, "b", instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused(world, "b", 1, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "b", -2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_does_not_return_is_removed() -> None:
    world = ConsumerWorld()
    world.enter("a", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.pass_ms(45_000)
    assert world.consumers().is_empty()


def test_a_static_member_may_leave_for_good() -> None:
    world = ConsumerWorld()
    world.enter("a", instance_id="i")
    world.beat("a", -1, instance_id="i")
    assert world.consumers().is_empty()
    assert world.enter("b", instance_id="i").member_epoch == 3


# -- bad requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"group": ""},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
    ],
)
def test_join_without_required_fields_is_rejected(fields: dict[str, Any]) -> None:
    assert joining_refused(ConsumerWorld(), "a", **fields) is ErrorCode.INVALID_REQUEST


def test_epochs_and_partitions_must_make_sense() -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert refused(world, "a", -3) is ErrorCode.INVALID_REQUEST
    assert refused(world, "a", -2) is ErrorCode.INVALID_REQUEST
    assert refused(world, "", 1) is ErrorCode.INVALID_REQUEST
    fields = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"]}
    assert refused(world, "b", 0, {"t": [0]}, **fields) is ErrorCode.INVALID_REQUEST


def test_unknown_members_are_rejected() -> None:
    world = ConsumerWorld()
    assert refused(world, "a", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(world, "a", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    world.enter("a")
    assert refused(world, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "b", -1) is ErrorCode.UNKNOWN_MEMBER_ID


# -- offsets -----------------------------------------------------------------------------


def test_members_commit_at_their_epoch() -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert world.commit_code(5, "a", 1) == ErrorCode.NONE
    assert world.commit_code(5, "a", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit_code(5, "a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert world.commit_code(5, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit_code(5) == ErrorCode.UNKNOWN_MEMBER_ID
    world.beat("a", -1)
    assert world.commit_code(6) == ErrorCode.NONE


def test_members_read_offsets_at_their_epoch() -> None:
    world = ConsumerWorld()
    world.enter("a")
    group = world.consumers()
    assert group.check_offset_fetch(None, -1) is ErrorCode.NONE
    assert group.check_offset_fetch("a", 1) is ErrorCode.NONE
    assert group.check_offset_fetch("a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_offset_fetch("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_an_empty_group_is_deleted_and_nothing_is_left_of_it() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.commit(5, "a", 1)
    assert world.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    world.beat("a", -1)
    assert world.delete("g") == [ErrorCode.NONE]
    assert not world.machine.groups
    assert not world.reload().machine.groups


# -- the log -----------------------------------------------------------------------------


def test_a_group_is_loaded_as_it_was() -> None:
    world = ConsumerWorld()
    world.enter("a", "t", instance_id="i", rack_id="r", server_assignor="range")
    world.enter("b", subscribed_topic_regex="u.*")
    world.beat("a", 1)
    world.commit(5, "a", 1)
    again = world.reload()
    assert again.consumers() == world.consumers()
    assert again.beat("a", 1, {"t": [0, 1]}, instance_id="i").member_epoch >= 1


def test_loaded_group_starts_its_timers() -> None:
    world = ConsumerWorld()
    world.enter("a", rebalance_timeout_ms=10_000)
    world.enter("b")
    world.beat("a", 1)
    again = world.reload()
    again.pass_ms(10_000)
    assert list(again.consumers().members) == ["b"]
    again.pass_ms(35_000)
    assert again.consumers().is_empty()


def test_offsets_before_a_group_do_not_make_it_a_classic_one() -> None:
    world = ConsumerWorld()
    world.commit(5)
    world.enter("a")
    again = world.reload()
    assert again.consumers() == world.consumers()
    assert again.machine.offsets.of_group("g")


def test_unknown_member_state_makes_the_member_rejoin() -> None:
    world = ConsumerWorld()
    world.enter("a")
    group = world.consumers()
    strange = replace(group.members["a"], state=MemberState.UNKNOWN, epoch=9)
    world.machine.put(group.with_member(strange))
    assert refused(world, "a", 9, {"t": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("a", 9, {}).member_epoch == 1
    assert topic_id("t") in world.consumers().members["a"].assigned
