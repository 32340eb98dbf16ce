"""Groups that change their protocol while they have members, both ways (KIP-848)."""

from typing import Any

import pytest
from consumer_harness import ConsumerHarness, named, subscribed, topic_id

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS
from ottla.coordinators.groups.consumer.classic_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinators.groups.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.errors import GroupIdNotFound
from ottla.coordinators.groups.requests import decide_leave
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotEnoughReplicas, ProtocolFault
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

CLASSIC: dict[str, Any] = {"protocols": {"range": subscribed("t")}}


def classic_pair(harness: ConsumerHarness) -> list[str]:
    """A stable classic group of two members with two partitions of t each."""
    topics = harness.image.topics
    futures = [harness.join(**CLASSIC), harness.join(**CLASSIC)]
    harness.pass_ms(2000)
    ids = [each.reply.member_id for each in futures]
    shares = [
        write_assignment({topic_id("t"): frozenset(part)}, topics, 3) for part in ((0, 1), (2, 3))
    ]
    harness.sync(ids[1], 1)
    harness.sync(ids[0], 1, **dict(zip(ids, shares, strict=True)))
    assert harness.group.state is ClassicState.STABLE
    return ids


def rejoin(harness: ConsumerHarness, member_id: str, owned: list[int], **fields: Any) -> Any:
    data = {"range": subscribed("t", owned={"t": owned})}
    return harness.join(member_id, protocols=data, **fields).reply


def synced(harness: ConsumerHarness, member_id: str, generation: int) -> list[int]:
    reply = harness.sync(member_id, generation).reply
    assert reply.error_code == ErrorCode.NONE
    partitions = read_assignment(reply.assignment, harness.image.topics)
    return sorted(partitions.get(topic_id("t"), ()))


def upgraded(harness: ConsumerHarness) -> list[str]:
    ids = classic_pair(harness)
    harness.enter("new")
    return ids


# -- up ----------------------------------------------------------------------------------


def test_the_first_consumer_member_makes_a_classic_group_a_consumer_group() -> None:
    harness = ConsumerHarness()
    ids = classic_pair(harness)
    reply = harness.enter("new")
    assert (reply.member_epoch, named(reply)) == (2, {})
    group = harness.consumers()
    assert sorted(group.members) == sorted([*ids, "new"])
    assert (group.epoch, group.classic_count) == (2, 2)
    assert harness.assigned(ids[0]) == {"t": [0, 1]}
    assert harness.reload().consumers() == group


