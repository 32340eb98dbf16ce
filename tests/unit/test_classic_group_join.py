"""JoinGroup of classic groups: new members, rebalances, protocols, static members, sizes."""

import pytest
from classic_harness import FORMING_MS, Harness, lenient

from ottla.coordinators.groups.classic.group import ClassicState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotEnoughReplicas, RecordTooLarge
from ottla.protocol.internal.offset_records import GroupMetadataKey, GroupMetadataValue


def code(future) -> int:
    assert future.is_done, "not answered"
    return future.reply.error_code


# -- newcomers -----------------------------------------------------------------------


def test_new_member_must_rejoin_with_its_id_from_version_4_on() -> None:
    harness = Harness()
    first = harness.join(version=4)
    assert code(first) == ErrorCode.MEMBER_ID_REQUIRED
    assert first.reply.member_id == "m1"
    second = harness.join("m1", version=4)
    assert not second.is_done
    harness.pass_ms(1000)
    assert code(second) == ErrorCode.NONE
    assert second.reply.member_id == second.reply.leader == "m1"
    assert second.reply.generation_id == 1


def test_old_client_joins_at_once() -> None:
    harness = Harness()
    future = harness.join(version=3)
    harness.pass_ms(1000)
    assert (code(future), future.reply.member_id) == (ErrorCode.NONE, "m1")


