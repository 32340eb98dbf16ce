"""ConsumerGroupHeartbeat: joins, partitions that move between owners, and errors."""

from typing import Any

import pytest
from consumer_harness import ConsumerHarness, image_with, named, topic_id
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


def refused(harness: ConsumerHarness, *args: Any, **fields: Any) -> ErrorCode:
    before = harness.machine.groups
    with pytest.raises(Fault) as caught:
        harness.beat(*args, **fields)
    assert harness.machine.groups is before, "a refusal changes nothing"
    return caught.value.code


def joining_refused(harness: ConsumerHarness, *args: Any, **fields: Any) -> ErrorCode:
    with pytest.raises(Fault) as caught:
        harness.enter(*args, **fields)
    return caught.value.code


# -- joining ---------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    harness = ConsumerHarness()
    reply = harness.enter("a", "t", "u")
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 1, 5000)
    assert named(reply) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    assert harness.consumers().state_name() == "Stable"


def test_a_join_writes_kafkas_records_in_kafkas_order() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    assert [type(record.key) for record in harness.records()] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    assert len(harness.log.batches) == 1
    value = harness.records()[0].value.message
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
    harness = ConsumerHarness()
    harness.enter("a")
    reply = harness.beat("a", 1)
    assert (reply.member_epoch, reply.assignment, len(harness.log.batches)) == (1, None, 1)
    full = harness.beat(
        "a", 1, {"t": [0]}, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"]
    )
    assert named(full) == {"t": [0, 1, 2, 3]}
    assert len(harness.log.batches) == 1


def test_a_member_of_version_0_is_given_an_id() -> None:
    harness = ConsumerHarness()
    request = ConsumerGroupHeartbeatRequest(
        "g", "", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert harness.send(request, version=0).reply.member_id == "fresh"
    with pytest.raises(Fault) as caught:
        harness.send(request, version=1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_member_without_topics_is_a_member_nonetheless() -> None:
    harness = ConsumerHarness()
    reply = harness.enter("a", subscribed_topic_names=[])
    assert (reply.member_epoch, named(reply)) == (1, {})


def test_topics_that_are_not_there_are_read_once_they_are() -> None:
    harness = ConsumerHarness(image=image_with(u=1))
    assert named(harness.enter("a")) == {}
    harness.image = image_with(u=1, t=2)
    reply = harness.beat("a", 1, {})
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1]})


def test_joining_again_with_epoch_0_goes_on_where_it_was() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    reply = harness.enter("a")
    assert (reply.member_epoch, named(reply)) == (1, {"t": [0, 1, 2, 3]})


def test_full_group_rejects_other_members() -> None:
    harness = ConsumerHarness(consumer=ConsumerSettings(max_size=1))
    harness.enter("a")
    assert joining_refused(harness, "b") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.beat("a", 1).member_epoch == 1


# -- reconciliation ----------------------------------------------------------------------


def test_partition_is_revoked_before_another_member_gets_it() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    reply = harness.enter("b")
    assert (reply.member_epoch, named(reply)) == (2, {})
    assert harness.consumers().state_name() == "Reconciling"

    reply = harness.beat("a", 1)
    assert (reply.member_epoch, named(reply)) == (1, {"t": [0, 1]})
    assert harness.consumers().members["a"].state is MemberState.UNREVOKED
    assert harness.beat("b", 2).assignment is None
    assert harness.beat("a", 1, {"t": [0, 1, 2]}).assignment is None, "it still reads 2"

    reply = harness.beat("a", 1, {"t": [0, 1]})
    assert (reply.member_epoch, reply.assignment) == (2, None)
    assert named(harness.beat("b", 2)) == {"t": [2, 3]}
    assert harness.consumers().state_name() == "Stable"


def test_member_that_reports_owned_partitions_skips_revocation() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    reply = harness.beat("a", 1, {"t": [0, 1]})
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1]})


