"""SyncGroup, Heartbeat, LeaveGroup, session timeouts, and reloads of classic groups."""

import pytest
from classic_harness import FORMING_MS, Harness

from ottla.coordinators.groups.classic.group import ClassicState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotEnoughReplicas, NotLeader
from ottla.protocol.messages.sync_group import SyncGroupRequest


def code(future) -> int:
    assert future.is_done, "not answered"
    return future.reply.error_code


def forming(harness: Harness, count: int = 2, **fields) -> list[str]:
    """Members that know their generation and wait for their assignment."""
    futures = [harness.join(**fields) for _ in range(count)]
    harness.pass_ms(FORMING_MS)
    return [future.reply.member_id for future in futures]


# -- sync ------------------------------------------------------------------------------


def test_members_get_the_assignment_of_the_leader() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    waiting = harness.sync(follower, 1)
    assert not waiting.is_done
    own = harness.sync(leader, 1, m1=b"one", m2=b"two")
    assert (code(own), own.reply.assignment) == (ErrorCode.NONE, b"one")
    assert (code(waiting), waiting.reply.assignment) == (ErrorCode.NONE, b"two")
    assert (own.reply.protocol_type, own.reply.protocol_name) == ("consumer", "range")
    assert harness.group.state is ClassicState.STABLE
    late = harness.sync(follower, 1)
    assert late.reply.assignment == b"two"


def test_member_missing_from_the_assignment_gets_an_empty_one() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    waiting = harness.sync(follower, 1)
    harness.sync(leader, 1, m1=b"one", stranger=b"?")
    assert (code(waiting), waiting.reply.assignment) == (ErrorCode.NONE, b"")


def test_assignment_is_returned_once_committed() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    harness.log.follows = False
    waiting, own = harness.sync(follower, 1), harness.sync(leader, 1, m2=b"two")
    late = harness.sync(follower, 1)
    assert not (waiting.is_done or own.is_done or late.is_done)
    harness.log.commit()
    assert code(waiting) == code(own) == code(late) == ErrorCode.NONE