def test_an_id_that_was_given_and_not_used_is_forgotten() -> None:
    harness = Harness()
    harness.join(version=4, session_ms=6000)
    harness.pass_ms(6000)
    assert harness.group.pending_join == set()
    assert code(harness.join("m1", version=4)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_of_missing_group_creates_no_group() -> None:
    harness = Harness()
    assert code(harness.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.machine.groups.get("g") is None
    assert harness.log.batches == []


def test_new_classic_group_writes_an_empty_record() -> None:
    harness = Harness()
    harness.join(version=4)
    (record,) = harness.records()
    assert record.key == GroupMetadataKey(group="g")
    assert record.value.version == 3
    assert record.value.message == GroupMetadataValue(
        protocol=None, leader=None, current_state_timestamp=harness.clock.wall
    )


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (NotEnoughReplicas("x"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (RecordTooLarge("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_group_whose_first_record_is_rejected_does_not_exist(version, fault, expected) -> None:
    harness = Harness()
    harness.log.fault = fault
    assert code(harness.join(version=version)) == expected
    assert harness.machine.groups.get("g") is None
    assert harness.machine.new_groups == {}
    harness.log.fault = None
    harness.pass_ms(60_000)
    assert harness.machine.groups.get("g") is None


# -- the first rebalance -----------------------------------------------------------------


def test_the_first_rebalance_waits_for_more_and_longer_for_each() -> None:
    harness = Harness()
    first = harness.join(rebalance_ms=2500)
    harness.pass_ms(900)
    second = harness.join(rebalance_ms=2500)
    harness.pass_ms(100)
    assert not first.is_done  # the second joined in time to extend it
    harness.pass_ms(999)
    assert not first.is_done
    harness.pass_ms(1)
    assert code(first) == code(second) == ErrorCode.NONE
    assert first.reply.generation_id == second.reply.generation_id == 1


def test_the_first_rebalance_ends_however_many_keep_coming() -> None:
    harness = Harness(settings=lenient(max_size=100))
    first = harness.join(rebalance_ms=2500)
    for _ in range(60):
        harness.pass_ms(100)
        harness.join(rebalance_ms=2500)
    assert first.is_done


def test_only_the_leader_gets_the_member_list() -> None:
    harness = Harness()
    leader = harness.join(protocols={"range": b"meta-1"})
    follower = harness.join(protocols={"range": b"meta-2"}, instance="i")
    harness.pass_ms(FORMING_MS)
    assert leader.reply.leader == follower.reply.leader == leader.reply.member_id == "m1"
    replies = [(m.member_id, m.group_instance_id, m.metadata) for m in leader.reply.members]
    assert replies == [("m1", None, b"meta-1"), ("m2", "i", b"meta-2")]
    assert follower.reply.members == []
    assert (leader.reply.protocol_name, leader.reply.protocol_type) == ("range", "consumer")


# -- protocols -----------------------------------------------------------------------------


def test_the_protocol_is_one_that_all_offer_and_most_want() -> None:
    harness = Harness()
    futures = [
        harness.join(protocols="a b c"),
        harness.join(protocols="b a"),
        harness.join(protocols="b c a"),
    ]
    harness.pass_ms(FORMING_MS)
    assert {future.reply.protocol_name for future in futures} == {"b"}


@pytest.mark.parametrize(
    "fields",
    [{"protocols": "other"}, {"protocol_type": "connect"}, {"protocols": ""}],
    ids=["none in common", "another type", "none at all"],
)
def test_member_without_common_protocol_is_rejected(fields) -> None:
    harness = Harness()
    harness.stable(1)
    before = len(harness.log.batches)
    assert code(harness.join(**fields)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.group.state is ClassicState.STABLE
    assert len(harness.log.batches) == before


def test_join_without_protocols_is_rejected() -> None:
    harness = Harness()
    assert code(harness.join(protocols="")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(harness.join(protocol_type="")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- later rebalances ------------------------------------------------------------------------


def test_new_member_makes_others_rejoin() -> None:
    harness = Harness()
    (one,) = harness.stable(1)
    newcomer = harness.join()
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    assert harness.heartbeat(one, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert not newcomer.is_done
    again = harness.join(one)
    assert code(again) == code(newcomer) == ErrorCode.NONE
    assert again.reply.generation_id == 2
    assert again.reply.leader == one


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    harness = Harness()
    first, second = harness.stable(2, rebalance_ms=20_000, session_ms=60_000)
    again = harness.join(second, session_ms=60_000, protocols="range other")
    harness.pass_ms(29_999)
    assert not again.is_done
    harness.pass_ms(1)
    assert code(again) == ErrorCode.NONE
    assert again.reply.leader == second
    assert list(harness.group.members) == [second]
    assert harness.heartbeat(first, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_rejoin_of_follower_without_changes_returns_the_generation() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    future = harness.join(follower)
    assert (code(future), future.reply.generation_id) == (ErrorCode.NONE, 1)
    assert (future.reply.leader, future.reply.members) == (leader, [])
    assert harness.group.state is ClassicState.STABLE


def test_rejoin_of_follower_with_new_metadata_or_of_leader_starts_rebalance() -> None:
    harness = Harness()
    _, follower = harness.stable(2)
    assert not harness.join(follower, protocols={"range": b"news"}).is_done
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    harness = Harness()
    leader, _ = harness.stable(2)
    assert not harness.join(leader).is_done
    assert harness.group.state is ClassicState.PREPARING_REBALANCE


def test_before_the_assignment_the_same_join_gets_the_same_answer() -> None:
    harness = Harness()
    leader = harness.join()
    follower = harness.join()
    harness.pass_ms(FORMING_MS)
    again = harness.join("m1")
    assert again.reply == leader.reply
    assert harness.join("m2").reply == follower.reply
    assert harness.group.generation == 1
    changed = harness.join("m2", protocols={"range": b"news"})
    assert not changed.is_done
    assert harness.group.state is ClassicState.PREPARING_REBALANCE


def test_repeated_join_answers_both_requests() -> None:
    harness = Harness()
    first, second = harness.stable(2)
    waiting = harness.join(first)
    again = harness.join(first)
    assert code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert not again.is_done
    harness.join(second)
    assert code(again) == ErrorCode.NONE


def test_new_member_that_disconnects_is_removed_after_its_join_timeout() -> None:
    harness = Harness()
    harness.stable(1, session_ms=1_000_000, rebalance_ms=1_000_000)
    newcomer = harness.join(rebalance_ms=1_000_000, session_ms=6000)
    harness.pass_ms(299_999)
    assert not newcomer.is_done
    harness.pass_ms(1)
    assert code(newcomer) == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(harness.group.members) == ["m1"]


# -- size ------------------------------------------------------------------------------------


def test_full_group_rejects_other_members() -> None:
    harness = Harness()
    ids = harness.stable(3)
    refused = harness.join()
    assert code(refused) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.reply.member_id == ""
    assert harness.group.state is ClassicState.STABLE
    assert not harness.join(ids[0]).is_done  # an existing member may always join


def test_size_limit_counts_joined_members_during_a_rebalance() -> None:
    harness = Harness()
    futures = [harness.join() for _ in range(3)]
    assert code(harness.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.pass_ms(FORMING_MS)
    assert [code(future) for future in futures] == [ErrorCode.NONE] * 3


def test_a_group_loaded_above_the_size_is_asked_to_rejoin() -> None:
    harness = Harness()
    ids = harness.stable(3)
    smaller = Harness(harness.log, lenient(max_size=2))
    assert smaller.group.state is ClassicState.PREPARING_REBALANCE
    futures = [smaller.join(each) for each in ids]
    assert code(futures[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    smaller.pass_ms(30_000)
    assert len(smaller.group.members) == 2


# -- static members --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_member_comes_back_without_a_rebalance(version: int) -> None:
    harness = Harness()
    old, other = _static_pair(harness)
    before = len(harness.log.batches)
    back = harness.join(version=version, instance="i1")
    assert code(back) == ErrorCode.NONE
    assert back.reply.generation_id == 1
    assert harness.group.state is ClassicState.STABLE
    assert len(harness.log.batches) == before + 1
    new = back.reply.member_id
    assert new != old
    assert harness.sync(new, 1).reply.assignment == old.encode()
    if version >= 9:
        assert back.reply.skip_assignment
        assert back.reply.leader == new
        assert len(back.reply.members) == 2
    else:
        assert back.reply.leader == old
        assert back.reply.members == []
    # Requests of the old process are fenced.
    assert harness.heartbeat(old, 1, "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert code(harness.join(old, instance="i1")) == ErrorCode.FENCED_INSTANCE_ID
    assert harness.leave((old, "i1")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert harness.commit_code(1, old, 1, group_instance_id="i1") == ErrorCode.FENCED_INSTANCE_ID
    # and all of it is in the log.
    again = harness.reload()
    assert again.heartbeat(new, 1, "i1") == ErrorCode.NONE
    assert again.heartbeat(other, 1) == ErrorCode.NONE


def _static_pair(harness: Harness) -> tuple[str, str]:
    first = harness.join(version=5, instance="i1")
    second = harness.join(version=3)
    harness.pass_ms(FORMING_MS)
    ids = first.reply.member_id, second.reply.member_id
    harness.sync(ids[1], 1)
    harness.sync(ids[0], 1, **{each: each.encode() for each in ids})
    return ids


def test_a_static_member_whose_new_id_is_not_stored_keeps_the_old_one() -> None:
    harness = Harness()
    old, _ = _static_pair(harness)
    harness.log.fault = NotEnoughReplicas("no")
    refused = harness.join(version=9, instance="i1", protocols="range other")
    assert code(refused) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.log.fault = None
    assert harness.heartbeat(old, 1, "i1") == ErrorCode.NONE
    assert harness.group.leader_id == old
    assert harness.group.supports("consumer", ["other"]) is False


def test_a_static_member_that_changes_the_protocol_makes_a_rebalance() -> None:
    harness = Harness()
    first = harness.join(version=5, instance="i1", protocols="range other")
    harness.pass_ms(1000)
    harness.sync(first.reply.member_id, 1)
    back = harness.join(version=9, instance="i1", protocols="other")
    assert code(back) == ErrorCode.NONE
    assert (back.reply.generation_id, back.reply.protocol_name) == (2, "other")
    assert harness.group.state is ClassicState.COMPLETING_REBALANCE


def test_a_static_member_that_waits_is_fenced_by_its_successor() -> None:
    harness = Harness()
    harness.stable(1)
    waiting = harness.join(version=5, instance="i1")
    successor = harness.join(version=5, instance="i1")
    assert code(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert not successor.is_done
    harness.join("m1")
    assert code(successor) == ErrorCode.NONE


def test_a_static_member_that_waits_for_its_assignment_is_fenced() -> None:
    harness = Harness()
    leader, static = harness.join(), harness.join(version=5, instance="i1")
    harness.pass_ms(FORMING_MS)
    waiting = harness.sync(static.reply.member_id, 1)
    assert not waiting.is_done
    successor = harness.join(version=5, instance="i1")
    assert code(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    assert not successor.is_done
    harness.join(leader.reply.member_id)
    assert code(successor) == ErrorCode.NONE


def test_an_absent_static_member_stays_until_its_session_ends() -> None:
    harness = Harness()
    static = harness.join(version=5, instance="i1", session_ms=60_000, rebalance_ms=20_000)
    dynamic = harness.join(rebalance_ms=20_000, session_ms=60_000)
    harness.pass_ms(FORMING_MS)
    ids = static.reply.member_id, dynamic.reply.member_id
    harness.sync(ids[1], 1)
    harness.sync(ids[0], 1)
    again = harness.join(ids[1], protocols="range more", rebalance_ms=20_000, session_ms=60_000)
    harness.pass_ms(20_000)
    assert (code(again), again.reply.leader) == (ErrorCode.NONE, ids[1])
    assert set(harness.group.members) == set(ids)
    assert again.reply.generation_id == 2


def test_only_absent_static_members_keep_a_rebalance_open() -> None:
    harness = Harness()
    static = harness.join(version=5, instance="i1", session_ms=100_000, rebalance_ms=20_000)
    harness.pass_ms(1000)
    member = static.reply.member_id
    harness.sync(member, 1)
    newcomer = harness.join(rebalance_ms=20_000, version=4)
    assert code(newcomer) == ErrorCode.MEMBER_ID_REQUIRED
    waiting = harness.join(newcomer.reply.member_id, version=4, rebalance_ms=20_000)
    assert not waiting.is_done
    harness.leave(newcomer.reply.member_id)
    assert code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID
    harness.pass_ms(20_000)
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    assert list(harness.group.members) == [member]