@pytest.mark.parametrize("names", [["u"], []])
def test_unsubscribing_while_a_revocation_is_pending_revokes_the_rest_at_once(
    names: list[str],
) -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    assert named(harness.beat("a", 1)) == {"t": [0, 1]}, "2 and 3 are pending revocation"

    reply = harness.beat("a", 1, subscribed_topic_names=names)

    assert (reply.member_epoch, named(reply)) == (1, {})
    assert harness.assigned("a") == {}, "describe shows it, too"
    assert harness.consumers().members["a"].state is MemberState.UNREVOKED
    assert harness.beat("a", 1, {"t": [1]}).assignment is None, "it still reads 1"
    moved = harness.beat("a", 1, {})
    assert moved.member_epoch == 3
    assert named(harness.beat("b", 2)) == {"t": [0, 1, 2, 3]}


def test_subscribing_to_another_topic_keeps_what_is_not_pending_revocation() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 1)

    reply = harness.beat("a", 1, subscribed_topic_names=["t", "u"])

    assert (reply.member_epoch, reply.assignment) == (1, None)
    assert harness.assigned("a") == {"t": [0, 1]}


def test_resubscribing_while_a_revocation_is_pending_returns_the_partitions() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    assert named(harness.beat("a", 1, subscribed_topic_names=[])) == {}
    assert harness.beat("a", 1, subscribed_topic_names=["t"]).assignment is None

    reply = harness.beat("a", 1, {})

    assert named(reply) == {"t": [0, 1, 2, 3]}
    assert harness.consumers().state_name() == "Stable"


def test_a_member_that_must_revoke_again_keeps_its_epoch() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    assert named(harness.beat("a", 1)) == {"t": [0, 1]}
    harness.enter("c")
    harness.enter("d")

    reply = harness.beat("a", 1, {"t": [0, 1]})

    assert reply.member_epoch == 1, "it holds what the newer target gives to others"
    assert len(named(reply)["t"]) == 1
    assert harness.consumers().members["a"].state is MemberState.UNREVOKED


def test_previous_epoch_is_accepted_when_the_reply_was_lost() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 1, {"t": [0, 1]})
    assert harness.beat("a", 1, {"t": [0]}).member_epoch == 2
    assert refused(harness, "a", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(harness, "a", 1, {"t": [0, 3]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(harness, "a", 1, {"u": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(harness, "a", 3) is ErrorCode.FENCED_MEMBER_EPOCH


def test_more_partitions_are_another_epoch() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.beat("a", 1)
    harness.image = image_with(t=5, u=2)
    reply = harness.beat("a", 1)
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1, 2, 3, 4]})
    harness.image = image_with(t=5, u=3)
    assert harness.beat("a", 2).member_epoch == 2, "nobody reads u"


def test_other_racks_are_another_epoch_and_the_same_news_is_not() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.beat("a", 1)
    harness.image = replay_all(harness.image, [RegisterBrokerRecord(broker_id=1, rack="r")])
    assert harness.beat("a", 1).member_epoch == 2
    harness.image = replay_all(harness.image, [RegisterBrokerRecord(broker_id=1, rack="s")])
    assert harness.beat("a", 2).member_epoch == 3
    harness.image = replay_all(harness.image, [RegisterBrokerRecord(broker_id=2, rack="s")])
    assert harness.beat("a", 3).member_epoch == 3


def test_deleted_topic_is_unassigned() -> None:
    harness = ConsumerHarness()
    harness.enter("a", "t", "u")
    harness.image = image_with(t=4)
    assert named(harness.beat("a", 1)) == {"t": [0, 1, 2, 3]}
    assert harness.beat("a", 1, {"t": [0, 1, 2, 3]}).member_epoch == 2


def test_a_changed_subscription_is_another_epoch() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    reply = harness.beat("a", 1, subscribed_topic_names=["u", "t", "u"])
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0, 1, 2, 3], "u": [0, 1]})
    assert harness.beat("a", 2, subscribed_topic_names=["t", "u"]).member_epoch == 2