def test_assignment_rejected_by_the_log_is_never_returned() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    waiting = harness.sync(follower, 1)
    harness.log.fault = NotEnoughReplicas("no")
    own = harness.sync(leader, 1, m2=b"two")
    assert code(own) == code(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert own.reply.assignment == waiting.reply.assignment == b""
    harness.log.fault = None
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    futures = [harness.join(leader), harness.join(follower)]
    assert [code(future) for future in futures] == [ErrorCode.NONE] * 2
    assert futures[0].reply.generation_id == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "other"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": "nowhere"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_sync_requests_are_rejected(changes, expected) -> None:
    from ottla.coordinators.groups.requests import decide_sync

    harness = Harness()
    forming(harness)
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m1"} | changes
    request = SyncGroupRequest(**fields)
    future = harness.submit(lambda m, now, future: decide_sync(m, request, future, now))
    assert code(future) == expected
    assert harness.group.state is ClassicState.COMPLETING_REBALANCE


def test_sync_during_a_rebalance_returns_rebalance_in_progress() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    waiting = harness.sync(follower, 1)
    harness.join()
    assert code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert code(harness.sync(leader, 1)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_repeated_sync_answers_both_requests() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    first, second = harness.sync(follower, 1), harness.sync(follower, 1)
    assert code(first) == ErrorCode.REBALANCE_IN_PROGRESS
    harness.sync(leader, 1, m2=b"two")
    assert second.reply.assignment == b"two"


def test_member_that_never_syncs_is_removed() -> None:
    harness = Harness()
    leader, follower = forming(harness, rebalance_ms=20_000, session_ms=100_000)
    harness.sync(leader, 1)
    harness.pass_ms(19_999)
    assert harness.group.state is ClassicState.STABLE
    harness.pass_ms(1)
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    assert list(harness.group.members) == [leader]
    assert harness.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_never_assigns_is_removed() -> None:
    harness = Harness()
    _, follower = forming(harness, rebalance_ms=20_000, session_ms=100_000)
    waiting = harness.sync(follower, 1)
    harness.pass_ms(20_000)
    assert code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    again = harness.join(follower)
    assert (code(again), again.reply.leader) == (ErrorCode.NONE, follower)


# -- heartbeat ---------------------------------------------------------------------------


def test_member_without_heartbeat_expires() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    for _ in range(3):
        harness.pass_ms(9000)
        assert harness.heartbeat(leader, 1) == ErrorCode.NONE
        harness.heartbeat(follower, 1)
    harness.pass_ms(9000)
    harness.heartbeat(leader, 1)
    harness.pass_ms(1000)
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    assert harness.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_with_a_waiting_request_needs_no_heartbeat() -> None:
    harness = Harness()
    leader, follower = harness.stable(2, session_ms=10_000, rebalance_ms=60_000)
    waiting = harness.join(leader, rebalance_ms=60_000)
    for _ in range(4):
        harness.pass_ms(9000)
        harness.heartbeat(follower, 1)
    assert not waiting.is_done
    assert leader in harness.group.members


@pytest.mark.parametrize(
    ("member", "generation", "instance", "expected"),
    [
        ("ghost", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("m1", 1, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_heartbeat_does_not_restart_the_session_timeout(
    member, generation, instance, expected
) -> None:
    harness = Harness()
    harness.stable(1)
    harness.pass_ms(9000)
    assert harness.heartbeat(member, generation, instance) == expected
    harness.pass_ms(1000)
    assert harness.group.state is ClassicState.EMPTY


def test_heartbeat_to_missing_group_returns_unknown_member() -> None:
    assert Harness().heartbeat("m", 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offset_commit_restarts_the_session_timeout() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.pass_ms(9000)
    assert harness.commit_code(1, member, 1) == ErrorCode.NONE
    harness.pass_ms(9000)
    assert harness.group.state is ClassicState.STABLE


# -- leave -------------------------------------------------------------------------------


def test_the_last_one_to_leave_leaves_an_empty_group_in_the_log() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    assert harness.leave(member) == [ErrorCode.NONE]
    assert harness.group.state is ClassicState.EMPTY
    assert harness.group.generation == 2
    value = harness.records()[-1].value.message
    assert (value.generation, value.members, value.protocol) == (2, [], None)
    assert value.protocol_type == "consumer"


def test_remaining_members_share_the_partitions_of_leaving_ones() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    assert harness.leave(leader) == [ErrorCode.NONE]
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    again = harness.join(follower)
    assert (code(again), again.reply.leader) == (ErrorCode.NONE, follower)


def test_several_leave_at_once_each_with_its_own_code() -> None:
    harness = Harness()
    static = harness.join(version=5, instance="i1")
    pending = harness.join(version=4).reply.member_id
    harness.join()
    harness.pass_ms(1)
    found = harness.leave("ghost", ("", "i1"), pending, ("", "i2"), "")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert found == [unknown, ErrorCode.NONE, ErrorCode.NONE, unknown, unknown]
    assert code(static) == unknown
    assert harness.group.static == {}
    assert harness.group.pending_join == set()


def test_member_that_leaves_while_waiting_is_answered() -> None:
    harness = Harness()
    _, follower = forming(harness)
    waiting = harness.sync(follower, 1)
    harness.leave(follower)
    assert code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_can_be_what_a_rebalance_waits_for() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    again = harness.join(leader)
    assert not again.is_done
    harness.leave(follower)
    assert code(again) == ErrorCode.NONE


def test_leave_of_missing_group_returns_unknown_member() -> None:
    assert Harness().leave("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_rejected_record_does_not_restore_removed_members() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.log.fault = NotEnoughReplicas("no")
    future = harness.submit(lambda m, now, _: _leave(m, member, now))
    assert future.fault is not None
    assert future.fault.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.log.fault = None
    assert harness.group.state is ClassicState.EMPTY
    harness.pass_ms(30_000)
    future = harness.join()
    harness.pass_ms(FORMING_MS)
    assert code(future) == ErrorCode.NONE


def _leave(machine, member, now):
    from ottla.coordinators.groups.requests import decide_leave
    from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

    return decide_leave(machine, LeaveGroupRequest("g", members=[MemberIdentity(member)]), now)


# -- reload ------------------------------------------------------------------------------


def test_stable_group_continues_under_the_next_coordinator() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    again = harness.reload()
    assert again.group.state is ClassicState.STABLE
    assert again.heartbeat(follower, 1) == ErrorCode.NONE
    assert again.sync(follower, 1).reply.assignment == follower.encode()
    assert again.group.leader_id == leader
    assert again.group.subscribed == frozenset({"t"})
    again.pass_ms(5000)
    assert again.heartbeat(follower, 1) == ErrorCode.NONE
    again.pass_ms(4999)
    assert again.group.state is ClassicState.STABLE
    again.pass_ms(1)
    assert again.group.state is ClassicState.PREPARING_REBALANCE  # the leader sends nothing


def test_pending_replies_fail_when_leadership_is_lost() -> None:
    harness = Harness()
    _, follower = forming(harness)
    waiting = [harness.sync(follower, 1), harness.join(group="other")]
    harness.shard.close()
    for future in waiting:
        assert future.fault is not None and future.fault.code is ErrorCode.NOT_COORDINATOR


def test_lost_write_fails_every_request_once() -> None:
    harness = Harness()
    leader, follower = forming(harness)
    waiting = harness.sync(follower, 1)
    harness.log.fault = NotLeader("gone")
    own = harness.sync(leader, 1)
    for future in (own, waiting):
        assert future.fault is not None and future.fault.code is ErrorCode.NOT_COORDINATOR


def test_a_rebalance_under_way_is_forgotten_and_the_old_generation_counts() -> None:
    harness = Harness()
    leader, _ = harness.stable(2)
    harness.join()
    again = harness.reload()
    assert again.group.state is ClassicState.STABLE
    assert again.heartbeat(leader, 1) == ErrorCode.NONE
