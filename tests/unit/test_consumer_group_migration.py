"""Groups that change their protocol under their members, both ways (KIP-848)."""

from typing import Any

import pytest
from consumer_world import ConsumerWorld, named, subscribed, topic_id

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS
from ottla.coordinators.groups.consumer.classic_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinators.groups.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.requests import decide_leave
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotEnoughReplicas, ProtocolFault
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

CLASSIC: dict[str, Any] = {"protocols": {"range": subscribed("t")}}


def classic_pair(world: ConsumerWorld) -> list[str]:
    """A stable classic group of two, who read two partitions of t each."""
    topics = world.image.topics
    futures = [world.join(**CLASSIC), world.join(**CLASSIC)]
    world.pass_ms(2000)
    ids = [each.reply.member_id for each in futures]
    shares = [
        write_assignment({topic_id("t"): frozenset(part)}, topics, 3) for part in ((0, 1), (2, 3))
    ]
    world.sync(ids[1], 1)
    world.sync(ids[0], 1, **dict(zip(ids, shares, strict=True)))
    assert world.group.state is ClassicState.STABLE
    return ids


def rejoin(world: ConsumerWorld, member_id: str, owned: list[int], **fields: Any) -> Any:
    data = {"range": subscribed("t", owned={"t": owned})}
    return world.join(member_id, protocols=data, **fields).reply


def synced(world: ConsumerWorld, member_id: str, generation: int) -> list[int]:
    reply = world.sync(member_id, generation).reply
    assert reply.error_code == ErrorCode.NONE
    partitions = read_assignment(reply.assignment, world.image.topics)
    return sorted(partitions.get(topic_id("t"), ()))


def upgraded(world: ConsumerWorld) -> list[str]:
    ids = classic_pair(world)
    world.enter("new")
    return ids


# -- up ----------------------------------------------------------------------------------


def test_the_first_consumer_member_makes_a_classic_group_a_consumer_group() -> None:
    world = ConsumerWorld()
    ids = classic_pair(world)
    reply = world.enter("new")
    assert (reply.member_epoch, named(reply)) == (2, {})
    group = world.consumers()
    assert sorted(group.members) == sorted([*ids, "new"])
    assert (group.epoch, group.classic_count) == (2, 2)
    assert world.assigned(ids[0]) == {"t": [0, 1]}
    assert world.reload().consumers() == group