def test_a_refused_write_leaves_everything_as_it_was() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.beat("a", 1)
    harness.image = image_with(t=5)
    harness.log.fault = NotEnoughReplicas("alone")
    with pytest.raises(CoordinatorNotAvailable):
        harness.beat("a", 1)
    harness.log.fault = None
    assert harness.beat("a", 1).member_epoch == 2


# -- assignors, settings -----------------------------------------------------------------


def test_members_choose_the_assignor() -> None:
    harness = ConsumerHarness()
    harness.enter("a", "t", "u", server_assignor="range")
    harness.enter("b", "t", "u", server_assignor="range")
    owned: dict[str, Any] = {}
    harness.settle(owned)
    assert harness.assigned("a") == {"t": [0, 1], "u": [0]}
    assert harness.assigned("b") == {"t": [2, 3], "u": [1]}
    assert joining_refused(harness, "c", server_assignor="mine") is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_group_configs_override_broker_settings() -> None:
    harness = ConsumerHarness()
    harness.image = replay_all(
        harness.image,
        [
            config(GROUP, "g", "consumer.heartbeat.interval.ms", "7000"),
            config(GROUP, "g", "consumer.session.timeout.ms", "47000"),
        ],
    )
    assert harness.enter("a").heartbeat_interval_ms == 7000
    harness.pass_ms(46_999)
    assert "a" in harness.consumers().members
    harness.pass_ms(1)
    assert harness.consumers().is_empty()


# -- leaving -----------------------------------------------------------------------------


def test_leaving_member_frees_its_partitions_at_once() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    reply = harness.beat("a", -1)
    assert (reply.member_id, reply.member_epoch) == ("a", -1)
    assert named(harness.beat("b", 2)) == {"t": [0, 1, 2, 3]}
    assert harness.consumers().epoch == 3


