"""Changing the voters, one rule at a time: what is rejected, what counts, what is reverted."""

import pytest
from msgspec import structs
from raft_scenario import NONE, Scenario, at, hint, key
from raft_simulation import CLUSTER, Entry, directory, endpoint, settings, voter

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core import effects as out
from ottla.raft.core import events as into
from ottla.raft.core import messages as said
from ottla.raft.core.effects import Role
from ottla.raft.core.voter_history import Membership
from ottla.raft.core.voters import (
    ALL_KRAFT_VERSIONS,
    NO_RECONFIGURATION,
    ReplicaKey,
    VersionRange,
    Voter,
    VoterSet,
)


def describe(scenario: Scenario):
    return scenario.core.describe(Millis(scenario.now))


# -- changing voters ---------------------------------------------------------


def add(node_id: int = 4, **changed) -> said.AddVoterRequest:
    options: dict = {"voter": key(node_id), "endpoints": voter(node_id).endpoints} | changed
    return said.AddVoterRequest(**({"cluster_id": CLUSTER} | options))


def remove(node_id: int) -> said.RemoveVoterRequest:
    return said.RemoveVoterRequest(CLUSTER, key(node_id))


def error_of(scenario: Scenario) -> ErrorCode:
    return scenario.answer().error


def leading(**changed) -> Scenario:
    scenario = Scenario(history=(1,), **changed)
    scenario.lead()
    return scenario