def test_classic_members_revoke_and_receive_by_rejoining() -> None:
    harness = ConsumerHarness()
    first, second = upgraded(harness)
    moving = [each for each in (first, second) if len(harness.consumers().target_of(each)) == 0]
    assert not moving, "everybody keeps something of four partitions"
    targets = {each: harness.consumers().target_of(each)[topic_id("t")] for each in (first, second)}
    giver = first if len(targets[first]) == 1 else second
    keeper = second if giver == first else first
    had = harness.assigned(giver)["t"]

    assert harness.heartbeat(giver, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    reply = rejoin(harness, giver, had)
    assert (reply.generation_id, reply.leader, reply.protocol_name) == (1, "", "range")
    kept = synced(harness, giver, 1)
    assert kept == sorted(targets[giver])
    assert harness.consumers().members[giver].state is MemberState.UNREVOKED
    assert harness.beat("new", 2).assignment is None, "it is not given up yet"

    assert harness.heartbeat(giver, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(harness, giver, kept).generation_id == 2
    assert synced(harness, giver, 2) == kept
    assert harness.heartbeat(giver, 2) == ErrorCode.NONE
    assert len(named(harness.beat("new", 2))["t"]) == 1
    assert rejoin(harness, keeper, harness.assigned(keeper)["t"]).generation_id == 2
    assert harness.consumers().state_name() == "Stable"


def test_partition_assigned_twice_by_a_classic_leader_has_one_owner_after_upgrade() -> None:
    harness = ConsumerHarness()
    futures = [harness.join(**CLASSIC), harness.join(**CLASSIC)]
    harness.pass_ms(2000)
    ids = [each.reply.member_id for each in futures]
    everything = write_assignment(
        {topic_id("t"): frozenset(range(4))}, harness.image.topics, version=3
    )
    harness.sync(ids[0], 1, "g", **dict.fromkeys(ids, everything))
    harness.enter("new")
    assert harness.assigned(ids[0]) == {"t": [0, 1, 2, 3]}
    assert harness.assigned(ids[1]) == {}
    assert set(harness.consumers().owners.values()) == {ids[0]}


def test_waiting_requests_of_an_upgraded_group_get_rebalance_in_progress() -> None:
    harness = ConsumerHarness()
    ids = classic_pair(harness)
    waiting = harness.join(ids[0], protocols={"range": subscribed("t", "u")})
    assert not waiting.is_done
    harness.enter("new")
    assert waiting.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_refused_upgrade_leaves_the_classic_group() -> None:
    harness = ConsumerHarness()
    ids = classic_pair(harness)
    harness.log.fault = NotEnoughReplicas("alone")
    with pytest.raises(Fault):
        harness.enter("new")
    harness.log.fault = None
    assert harness.heartbeat(ids[0], 1) == ErrorCode.NONE


def test_empty_classic_group_is_replaced() -> None:
    harness = ConsumerHarness()
    ids = classic_pair(harness)
    harness.leave(*ids)
    harness.pass_ms(30_000)
    assert harness.enter("new").member_epoch == 1
    assert harness.reload().consumers() == harness.consumers()


@pytest.mark.parametrize(
    "settings",
    [
        ConsumerSettings(migration_policy=MigrationPolicy.DISABLED),
        ConsumerSettings(migration_policy=MigrationPolicy.DOWNGRADE),
        ConsumerSettings(max_size=1),
    ],
)
def test_upgrade_is_disabled_by_the_migration_policy(settings: ConsumerSettings) -> None:
    harness = ConsumerHarness(consumer=settings)
    ids = classic_pair(harness)
    with pytest.raises(Fault) as caught:
        harness.enter("new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.heartbeat(ids[0], 1) == ErrorCode.NONE


def test_a_group_of_another_protocol_type_stays_classic() -> None:
    harness = ConsumerHarness()
    harness.join(protocol_type="connect", protocols={"v": b"?"})
    harness.pass_ms(2000)
    with pytest.raises(Fault) as caught:
        harness.enter("new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_unreadable_subscription_prevents_upgrade() -> None:
    harness = ConsumerHarness()
    harness.join(protocols={"range": b"\x00"})
    harness.pass_ms(2000)
    with pytest.raises(Fault) as caught:
        harness.enter("new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_user_data_of_a_custom_assignor_prevents_upgrade() -> None:
    harness = ConsumerHarness()
    joined = harness.join(**CLASSIC)
    harness.pass_ms(2000)
    member = joined.reply.member_id
    version = (3).to_bytes(2, "big")
    carried = ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"mine")
    assignment = version + encode(carried, 3)
    harness.sync(member, 1, **{member: assignment})
    with pytest.raises(GroupIdNotFound, match="because an unsupported custom assignor is in use"):
        harness.enter("new")
    assert harness.sync(member, 1).reply.assignment == assignment, "the group stays as it was"


# -- classic members of a consumer group -------------------------------------------------


def test_a_classic_member_joins_a_consumer_group() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    reply = harness.join(version=9, **CLASSIC).reply
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("uuid-"), "as all members of the group have it"
    reply = harness.join(reply.member_id, version=9, **CLASSIC).reply
    assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, 2)
    assert synced(harness, reply.member_id, 2) == []
    assert harness.heartbeat(reply.member_id, 2) == ErrorCode.NONE
    harness.beat("a", 1, {"t": [0, 1]})
    assert harness.heartbeat(reply.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(harness, reply.member_id, []).generation_id == 2
    assert synced(harness, reply.member_id, 2) == [2, 3]
    assert harness.commit_code(5, reply.member_id, 2, version=8) == ErrorCode.NONE
    assert harness.commit_code(5, reply.member_id, 1) == ErrorCode.ILLEGAL_GENERATION


def test_classic_member_needs_a_protocol_in_common() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    refuse = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocol_type="connect").reply.error_code == refuse
    assert harness.join(protocols={"range": b"\xff"}).reply.error_code == refuse
    assert harness.join(**CLASSIC).reply.error_code == ErrorCode.NONE
    assert harness.join(protocols={"roundrobin": subscribed("t")}).reply.error_code == refuse
    both = {"roundrobin": subscribed("t"), "range": subscribed("t")}
    assert harness.join(protocols=both).reply.error_code == ErrorCode.NONE


def test_new_classic_member_gets_an_id_before_its_metadata_are_read() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    reply = harness.join(version=9, protocols={"range": b"\xff"}).reply
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    again = harness.join(reply.member_id, version=9, protocols={"range": b"\xff"}).reply
    assert again.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert again.member_id == "", "as Kafka, beside an error of a consumer group"


def test_unknown_members_and_stale_epochs_are_rejected() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    member = harness.join(**CLASSIC).reply.member_id
    assert harness.heartbeat("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID, "it is no classic member"
    assert harness.heartbeat(member, 1) == ErrorCode.ILLEGAL_GENERATION
    assert harness.sync(member, 1).reply.error_code == ErrorCode.ILLEGAL_GENERATION
    harness.enter("b")
    assert harness.sync(member, 2).reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.leave("x") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_classic_member_that_does_not_rejoin_is_removed() -> None:
    harness = ConsumerHarness()
    ids = upgraded(harness)
    for member in ids:
        assert harness.heartbeat(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(6):
        harness.pass_ms(5_000)
        for member in ids:
            harness.heartbeat(member, 1)
        if "new" in harness.consumers().members:
            harness.beat("new", harness.consumers().members["new"].epoch)
    assert list(harness.consumers().members) == ["new"]


def test_classic_member_that_does_not_sync_is_removed() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    member = harness.join(rebalance_ms=8_000, **CLASSIC).reply.member_id
    harness.pass_ms(7_999)
    assert member in harness.consumers().members
    harness.pass_ms(1)
    assert member not in harness.consumers().members


def test_classic_member_expires_by_its_own_session_timeout() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    member = harness.join(session_ms=6_000, **CLASSIC).reply.member_id
    harness.sync(member, 2)
    harness.pass_ms(6_000)
    assert list(harness.consumers().members) == ["a"]
    member = harness.join(session_ms=6_000, **CLASSIC).reply.member_id
    again = harness.reload()
    again.pass_ms(6_000)
    assert list(again.consumers().members) == ["a"]


def test_classic_members_leave() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    harness.enter("s", instance_id="i")
    member = harness.join(**CLASSIC).reply.member_id
    assert harness.leave(member, ("", "i"), ("", "j")) == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(harness.consumers().members) == ["a"]


def test_leave_group_removes_members_of_the_consumer_protocol() -> None:
    harness = ConsumerHarness()
    for name, instance in (("a", None), ("s", "i"), ("r", "j"), ("z", None)):
        harness.enter(name, instance_id=instance)

    codes = harness.leave("a", ("other", "i"), ("r", "j"), ("", "i"), "", "a")

    fenced, unknown = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [0, fenced, 0, 0, unknown, 0]
    assert list(harness.consumers().members) == ["z"]
    assert harness.leave("a") == [unknown]


def test_leave_group_names_members_as_the_request_does() -> None:
    harness = ConsumerHarness()
    harness.enter("s", instance_id="i")
    harness.enter("z")
    request = LeaveGroupRequest("g", members=[MemberIdentity("", "i")])

    reply = harness.submit(lambda m, now, _: decide_leave(m, request, now)).reply

    assert [(each.member_id, each.group_instance_id) for each in reply.members] == [("", "i")]


def test_a_static_member_changes_its_protocol_both_ways() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    old = harness.join(instance="i", **CLASSIC).reply.member_id
    harness.settle({"a": {"t": [0, 1]}}, rounds=1)
    rejoin(harness, old, [], instance="i")
    had = harness.assigned(old)
    reply = harness.enter("new", instance_id="i")
    assert named(reply) == had == {"t": [2, 3]}
    assert old not in harness.consumers().members
    reply = harness.join(instance="i", **CLASSIC).reply
    assert reply.error_code == ErrorCode.NONE
    assert harness.assigned(reply.member_id) == had
    assert harness.join("new", instance="i", **CLASSIC).reply.error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )


# -- down --------------------------------------------------------------------------------


def test_the_last_consumer_member_leaves_a_classic_group() -> None:
    harness = ConsumerHarness()
    ids = upgraded(harness)
    epoch = harness.consumers().epoch
    harness.beat("new", -1)
    group = harness.group
    assert (group.state, group.generation) == (ClassicState.PREPARING_REBALANCE, epoch)
    assert sorted(group.members) == sorted(ids)
    assert harness.heartbeat(ids[0], epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    futures = [harness.join(each, **CLASSIC) for each in ids]
    assert {each.reply.generation_id for each in futures} == {epoch + 1}

    again = harness.reload()
    assert isinstance(again.machine.groups["g"], ClassicGroup)
    assert sorted(again.group.members) == sorted(ids)
    assert again.group.generation == epoch


def test_downgrade_keeps_the_targets_of_members() -> None:
    harness = ConsumerHarness()
    ids = upgraded(harness)
    targets = {each: harness.consumers().target_of(each) for each in ids}
    harness.beat("new", -1)
    for each in ids:
        member = harness.group.members[each]
        assert read_assignment(member.assignment, harness.image.topics) == targets[each]


def test_session_timeout_of_the_last_consumer_member_downgrades_the_group() -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    member = harness.join(session_ms=100_000, rebalance_ms=100_000, **CLASSIC).reply.member_id
    harness.pass_ms(45_000)
    assert list(harness.group.members) == [member]


def test_a_static_classic_member_in_place_of_the_last_consumer_member_ends_it() -> None:
    harness = ConsumerHarness()
    harness.enter("a", instance_id="i")
    harness.join(**CLASSIC)
    reply = harness.join(instance="i", **CLASSIC).reply
    assert reply.error_code == ErrorCode.NONE
    group = harness.group
    assert (group.state, len(group.members)) == (ClassicState.STABLE, 2)
    assert group.static["i"] == reply.member_id
    again = harness.reload()
    assert sorted(again.group.members) == sorted(group.members)


def test_a_refused_downgrade_leaves_the_consumer_group() -> None:
    harness = ConsumerHarness()
    upgraded(harness)
    before = harness.consumers()
    harness.log.fault = NotEnoughReplicas("alone")
    with pytest.raises(Fault):
        harness.beat("new", -1)
    assert (harness.consumers(), harness.machine.new_groups) == (before, {})


def test_downgrade_is_disabled_by_the_migration_policy() -> None:
    harness = ConsumerHarness(consumer=ConsumerSettings(migration_policy=MigrationPolicy.UPGRADE))
    upgraded(harness)
    harness.beat("new", -1)
    assert harness.consumers().classic_count == 2


def test_empty_consumer_group_is_replaced_by_a_classic_one() -> None:
    harness = ConsumerHarness()
    harness.enter("a", subscribed_topic_regex="t")
    harness.beat("a", -1)
    harness.join(**CLASSIC)
    harness.pass_ms(2000)
    assert harness.group.state is ClassicState.COMPLETING_REBALANCE
    assert isinstance(harness.reload().machine.groups["g"], ClassicGroup)


# -- bytes -------------------------------------------------------------------------------


def test_embedded_messages_are_read_in_every_version() -> None:
    topics = ConsumerHarness().image.topics
    for version in range(4):
        message = read_subscription(subscribed("t", "u", owned={"t": [1]}, version=version))
        assert message.topics == ["t", "u"]
        assert len(message.owned_partitions) == (version > 0)
        data = write_assignment({topic_id("t"): frozenset((2, 0))}, topics, version)
        assert read_assignment(data, topics) == {topic_id("t"): frozenset((0, 2))}
    newer = b"\x00\x09" + subscribed("t")[2:]
    assert read_subscription(newer).topics == ["t"]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00", b"\x00\x00\x7f\xff\xff\xff"])
def test_embedded_messages_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolFault):
        read_subscription(data)


def test_deleted_topics_are_left_out_of_the_assignment() -> None:
    topics = ConsumerHarness().image.topics
    data = write_assignment({topic_id("gone"): frozenset((1,))}, topics, 3)
    assert read_assignment(data, topics) == NO_PARTITIONS
    assert read_assignment(b"", topics) == NO_PARTITIONS