def test_classic_members_revoke_and_receive_by_rejoining() -> None:
    world = ConsumerWorld()
    first, second = upgraded(world)
    moving = [each for each in (first, second) if len(world.consumers().target_of(each)) == 0]
    assert not moving, "everybody keeps something of four partitions"
    targets = {each: world.consumers().target_of(each)[topic_id("t")] for each in (first, second)}
    giver = first if len(targets[first]) == 1 else second
    keeper = second if giver == first else first
    had = world.assigned(giver)["t"]

    assert world.heartbeat(giver, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    reply = rejoin(world, giver, had)
    assert (reply.generation_id, reply.leader, reply.protocol_name) == (1, "", "range")
    kept = synced(world, giver, 1)
    assert kept == sorted(targets[giver])
    assert world.consumers().members[giver].state is MemberState.UNREVOKED
    assert world.beat("new", 2).assignment is None, "it is not given up yet"

    assert world.heartbeat(giver, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(world, giver, kept).generation_id == 2
    assert synced(world, giver, 2) == kept
    assert world.heartbeat(giver, 2) == ErrorCode.NONE
    assert len(named(world.beat("new", 2))["t"]) == 1
    assert rejoin(world, keeper, world.assigned(keeper)["t"]).generation_id == 2
    assert world.consumers().state_name() == "Stable"


def test_partition_assigned_twice_by_a_classic_leader_has_one_owner_after_upgrade() -> None:
    world = ConsumerWorld()
    futures = [world.join(**CLASSIC), world.join(**CLASSIC)]
    world.pass_ms(2000)
    ids = [each.reply.member_id for each in futures]
    everything = write_assignment(
        {topic_id("t"): frozenset(range(4))}, world.image.topics, version=3
    )
    world.sync(ids[0], 1, "g", **dict.fromkeys(ids, everything))
    world.enter("new")
    assert world.assigned(ids[0]) == {"t": [0, 1, 2, 3]}
    assert world.assigned(ids[1]) == {}
    assert set(world.consumers().owners.values()) == {ids[0]}


def test_waiting_requests_of_an_upgraded_group_get_rebalance_in_progress() -> None:
    world = ConsumerWorld()
    ids = classic_pair(world)
    waiting = world.join(ids[0], protocols={"range": subscribed("t", "u")})
    assert not waiting.is_done
    world.enter("new")
    assert waiting.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_refused_upgrade_leaves_the_classic_group() -> None:
    world = ConsumerWorld()
    ids = classic_pair(world)
    world.log.fault = NotEnoughReplicas("alone")
    with pytest.raises(Fault):
        world.enter("new")
    world.log.fault = None
    assert world.heartbeat(ids[0], 1) == ErrorCode.NONE


def test_empty_classic_group_is_replaced() -> None:
    world = ConsumerWorld()
    ids = classic_pair(world)
    world.leave(*ids)
    world.pass_ms(30_000)
    assert world.enter("new").member_epoch == 1
    assert world.reload().consumers() == world.consumers()


@pytest.mark.parametrize(
    "settings",
    [
        ConsumerSettings(migration_policy=MigrationPolicy.DISABLED),
        ConsumerSettings(migration_policy=MigrationPolicy.DOWNGRADE),
        ConsumerSettings(max_size=1),
    ],
)
def test_upgrade_is_disabled_by_the_migration_policy(settings: ConsumerSettings) -> None:
    world = ConsumerWorld(consumer=settings)
    ids = classic_pair(world)
    with pytest.raises(Fault) as caught:
        world.enter("new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat(ids[0], 1) == ErrorCode.NONE


def test_a_group_of_another_protocol_type_stays_classic() -> None:
    world = ConsumerWorld()
    world.join(protocol_type="connect", protocols={"v": b"?"})
    world.pass_ms(2000)
    with pytest.raises(Fault) as caught:
        world.enter("new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_unreadable_subscription_prevents_upgrade() -> None:
    world = ConsumerWorld()
    world.join(protocols={"range": b"\x00"})
    world.pass_ms(2000)
    with pytest.raises(Fault) as caught:
        world.enter("new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# -- classic members of a consumer group -------------------------------------------------


def test_a_classic_member_joins_a_consumer_group() -> None:
    world = ConsumerWorld()
    world.enter("a")
    reply = world.join(version=9, **CLASSIC).reply
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("uuid-"), "as all members of the group have it"
    reply = world.join(reply.member_id, version=9, **CLASSIC).reply
    assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, 2)
    assert synced(world, reply.member_id, 2) == []
    assert world.heartbeat(reply.member_id, 2) == ErrorCode.NONE
    world.beat("a", 1, {"t": [0, 1]})
    assert world.heartbeat(reply.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(world, reply.member_id, []).generation_id == 2
    assert synced(world, reply.member_id, 2) == [2, 3]
    assert world.commit_code(5, reply.member_id, 2, version=8) == ErrorCode.NONE
    assert world.commit_code(5, reply.member_id, 1) == ErrorCode.ILLEGAL_GENERATION


def test_classic_member_needs_a_protocol_in_common() -> None:
    world = ConsumerWorld()
    world.enter("a")
    refuse = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").reply.error_code == refuse
    assert world.join(protocols={"range": b"\xff"}).reply.error_code == refuse
    assert world.join(**CLASSIC).reply.error_code == ErrorCode.NONE
    assert world.join(protocols={"roundrobin": subscribed("t")}).reply.error_code == refuse
    both = {"roundrobin": subscribed("t"), "range": subscribed("t")}
    assert world.join(protocols=both).reply.error_code == ErrorCode.NONE


def test_unknown_members_and_stale_epochs_are_rejected() -> None:
    world = ConsumerWorld()
    world.enter("a")
    member = world.join(**CLASSIC).reply.member_id
    assert world.heartbeat("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID, "it is no classic member"
    assert world.heartbeat(member, 1) == ErrorCode.ILLEGAL_GENERATION
    assert world.sync(member, 1).reply.error_code == ErrorCode.ILLEGAL_GENERATION
    world.enter("b")
    assert world.sync(member, 2).reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.leave("x") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_classic_member_that_does_not_rejoin_is_removed() -> None:
    world = ConsumerWorld()
    ids = upgraded(world)
    for member in ids:
        assert world.heartbeat(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(6):
        world.pass_ms(5_000)
        for member in ids:
            world.heartbeat(member, 1)
        if "new" in world.consumers().members:
            world.beat("new", world.consumers().members["new"].epoch)
    assert list(world.consumers().members) == ["new"]


def test_classic_member_that_does_not_sync_is_removed() -> None:
    world = ConsumerWorld()
    world.enter("a")
    member = world.join(rebalance_ms=8_000, **CLASSIC).reply.member_id
    world.pass_ms(7_999)
    assert member in world.consumers().members
    world.pass_ms(1)
    assert member not in world.consumers().members


def test_classic_member_expires_by_its_own_session_timeout() -> None:
    world = ConsumerWorld()
    world.enter("a")
    member = world.join(session_ms=6_000, **CLASSIC).reply.member_id
    world.sync(member, 2)
    world.pass_ms(6_000)
    assert list(world.consumers().members) == ["a"]
    member = world.join(session_ms=6_000, **CLASSIC).reply.member_id
    again = world.reload()
    again.pass_ms(6_000)
    assert list(again.consumers().members) == ["a"]


def test_classic_members_leave() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("s", instance_id="i")
    member = world.join(**CLASSIC).reply.member_id
    assert world.leave(member, ("", "i"), ("", "j")) == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(world.consumers().members) == ["a"]


def test_leave_group_removes_members_of_the_consumer_protocol() -> None:
    world = ConsumerWorld()
    for name, instance in (("a", None), ("s", "i"), ("r", "j"), ("z", None)):
        world.enter(name, instance_id=instance)

    codes = world.leave("a", ("other", "i"), ("r", "j"), ("", "i"), "", "a")

    fenced, unknown = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [0, fenced, 0, 0, unknown, 0]
    assert list(world.consumers().members) == ["z"]
    assert world.leave("a") == [unknown]


def test_leave_group_names_members_as_the_request_does() -> None:
    world = ConsumerWorld()
    world.enter("s", instance_id="i")
    world.enter("z")
    request = LeaveGroupRequest("g", members=[MemberIdentity("", "i")])

    reply = world.submit(lambda m, now, _: decide_leave(m, request, now)).reply

    assert [(each.member_id, each.group_instance_id) for each in reply.members] == [("", "i")]


def test_a_static_member_changes_its_protocol_both_ways() -> None:
    world = ConsumerWorld()
    world.enter("a")
    old = world.join(instance="i", **CLASSIC).reply.member_id
    world.settle({"a": {"t": [0, 1]}}, rounds=1)
    rejoin(world, old, [], instance="i")
    had = world.assigned(old)
    reply = world.enter("new", instance_id="i")
    assert named(reply) == had == {"t": [2, 3]}
    assert old not in world.consumers().members
    reply = world.join(instance="i", **CLASSIC).reply
    assert reply.error_code == ErrorCode.NONE
    assert world.assigned(reply.member_id) == had
    assert world.join("new", instance="i", **CLASSIC).reply.error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )


# -- down --------------------------------------------------------------------------------


def test_the_last_consumer_member_leaves_a_classic_group() -> None:
    world = ConsumerWorld()
    ids = upgraded(world)
    epoch = world.consumers().epoch
    world.beat("new", -1)
    group = world.group
    assert (group.state, group.generation) == (ClassicState.PREPARING_REBALANCE, epoch)
    assert sorted(group.members) == sorted(ids)
    assert world.heartbeat(ids[0], epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    futures = [world.join(each, **CLASSIC) for each in ids]
    assert {each.reply.generation_id for each in futures} == {epoch + 1}

    again = world.reload()
    assert isinstance(again.machine.groups["g"], ClassicGroup)
    assert sorted(again.group.members) == sorted(ids)
    assert again.group.generation == epoch


def test_downgrade_keeps_the_targets_of_members() -> None:
    world = ConsumerWorld()
    ids = upgraded(world)
    targets = {each: world.consumers().target_of(each) for each in ids}
    world.beat("new", -1)
    for each in ids:
        member = world.group.members[each]
        assert read_assignment(member.assignment, world.image.topics) == targets[each]


def test_session_timeout_of_the_last_consumer_member_downgrades_the_group() -> None:
    world = ConsumerWorld()
    world.enter("a")
    member = world.join(session_ms=100_000, rebalance_ms=100_000, **CLASSIC).reply.member_id
    world.pass_ms(45_000)
    assert list(world.group.members) == [member]


def test_a_static_classic_member_in_place_of_the_last_consumer_member_ends_it() -> None:
    world = ConsumerWorld()
    world.enter("a", instance_id="i")
    world.join(**CLASSIC)
    reply = world.join(instance="i", **CLASSIC).reply
    assert reply.error_code == ErrorCode.NONE
    group = world.group
    assert (group.state, len(group.members)) == (ClassicState.STABLE, 2)
    assert group.static["i"] == reply.member_id
    again = world.reload()
    assert sorted(again.group.members) == sorted(group.members)


def test_a_refused_downgrade_leaves_the_consumer_group() -> None:
    world = ConsumerWorld()
    upgraded(world)
    before = world.consumers()
    world.log.fault = NotEnoughReplicas("alone")
    with pytest.raises(Fault):
        world.beat("new", -1)
    assert (world.consumers(), world.machine.new_groups) == (before, {})


def test_downgrade_is_disabled_by_the_migration_policy() -> None:
    world = ConsumerWorld(consumer=ConsumerSettings(migration_policy=MigrationPolicy.UPGRADE))
    upgraded(world)
    world.beat("new", -1)
    assert world.consumers().classic_count == 2


def test_empty_consumer_group_is_replaced_by_a_classic_one() -> None:
    world = ConsumerWorld()
    world.enter("a", subscribed_topic_regex="t")
    world.beat("a", -1)
    world.join(**CLASSIC)
    world.pass_ms(2000)
    assert world.group.state is ClassicState.COMPLETING_REBALANCE
    assert isinstance(world.reload().machine.groups["g"], ClassicGroup)


# -- bytes -------------------------------------------------------------------------------


def test_embedded_messages_are_read_in_every_version() -> None:
    topics = ConsumerWorld().image.topics
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
    topics = ConsumerWorld().image.topics
    data = write_assignment({topic_id("gone"): frozenset((1,))}, topics, 3)
    assert read_assignment(data, topics) == NO_PARTITIONS
    assert read_assignment(b"", topics) == NO_PARTITIONS