def test_member_without_heartbeat_for_a_session_is_removed() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("b")
    harness.pass_ms(44_000)
    harness.beat("b", 2)
    harness.pass_ms(1_000)
    assert list(harness.consumers().members) == ["b"]
    assert refused(harness, "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_session_timeout_that_cannot_be_written_is_retried() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.log.fault = NotEnoughReplicas("alone")
    harness.pass_ms(45_000)
    assert not harness.consumers().is_empty()
    harness.log.fault = None
    harness.pass_ms(500)
    assert harness.consumers().is_empty()


def test_member_that_does_not_revoke_within_its_timeout_is_removed() -> None:
    harness = ConsumerHarness()
    harness.enter("a", rebalance_timeout_ms=10_000)
    harness.enter("b")
    harness.beat("a", 1, {"t": [0, 1, 2, 3]})
    harness.pass_ms(9_999)
    harness.beat("a", 1, {"t": [0, 1, 2, 3]})
    harness.pass_ms(1)
    assert list(harness.consumers().members) == ["b"]


def test_member_that_revokes_in_time_stays() -> None:
    harness = ConsumerHarness()
    harness.enter("a", rebalance_timeout_ms=10_000)
    harness.enter("b")
    harness.beat("a", 1)
    harness.beat("a", 1, {"t": [0, 1]})
    harness.pass_ms(11_000)
    assert sorted(harness.consumers().members) == ["a", "b"]


# -- static members ----------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had() -> None:
    harness = ConsumerHarness()
    harness.enter("a", instance_id="i")
    harness.enter("b")
    harness.settle({"a": {"t": [0, 1, 2, 3]}})
    before, epoch = harness.assigned("a"), harness.consumers().epoch
    harness.beat("a", -2, instance_id="i")
    assert harness.consumers().members["a"].epoch == -2
    reply = harness.enter("a2", instance_id="i")
    assert (named(reply), reply.member_epoch) == (before, epoch)
    assert (harness.consumers().epoch, sorted(harness.consumers().members)) == (epoch, ["a2", "b"])
    assert refused(harness, "a", epoch, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_instance_id_in_use_is_not_released() -> None:
    harness = ConsumerHarness()
    harness.enter("a", instance_id="i")
    assert joining_refused(harness, "b", instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused(harness, "b", 1, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(harness, "b", -2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_does_not_return_is_removed() -> None:
    harness = ConsumerHarness()
    harness.enter("a", instance_id="i")
    harness.beat("a", -2, instance_id="i")
    harness.pass_ms(45_000)
    assert harness.consumers().is_empty()


def test_a_static_member_may_leave_for_good() -> None:
    harness = ConsumerHarness()
    harness.enter("a", instance_id="i")
    harness.beat("a", -1, instance_id="i")
    assert harness.consumers().is_empty()
    assert harness.enter("b", instance_id="i").member_epoch == 3


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
    assert joining_refused(ConsumerHarness(), "a", **fields) is ErrorCode.INVALID_REQUEST


def test_epochs_and_partitions_must_make_sense() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    assert refused(harness, "a", -3) is ErrorCode.INVALID_REQUEST
    assert refused(harness, "a", -2) is ErrorCode.INVALID_REQUEST
    assert refused(harness, "", 1) is ErrorCode.INVALID_REQUEST
    fields = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"]}
    assert refused(harness, "b", 0, {"t": [0]}, **fields) is ErrorCode.INVALID_REQUEST


def test_unknown_members_are_rejected() -> None:
    harness = ConsumerHarness()
    assert refused(harness, "a", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(harness, "a", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    harness.enter("a")
    assert refused(harness, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(harness, "b", -1) is ErrorCode.UNKNOWN_MEMBER_ID


# -- offsets -----------------------------------------------------------------------------


def test_members_commit_at_their_epoch() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    assert harness.commit_code(5, "a", 1) == ErrorCode.NONE
    assert harness.commit_code(5, "a", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert harness.commit_code(5, "a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert harness.commit_code(5, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit_code(5) == ErrorCode.UNKNOWN_MEMBER_ID
    harness.beat("a", -1)
    assert harness.commit_code(6) == ErrorCode.NONE


def test_members_read_offsets_at_their_epoch() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    group = harness.consumers()
    assert group.check_offset_fetch(None, -1) is ErrorCode.NONE
    assert group.check_offset_fetch("a", 1) is ErrorCode.NONE
    assert group.check_offset_fetch("a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_offset_fetch("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_an_empty_group_is_deleted_and_nothing_is_left_of_it() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.commit(5, "a", 1)
    assert harness.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    harness.beat("a", -1)
    assert harness.delete("g") == [ErrorCode.NONE]
    assert not harness.machine.groups
    assert not harness.reload().machine.groups


# -- the log -----------------------------------------------------------------------------


def test_a_group_is_loaded_as_it_was() -> None:
    harness = ConsumerHarness()
    harness.enter("a", "t", instance_id="i", rack_id="r", server_assignor="range")
    harness.enter("b", subscribed_topic_regex="u.*")
    harness.beat("a", 1)
    harness.commit(5, "a", 1)
    again = harness.reload()
    assert again.consumers() == harness.consumers()
    assert again.beat("a", 1, {"t": [0, 1]}, instance_id="i").member_epoch >= 1


def test_loaded_group_starts_its_timers() -> None:
    harness = ConsumerHarness()
    harness.enter("a", rebalance_timeout_ms=10_000)
    harness.enter("b")
    harness.beat("a", 1)
    again = harness.reload()
    again.pass_ms(10_000)
    assert list(again.consumers().members) == ["b"]
    again.pass_ms(35_000)
    assert again.consumers().is_empty()


def test_offsets_before_a_group_do_not_make_it_a_classic_one() -> None:
    harness = ConsumerHarness()
    harness.commit(5)
    harness.enter("a")
    again = harness.reload()
    assert again.consumers() == harness.consumers()
    assert again.machine.offsets.of_group("g")


def test_unknown_member_state_makes_the_member_rejoin() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    group = harness.consumers()
    strange = replace(group.members["a"], state=MemberState.UNKNOWN, epoch=9)
    harness.machine.put(group.with_member(strange))
    assert refused(harness, "a", 9, {"t": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert harness.beat("a", 9, {}).member_epoch == 1
    assert topic_id("t") in harness.consumers().members["a"].assigned