def added(scenario: Scenario, versions: VersionRange = ALL_KRAFT_VERSIONS) -> None:
    scenario.asked(112, add())
    scenario.receives(113, 4, said.ApiVersionsReply(NONE, versions))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (add(voter=ReplicaKey(NodeId(4))), ErrorCode.INVALID_REQUEST),
        (add(voter=ReplicaKey(NodeId(-1), directory(4))), ErrorCode.INVALID_REQUEST),
        (add(endpoints=()), ErrorCode.INVALID_REQUEST),
        (add(2), ErrorCode.DUPLICATE_VOTER),
        (add(2, voter=ReplicaKey(NodeId(2), directory(99))), ErrorCode.DUPLICATE_VOTER),
        (remove(9), ErrorCode.VOTER_NOT_FOUND),
        (
            said.RemoveVoterRequest(CLUSTER, ReplicaKey(NodeId(2), directory(99))),
            ErrorCode.VOTER_NOT_FOUND,
        ),
        (said.RemoveVoterRequest(CLUSTER, ReplicaKey(NodeId(2))), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_change_is_rejected(request_: said.Request, error: ErrorCode) -> None:
    scenario = leading()
    scenario.asked(110, request_)
    assert error_of(scenario) is error
    assert not scenario.has(out.AppendControl)
    assert describe(scenario).voters == scenario.voters


def test_only_a_leader_changes_voters() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.start()
    scenario.asked(5, add())
    assert error_of(scenario) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_last_voter_cannot_be_removed() -> None:
    scenario = Scenario(voters=(1,), history=(1,))
    scenario.start()
    scenario.flushed(1)
    scenario.asked(2, remove(1))
    assert error_of(scenario) is ErrorCode.VOTER_NOT_FOUND


def test_lagging_observer_is_not_added() -> None:
    scenario = leading()
    added(scenario)
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT, "it never fetched"
    scenario.tell("propose", into.Propose(Millis(120), LeaderEpoch(2), 4, "x"))
    scenario.fetch(121, 4, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(122, add())
    scenario.receives(123, 4, said.ApiVersionsReply(NONE, ALL_KRAFT_VERSIONS))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT, "four records behind"
    scenario.fetch(124, 4, 2, at(2, 3), wait_ms_max=0)
    scenario.asked(125, add())
    scenario.receives(126, 4, said.ApiVersionsReply(NONE, ALL_KRAFT_VERSIONS))
    assert describe(scenario).voters.ids == (1, 2, 3, 4)


def test_observer_that_stopped_fetching_is_not_added() -> None:
    scenario = leading()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    for now in (200, 300, 400, 500):
        scenario.fetch(now, 2, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(500, add())
    scenario.receives(501, 4, said.ApiVersionsReply(NONE, ALL_KRAFT_VERSIONS))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT


def test_observer_without_the_kraft_version_is_not_added() -> None:
    scenario = leading()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    added(scenario, NO_RECONFIGURATION)
    assert error_of(scenario) is ErrorCode.INVALID_REQUEST


def test_unanswering_observer_is_not_added() -> None:
    scenario = leading()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(112, add())
    scenario.tell("unanswered", into.Unanswered(Millis(113), scenario.tickets[4]))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT
    scenario.asked(140, remove(3))
    assert scenario.has(out.AppendControl), "the way is free again"


def test_only_one_change_at_a_time() -> None:
    scenario = leading()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(111, add())
    scenario.asked(112, remove(3))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT, "being asked"
    scenario.receives(113, 4, said.ApiVersionsReply(NONE, ALL_KRAFT_VERSIONS))
    scenario.asked(114, remove(3))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT, "appended"
    for now in (200, 300):
        scenario.fetch(now, 2, 2, at(2, 2), wait_ms_max=0)
    assert describe(scenario).high_watermark == 2
    scenario.asked(301, remove(3))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT, "given up, yet not committed"
    assert not scenario.has(out.AppendControl)


def test_change_is_rejected_before_the_leader_has_committed() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=3, epoch=1)
    scenario.records(2, 3, 1, (), high_watermark=2)
    scenario.tick(202)
    scenario.vote(203, 2, 1, True)
    scenario.vote(204, 2, 2, True)
    assert describe(scenario).role is Role.LEADER
    assert describe(scenario).high_watermark == 2
    scenario.asked(205, remove(3))
    assert error_of(scenario) is ErrorCode.REQUEST_TIMED_OUT
    assert not scenario.has(out.AppendControl)


def test_change_is_answered_when_committed_or_timed_out() -> None:
    scenario = leading()
    scenario.asked(110, remove(3))
    asked = scenario.token
    assert not scenario.has(out.Answer)
    scenario.fetch(200, 2, 2, at(2, 2), wait_ms_max=0)
    scenario.tick(260)
    [answer] = [e for e in scenario.effects if isinstance(e, out.Answer)]
    assert (answer.token, answer.reply.error) == (asked, ErrorCode.REQUEST_TIMED_OUT)


def test_add_without_waiting_is_answered_once_appended() -> None:
    scenario = leading()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(112, add(is_ack_when_committed=False))
    scenario.receives(113, 4, said.ApiVersionsReply(NONE, ALL_KRAFT_VERSIONS))
    assert error_of(scenario) is NONE
    assert describe(scenario).high_watermark == 2


def test_removed_voter_no_longer_counts() -> None:
    scenario = Scenario(voters=(1, 2, 3, 4), history=(1,))
    scenario.start()
    scenario.tick(100)
    for epoch in (1, 2):
        for sender in (2, 3):
            scenario.vote(100, sender, epoch, True)
    scenario.flushed(101)
    for sender in (2, 3):
        scenario.fetch(102, sender, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(110, remove(4))
    scenario.flushed(111)
    scenario.fetch(112, 4, 2, at(2, 3), wait_ms_max=0)
    assert describe(scenario).high_watermark == 2, "1 and 4 of {1 2 3}: no majority"
    scenario.fetch(113, 3, 2, at(2, 3), wait_ms_max=0)
    assert describe(scenario).high_watermark == 3


def test_added_voter_counts_from_the_append_on() -> None:
    scenario = leading()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    added(scenario)
    scenario.flushed(114)
    scenario.fetch(115, 2, 2, at(2, 3), wait_ms_max=0)
    assert describe(scenario).high_watermark == 2, "1 and 2 of {1 2 3 4}: no majority"


def test_truncation_reverts_the_voters() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=1)
    four = VoterSet((*scenario.voters, voter(4)))
    record = Entry(1, out.VotersRecord(four))
    batches = said.Batches(Offset(2), at(1, 3), (record,), (said.VotersAt(Offset(2), four),))
    scenario.receives(
        2, 2, said.FetchReply(NONE, hint(1, 2), Offset(2), Offset(0), records=batches)
    )
    assert describe(scenario).voters.ids == (1, 2, 3, 4)
    scenario.flushed(3)
    begin = said.BeginEpochRequest(CLUSTER, NodeId(3), LeaderEpoch(4), voter(3).endpoints, key(1))
    scenario.asked(4, begin)
    scenario.receives(5, 3, said.FetchReply(NONE, hint(4, 3), None, Offset(0), diverging=at(1, 2)))
    assert scenario.has(out.VotersChanged)
    assert describe(scenario).voters == scenario.voters


def test_removed_leader_leads_until_its_removal_is_committed() -> None:
    scenario = leading()
    scenario.tell("propose", into.Propose(Millis(109), LeaderEpoch(2), 1, "x"))
    scenario.asked(110, remove(1))
    scenario.flushed(111)
    for sender in (2, 3):
        scenario.fetch(112, sender, 2, at(2, 3), wait_ms_max=0)
    assert describe(scenario).high_watermark == 3
    assert describe(scenario).role is Role.LEADER, "the record before the removal is committed"
    for sender in (2, 3):
        assert describe(scenario).role is Role.LEADER
        scenario.fetch(113, sender, 2, at(2, 4), wait_ms_max=0)
    assert describe(scenario).role is Role.RESIGNED


def test_removed_voter_may_be_candidate_until_its_removal_is_committed() -> None:
    """It may be the only one with an up-to-date log: see docs/raft.md."""
    scenario = leading()
    scenario.asked(110, remove(1))
    scenario.flushed(111)
    scenario.restart(200)
    scenario.tick(300)
    scenario.tick(400)
    assert describe(scenario).role is Role.PROSPECTIVE
    scenario.vote(401, 2, 3, True)
    assert describe(scenario).role is Role.PROSPECTIVE, "one of {2 3}: its own vote does not count"
    scenario.vote(402, 3, 3, True)
    assert describe(scenario).role is Role.CANDIDATE


def update(**changed) -> said.UpdateVoterRequest:
    options: dict = {
        "cluster_id": CLUSTER,
        "epoch": LeaderEpoch(2),
        "voter": key(2),
        "endpoints": (endpoint(22),),
        "kraft_versions": ALL_KRAFT_VERSIONS,
    }
    return said.UpdateVoterRequest(**(options | changed))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (update(epoch=LeaderEpoch(1)), ErrorCode.FENCED_LEADER_EPOCH),
        (update(epoch=LeaderEpoch(3)), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (update(kraft_versions=NO_RECONFIGURATION), ErrorCode.INVALID_REQUEST),
        (update(kraft_versions=VersionRange(2, 1)), ErrorCode.INVALID_REQUEST),
        (update(voter=ReplicaKey(NodeId(2), directory(99))), ErrorCode.VOTER_NOT_FOUND),
        (update(endpoints=()), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_update_is_rejected(request_: said.Request, error: ErrorCode) -> None:
    scenario = leading()
    scenario.asked(110, request_)
    assert error_of(scenario) is error
    assert not scenario.has(out.AppendControl)


def test_voter_updates_its_endpoints() -> None:
    scenario = leading()
    scenario.asked(110, update())
    assert error_of(scenario) is NONE
    assert describe(scenario).voters.get(NodeId(2)).endpoints == (endpoint(22),)
    follower = Scenario(history=(1, 1), endpoints=(endpoint(11),))
    follower.follow(leader=2, epoch=1)
    for now in range(100, 601, 50):
        follower.records(now, 2, 1, (), high_watermark=2)
    assert any(isinstance(r, said.UpdateVoterRequest) for r in follower.sent())


# -- kraft.version -----------------------------------------------------------


def static(complete: bool) -> Scenario:
    """Return a quorum from before KIP-853: voters by configuration, level 0."""
    scenario = Scenario(history=(1,))
    plain = VoterSet(tuple(voter(i) for i in (1, 2, 3)))
    ids_only = VoterSet(
        tuple(structs.replace(v, key=ReplicaKey(v.key.node_id)) for v in plain.voters)
    )
    scenario.membership = Membership(plain if complete else ids_only)
    scenario.core = type(scenario.core)(
        settings(1), scenario.log, scenario.election, scenario.membership, lambda _: 0
    )
    scenario.lead()
    return scenario


def test_voters_do_not_change_below_level_1() -> None:
    scenario = static(complete=True)
    scenario.asked(110, add())
    assert error_of(scenario) is ErrorCode.UNSUPPORTED_VERSION
    scenario.asked(111, remove(3))
    assert error_of(scenario) is ErrorCode.UNSUPPORTED_VERSION


def upgrade(scenario: Scenario, level: int, **changed: bool) -> None:
    scenario.tell("upgrade", into.UpgradeKRaftVersion(Millis(120), 77, level, **changed))


def test_kraft_version_is_raised_once_every_voter_supports_it() -> None:
    scenario = static(complete=False)
    upgrade(scenario, 1)
    assert error_of(scenario) is ErrorCode.INVALID_UPDATE_VERSION
    for node_id in (1, 2, 3):
        request = update(voter=key(node_id), endpoints=voter(node_id).endpoints)
        scenario.asked(120, request)
        assert error_of(scenario) is NONE
    assert not scenario.has(out.AppendControl), "nothing is written at level 0"
    upgrade(scenario, 1, is_validate_only=True)
    assert error_of(scenario) is NONE
    assert describe(scenario).kraft_version == 0
    upgrade(scenario, 1)
    assert error_of(scenario) is NONE
    assert describe(scenario).kraft_version == 1
    [control] = [e for e in scenario.effects if isinstance(e, out.AppendControl)]
    assert [type(r) for r in control.records] == [out.KRaftVersionRecord, out.VotersRecord]
    upgrade(scenario, 0)
    assert error_of(scenario) is ErrorCode.INVALID_UPDATE_VERSION
    upgrade(scenario, 2)
    assert error_of(scenario) is ErrorCode.INVALID_UPDATE_VERSION


# -- membership along the log ------------------------------------------------


def test_membership_follows_appends_and_truncations() -> None:
    one, two, three = (VoterSet(tuple(voter(i) for i in range(n))) for n in (1, 2, 3))
    membership = Membership(
        one, 0, [said.KRaftVersionAt(Offset(3), 1), said.VotersAt(Offset(4), two)]
    )
    membership.note(said.VotersAt(Offset(9), three))
    assert [membership.at(Offset(o)) for o in (0, 4, 5, 9, 10)] == [
        (0, one),
        (1, one),
        (1, two),
        (1, two),
        (1, three),
    ]
    membership.truncate(Offset(9))
    assert membership.voters == two
    membership.forget_before(Offset(6))
    membership.truncate(Offset(0))
    assert (membership.kraft_version, membership.voters) == (1, two), "committed stays"
    membership.reset(Offset(40), 1, three)
    assert membership.voters == three
    assert membership.changed_at == 39


def test_voter_set_has_one_voter_per_node() -> None:
    with pytest.raises(AssertionError):
        VoterSet((voter(1), voter(1, 9)))
    nameless = VoterSet((Voter(ReplicaKey(NodeId(1))),))
    assert nameless.has(key(1))
    assert not VoterSet((voter(1),)).has(ReplicaKey(NodeId(1), directory(99)))
