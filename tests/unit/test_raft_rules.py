"""The rules of the quorum one by one: what is rejected, what is durable first, what counts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from raft_scenario import NONE, Scenario, at, hint, key
from raft_simulation import CLUSTER, Entry, Snapshot, directory, endpoint, voter

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core import effects as out
from ottla.raft.core import events as into
from ottla.raft.core import messages as said
from ottla.raft.core.effects import Role
from ottla.raft.core.elections import successor_delay_ms
from ottla.raft.core.epochs import (
    EPOCH_LAST,
    LEARNED_MAX,
    NEAR,
    RESERVE,
    STEP_MAX,
    EpochsExhausted,
    is_plausible,
    next_epoch,
)
from ottla.raft.core.following import CommittedLogCutError
from ottla.raft.core.log_view import LogPosition, Match, match_position, truncation_offset
from ottla.raft.core.voters import (
    ReplicaKey,
)

LOG_END = at(1, 2)


def vote_request(
    candidate: int = 2, epoch: int = 5, end: LogPosition = LOG_END, **changed
) -> said.VoteRequest:
    options: dict = {"cluster_id": CLUSTER, "voter": key(1), "is_pre_vote": False} | changed
    return said.VoteRequest(
        candidate=key(candidate), epoch=LeaderEpoch(epoch), log_end=end, **options
    )


def describe(scenario: Scenario):
    return scenario.core.describe(Millis(scenario.now))


def fresh() -> Scenario:
    """Return a replica with two records of epoch 1 and no leader."""
    scenario = Scenario(history=(1, 1))
    scenario.start()
    return scenario


# -- votes -------------------------------------------------------------------


def test_vote_is_durable_before_the_reply() -> None:
    scenario = fresh()
    scenario.asked(5, vote_request())
    kinds = [type(effect) for effect in scenario.effects]
    assert kinds.index(out.PersistElection) < kinds.index(out.Answer)
    assert scenario.election == out.PersistElection(LeaderEpoch(5), key(2), None)
    assert scenario.answer() == said.VoteReply(NONE, hint(5), True)


def test_replica_votes_once_per_epoch_and_repeats_the_same_vote() -> None:
    scenario = fresh()
    scenario.asked(5, vote_request(2))
    scenario.asked(6, vote_request(3))
    assert not scenario.answer().is_granted
    scenario.asked(7, vote_request(2))
    assert scenario.answer().is_granted
    scenario.restart(8)
    scenario.asked(9, vote_request(3))
    assert not scenario.answer().is_granted


def test_candidate_with_an_older_log_gets_no_vote_but_its_epoch_is_adopted() -> None:
    scenario = fresh()
    for now, end in ((5, at(1, 1)), (6, at(0, 9))):
        scenario.asked(now, vote_request(end=end))
        assert scenario.answer() == said.VoteReply(NONE, hint(5), False)
    scenario.asked(7, vote_request(end=at(1, 2)))
    assert scenario.answer().is_granted


def test_pre_vote_persists_nothing_and_raises_no_epoch() -> None:
    scenario = fresh()
    scenario.asked(5, vote_request(epoch=1, is_pre_vote=True))
    assert scenario.answer() == said.VoteReply(NONE, hint(1), True)
    assert not scenario.has(out.PersistElection)
    scenario.tick(100)
    assert describe(scenario).role is Role.PROSPECTIVE
    assert describe(scenario).epoch == 1
    assert not scenario.has(out.PersistElection)


def test_replica_with_a_leader_rejects_pre_votes() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=5)
    scenario.asked(1, vote_request(3, 5, is_pre_vote=True))
    assert scenario.answer().is_granted, "it has not fetched from this leader yet"
    scenario.records(2, 2, 5, (), high_watermark=2)
    scenario.asked(3, vote_request(3, 5, end=at(5, 9), is_pre_vote=True))
    assert not scenario.answer().is_granted
    leader = Scenario(history=(1, 1))
    leader.lead()
    leader.asked(110, vote_request(3, 2, end=at(2, 9), is_pre_vote=True))
    assert not leader.answer().is_granted


def test_followers_vote_again_after_their_leader_resigns() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=5)
    scenario.records(2, 2, 5, (), high_watermark=2)
    end = said.EndEpochRequest(CLUSTER, NodeId(2), LeaderEpoch(5), (), (key(3), key(1)))
    scenario.asked(3, end)
    scenario.asked(4, vote_request(3, 5, is_pre_vote=True))
    assert scenario.answer().is_granted
    scenario.tick(60)
    assert describe(scenario).role is Role.PROSPECTIVE


def test_best_successor_starts_at_once_and_the_others_later() -> None:
    order = tuple(key(i) for i in (4, 5, 6, 7))
    waits = [successor_delay_ms(order, key(i), 1000) for i in (4, 5, 6, 7, 8)]
    assert waits == [0, 125, 250, 500, 1000]
    other_disk = ReplicaKey(NodeId(4), directory(77))
    assert successor_delay_ms(order, other_disk, 1000) == 1000


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote_request(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote_request(epoch=0, end=at(0, 0)), ErrorCode.INVALID_REQUEST),
        (vote_request(end=at(5, 1)), ErrorCode.INVALID_REQUEST),
        (vote_request(end=at(-1, 1)), ErrorCode.INVALID_REQUEST),
        (vote_request(end=at(1, -1)), ErrorCode.INVALID_REQUEST),
        (vote_request(1), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=1, end=at(0, 0)), ErrorCode.FENCED_LEADER_EPOCH),
        (
            said.BeginEpochRequest("another", NodeId(2), LeaderEpoch(9)),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
        (said.BeginEpochRequest(CLUSTER, NodeId(2), LeaderEpoch(1)), ErrorCode.FENCED_LEADER_EPOCH),
        (said.BeginEpochRequest(CLUSTER, NodeId(-1), LeaderEpoch(9)), ErrorCode.INVALID_REQUEST),
        (said.BeginEpochRequest(CLUSTER, NodeId(1), LeaderEpoch(9)), ErrorCode.INVALID_REQUEST),
        (
            said.EndEpochRequest("another", NodeId(2), LeaderEpoch(9)),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
        (said.EndEpochRequest(CLUSTER, NodeId(2), LeaderEpoch(1)), ErrorCode.FENCED_LEADER_EPOCH),
        (vote_request(epoch=EPOCH_LAST), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=EPOCH_LAST, is_pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=2 + STEP_MAX + 1), ErrorCode.INVALID_REQUEST),
        (
            said.BeginEpochRequest(CLUSTER, NodeId(2), LeaderEpoch(EPOCH_LAST)),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            said.EndEpochRequest(CLUSTER, NodeId(2), LeaderEpoch(EPOCH_LAST)),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_rejected_request_changes_nothing(request_: said.Request, error: ErrorCode) -> None:
    scenario = Scenario(history=(1, 1), election=out.PersistElection(LeaderEpoch(2), None, None))
    scenario.start()
    before = describe(scenario)
    scenario.asked(5, request_)
    assert scenario.answer().error is error
    assert describe(scenario) == before
    assert not scenario.has(out.PersistElection)


def test_replica_that_missed_many_elections_learns_the_epoch_from_replies() -> None:
    far = 1 + 3 * STEP_MAX
    scenario = fresh()
    scenario.asked(5, vote_request(epoch=far))
    assert scenario.answer().error is ErrorCode.INVALID_REQUEST
    scenario.tick(100_000)
    assert describe(scenario).role is Role.PROSPECTIVE
    scenario.receives(100_001, 2, said.VoteReply(ErrorCode.FENCED_LEADER_EPOCH, hint(far), False))
    assert describe(scenario).epoch == far
    scenario.asked(100_002, vote_request(epoch=far + 1, end=at(1, 9)))
    assert scenario.answer() == said.VoteReply(NONE, hint(far + 1), True)


def test_implausible_epoch_in_a_reply_changes_nothing() -> None:
    scenario = fresh()
    scenario.tick(100_000)
    before = describe(scenario).epoch
    reply = said.VoteReply(ErrorCode.FENCED_LEADER_EPOCH, hint(EPOCH_LAST), False)
    scenario.receives(100_001, 2, reply)
    assert describe(scenario).epoch == before


@given(st.integers(0, EPOCH_LAST), st.integers(0, EPOCH_LAST), st.booleans())
@example(LEARNED_MAX, LEARNED_MAX + 1, False)
@example(0, LEARNED_MAX, True)
@example(EPOCH_LAST - 1, EPOCH_LAST, False)
def test_plausible_epoch_leaves_room_for_elections(own: int, offered: int, is_reply: bool) -> None:
    is_taken = is_plausible(LeaderEpoch(own), LeaderEpoch(offered), is_reply=is_reply)
    if is_taken and offered > own + NEAR:
        assert EPOCH_LAST - offered >= RESERVE
    if is_taken:
        next_epoch(LeaderEpoch(offered))
    if own < offered <= own + NEAR and offered < EPOCH_LAST:
        assert is_taken, "the next elections are never refused"


def test_no_epoch_follows_the_largest() -> None:
    with pytest.raises(EpochsExhausted, match="leaderEpoch"):
        next_epoch(LeaderEpoch(EPOCH_LAST))


def test_request_for_another_directory_is_rejected() -> None:
    """A node that lost its disk must not vote in place of the old replica."""
    lost = ReplicaKey(NodeId(1), directory(99))
    scenario = fresh()
    scenario.asked(5, vote_request(voter=lost))
    assert scenario.answer().error is ErrorCode.INVALID_VOTER_KEY
    assert not scenario.answer().is_granted
    assert scenario.election.voted is None
    scenario.asked(6, said.BeginEpochRequest(CLUSTER, NodeId(2), LeaderEpoch(6), (), lost))
    assert scenario.answer().error is ErrorCode.INVALID_VOTER_KEY


def test_second_leader_of_an_epoch_is_ignored() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=5)
    scenario.asked(1, said.BeginEpochRequest(CLUSTER, NodeId(3), LeaderEpoch(5), (), key(1)))
    assert scenario.answer().error is ErrorCode.INVALID_REQUEST
    assert describe(scenario).leader_id == 2


def test_only_voters_count_and_each_only_once() -> None:
    scenario = Scenario(voters=(1, 2, 3, 4, 5))
    scenario.start()
    scenario.tick(100)
    scenario.vote(101, 2, 0, True)
    ticket = scenario.tickets[2]
    scenario.tell("again", into.Replied(Millis(102), ticket, said.VoteReply(NONE, hint(0), True)))
    assert describe(scenario).role is Role.PROSPECTIVE
    scenario.vote(103, 3, 0, True)
    assert describe(scenario).role is Role.CANDIDATE


def test_reply_of_a_voter_with_a_new_directory_counts_as_rejection() -> None:
    scenario = fresh()
    scenario.tick(100)
    for sender in (2, 3):
        scenario.receives(101, sender, said.VoteReply(ErrorCode.INVALID_VOTER_KEY, hint(1), False))
    assert describe(scenario).role is Role.UNATTACHED


def test_late_reply_is_ignored() -> None:
    scenario = fresh()
    scenario.tick(100)
    old = dict(scenario.tickets)
    scenario.asked(101, vote_request(3, epoch=7))
    for sender in (2, 3):
        reply = said.VoteReply(NONE, hint(7), True)
        scenario.tell("late", into.Replied(Millis(102), old[sender], reply))
    assert describe(scenario).role is Role.UNATTACHED
    assert describe(scenario).epoch == 7


def test_replica_without_quorum_state_grants_no_vote_in_the_logs_epoch() -> None:
    scenario = Scenario(history=(1, 3), election=out.PersistElection(LeaderEpoch(0), None, None))
    scenario.start()
    assert scenario.election.epoch == 4
    scenario.asked(1, vote_request(2, 3, end=at(1, 9)))
    assert scenario.answer().error is ErrorCode.FENCED_LEADER_EPOCH


def test_restarted_candidate_requests_votes_again_in_its_epoch() -> None:
    scenario = Scenario(history=(1,), election=out.PersistElection(LeaderEpoch(4), key(1), None))
    scenario.start()
    assert describe(scenario).role is Role.CANDIDATE
    assert [r.epoch for r in scenario.sent()] == [4, 4]


def test_rejected_pre_vote_is_requested_again() -> None:
    scenario = fresh()
    scenario.tick(100)
    assert len(scenario.sent()) == 2
    scenario.vote(101, 2, 1, granted=False)  # 2 still has a leader; 3 is down
    assert describe(scenario).role is Role.PROSPECTIVE
    scenario.tick(101 + scenario.settings.retry_backoff_ms)
    assert [request.is_pre_vote for request in scenario.sent()] == [True]
    scenario.vote(130, 2, 1, granted=True)
    assert describe(scenario).role is Role.CANDIDATE


def test_rejected_candidate_retries_before_its_election_timeout() -> None:
    scenario = Scenario(history=(1,), election=out.PersistElection(LeaderEpoch(4), key(1), None))
    scenario.start()
    scenario.vote(1, 2, 4, granted=False)
    scenario.tick(2)  # no random backoff here; the election timeout is far away
    assert describe(scenario).role is Role.PROSPECTIVE
    assert describe(scenario).epoch == 4


def test_candidate_without_rejections_waits_for_its_election_timeout() -> None:
    scenario = Scenario(history=(1,), election=out.PersistElection(LeaderEpoch(4), key(1), None))
    scenario.start()
    scenario.tick(2)
    assert describe(scenario).role is Role.CANDIDATE
    scenario.tick(200)
    assert describe(scenario).role is Role.PROSPECTIVE


def test_unanswered_pre_vote_is_retried() -> None:
    scenario = fresh()
    scenario.tick(100)
    scenario.tick(200)
    assert describe(scenario).role is Role.UNATTACHED
    scenario.tick(300)
    assert describe(scenario).role is Role.PROSPECTIVE
    assert describe(scenario).epoch == 1


def test_single_voter_elects_itself_at_once() -> None:
    scenario = Scenario(voters=(1,))
    scenario.start()
    assert describe(scenario).role is Role.LEADER
    assert describe(scenario).high_watermark is None
    scenario.flushed(1)
    assert describe(scenario).high_watermark == 3
    scenario.tick(100_000)
    assert describe(scenario).role is Role.LEADER


def test_observer_is_never_a_candidate() -> None:
    scenario = Scenario(voters=(2, 3), history=(1,))
    scenario.start()
    for now in (100, 200, 400, 10_000):
        scenario.tick(now)
    assert describe(scenario).role is Role.UNATTACHED
    assert not any(isinstance(r, said.VoteRequest) for r in scenario.sent())


# -- the high watermark ------------------------------------------------------


def test_older_record_is_committed_only_with_one_of_the_leaders_epoch() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.elect()
    scenario.flushed(101)
    scenario.fetch(102, 2, 2, at(1, 2), wait_ms_max=0)
    assert describe(scenario).high_watermark is None
    assert scenario.answer().high_watermark is None
    scenario.fetch(103, 2, 2, at(2, 3), wait_ms_max=0)
    assert describe(scenario).high_watermark == 3


def test_leader_counts_itself_only_for_flushed_records() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.elect()
    scenario.fetch(102, 2, 2, at(2, 3), wait_ms_max=0)
    assert describe(scenario).high_watermark is None
    scenario.flushed(103)
    assert describe(scenario).high_watermark == 3


def test_high_watermark_never_decreases() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.lead()
    scenario.tell("propose", into.Propose(Millis(105), LeaderEpoch(2), 3, "x"))
    scenario.flushed(106)
    scenario.fetch(107, 2, 2, at(2, 6), wait_ms_max=0)
    for now, end in ((110, at(2, 5)), (111, at(1, 1))):
        scenario.fetch(now, 2, 2, end, wait_ms_max=0)
        assert describe(scenario).high_watermark == 6
        assert not scenario.has(out.HighWatermark)


def test_flush_covers_records_appended_before_it_began() -> None:
    scenario = Scenario(voters=(1,), history=(1,))
    scenario.start()
    scenario.flushed(1)
    scenario.tell("propose", into.Propose(Millis(2), LeaderEpoch(2), 1, "x"))
    first = scenario.flush
    assert first is not None
    scenario.tell("propose", into.Propose(Millis(3), LeaderEpoch(2), 1, "y"))
    scenario.tell("first flush", into.Flushed(Millis(4), first))
    assert describe(scenario).high_watermark == 3
    scenario.flushed(5)
    assert describe(scenario).high_watermark == 4


def test_follower_raises_its_high_watermark_only_to_durable_records() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=1)
    scenario.records(2, 2, 1, (1, 1), high_watermark=9)
    assert describe(scenario).high_watermark == 2
    scenario.flushed(3)
    assert describe(scenario).high_watermark == 4


def test_follower_fetches_only_after_its_flush() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=1)
    scenario.records(2, 2, 1, (1, 1), high_watermark=2)
    assert scenario.sent() == []
    scenario.tick(20)
    assert scenario.sent() == []
    scenario.flushed(30)
    [fetch] = scenario.sent()
    assert fetch.log_end == at(1, 4)


def test_flush_of_a_truncated_tail_is_ignored() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=1)
    scenario.records(2, 2, 1, (1, 1), high_watermark=2)
    stale = scenario.flush
    assert stale is not None
    # Before the flush completes, another leader is elected that has none of that tail.
    begin = said.BeginEpochRequest(CLUSTER, NodeId(3), LeaderEpoch(4), voter(3).endpoints, key(1))
    scenario.asked(3, begin)
    assert scenario.sent() == [], "not before the old tail is flushed"
    scenario.flushed(4)
    reply = said.FetchReply(NONE, hint(4, 3), None, Offset(0), diverging=at(1, 2))
    scenario.receives(5, 3, reply)
    scenario.records(6, 3, 4, (4, 4), high_watermark=2)
    scenario.tell("stale flush", into.Flushed(Millis(7), stale))
    assert describe(scenario).durable_offset == 2
    assert scenario.sent() == []


def test_truncation_below_the_high_watermark_stops_the_node() -> None:
    scenario = Scenario(history=(1, 1, 1))
    scenario.follow(leader=2, epoch=1)
    scenario.records(2, 2, 1, (), high_watermark=3)
    with pytest.raises(CommittedLogCutError):
        scenario.receives(
            3, 2, said.FetchReply(NONE, hint(1, 2), None, Offset(0), diverging=at(1, 1))
        )


@pytest.mark.parametrize(
    ("base", "end"),
    [(1, at(1, 4)), (3, at(1, 4)), (2, at(1, 2)), (2, at(9, 3)), (2, at(0, 3))],
)
def test_non_contiguous_batches_are_not_appended(base: int, end) -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=1)
    batches = said.Batches(Offset(base), end, (Entry(1, "x"),))
    scenario.receives(
        2, 2, said.FetchReply(NONE, hint(1, 2), Offset(9), Offset(0), records=batches)
    )
    assert not scenario.has(out.AppendFetched)
    assert describe(scenario).high_watermark is None


def test_node_does_not_ask_itself_for_the_leader() -> None:
    """All nodes have the same list of servers, so a node's own address is in it."""
    scenario = Scenario(voters=(2, 3), bootstrap=tuple(endpoint(i) for i in (1, 2)))
    scenario.start()
    asked = {effect.endpoint for effect in scenario.effects if isinstance(effect, out.Send)}
    for _ in range(10):
        scenario.now += 200
        for effect in scenario.tell("time", into.Tick(Millis(scenario.now))):
            asked |= {effect.endpoint} if isinstance(effect, out.Send) else set()
    assert asked
    assert endpoint(1) not in asked


# -- serving fetches ---------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "changed", "error"),
    [
        (1, {}, ErrorCode.FENCED_LEADER_EPOCH),
        (3, {}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, {"wait_ms_max": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_leader_rejects_fetches_of_another_epoch(epoch: int, changed, error) -> None:
    scenario = Scenario(history=(1, 1))
    scenario.lead()
    scenario.fetch(110, 3, epoch, at(1, 2), **changed)
    assert scenario.answer() == said.FetchReply(error, hint(2, 1), log_start=Offset(0))
    assert describe(scenario).replicas[2].log_end_offset is None


def test_leader_rejects_impossible_positions_and_other_clusters() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.lead()
    for end in (at(1, -1), at(-1, 1), at(3, 1)):
        scenario.fetch(110, 3, 2, end)
        assert scenario.answer().error is ErrorCode.INVALID_REQUEST
    scenario.fetch(111, 1, 2, at(2, 3))
    assert scenario.answer().error is ErrorCode.INVALID_REQUEST
    request = said.FetchRequest("another", key(3), LeaderEpoch(2), at(2, 3))
    scenario.asked(112, request)
    assert scenario.answer().error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_follower_returns_the_leader_to_fetching_replicas() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=5)
    scenario.fetch(1, 3, 5, at(1, 2))
    refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scenario.answer() == said.FetchReply(refusal, hint(5, 2), log_start=Offset(0))


def test_fetch_waits_for_records_until_its_max_wait() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.lead()
    scenario.fetch(110, 2, 2, at(2, 3), high_watermark=3)
    assert not scenario.has(out.Answer)
    scenario.tell("propose", into.Propose(Millis(120), LeaderEpoch(2), 2, "x"))
    assert scenario.answer().records == said.ReadLog(Offset(3), 1000)
    scenario.fetch(130, 2, 2, at(2, 5), high_watermark=3)
    scenario.tick(189)
    assert not scenario.has(out.Answer)
    scenario.tick(190)
    assert scenario.answer().records is None


def test_fetch_with_an_older_high_watermark_is_answered_at_once() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.lead()
    scenario.fetch(110, 3, 2, at(2, 3), high_watermark=2)
    assert scenario.answer().high_watermark == 3


def test_waiting_fetches_are_rejected_when_leadership_is_lost() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.lead()
    scenario.fetch(110, 2, 2, at(2, 3), high_watermark=3)
    waiting = scenario.token
    scenario.asked(111, vote_request(3, 9, end=at(2, 3)))
    answers = {e.token: e.reply for e in scenario.effects if isinstance(e, out.Answer)}
    assert answers[waiting].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    kinds = [type(effect) for effect in scenario.effects]
    assert kinds.index(out.PersistElection) < kinds.index(out.Answer)


def test_diverging_position_is_answered_with_the_last_shared_one() -> None:
    scenario = Scenario(history=(1, 1, 3, 3))
    scenario.elect()
    for asked, shared in ((at(2, 9), at(1, 2)), (at(3, 9), at(3, 4)), (at(1, 3), at(1, 2))):
        scenario.fetch(110, 3, 4, asked)
        assert scenario.answer().diverging == shared
    assert describe(scenario).replicas[2].log_end_offset is None, "a diverging fetch counts nothing"


def test_position_before_the_log_start_is_answered_with_the_snapshot() -> None:
    scenario = Scenario(history=(1, 1, 2, 2, 2))
    snapshot = at(2, 4)
    scenario.log.snapshots[snapshot] = Snapshot(snapshot, 1, scenario.voters, ())
    scenario.log.trim(snapshot)
    for asked in (at(1, 2), at(2, 3), at(1, 4), at(0, 0)):
        assert match_position(scenario.log, asked) == (Match.SNAPSHOT, snapshot)
    assert match_position(scenario.log, at(2, 4)) == (Match.VALID, at(2, 4))


def test_truncation_offset_of_a_follower() -> None:
    scenario = Scenario(history=(1, 1, 3, 3))
    assert truncation_offset(scenario.log, at(3, 3)) == 3
    assert truncation_offset(scenario.log, at(2, 4)) == 2
    assert truncation_offset(scenario.log, at(0, 9)) == 4
    assert truncation_offset(scenario.log, at(0, 1)) == 1


def test_proposals_are_for_one_epoch() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    scenario.tell("propose", into.Propose(Millis(110), LeaderEpoch(1), 1, "old"))
    assert scenario.effects[0] == out.RefuseProposal("old", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scenario.tell("propose", into.Propose(Millis(110), LeaderEpoch(2), 3, "new"))
    assert scenario.effects[0] == out.AppendRecords(Offset(2), LeaderEpoch(2), 3, "new")
    scenario.tell("resign", into.Resign(Millis(111), LeaderEpoch(2)))
    scenario.tell("propose", into.Propose(Millis(112), LeaderEpoch(2), 3, "late"))
    assert scenario.has(out.RefuseProposal)


# -- lease -------------------------------------------------------------------


def test_leader_keeps_its_lease_while_a_majority_fetches() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    for now in range(200, 2000, 100):
        scenario.fetch(now, 3, 2, at(2, 2))
    assert describe(scenario).role is Role.LEADER
    scenario.tick(1900 + 299)
    assert describe(scenario).role is Role.LEADER
    scenario.tick(1900 + 300)
    assert describe(scenario).role is Role.RESIGNED


def test_observers_and_unknown_replicas_do_not_renew_the_lease() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    stranger = ReplicaKey(NodeId(2), directory(99))
    for now in range(200, 400, 10):
        scenario.fetch(now, 8, 2, at(2, 2))
        request = said.FetchRequest(CLUSTER, stranger, LeaderEpoch(2), at(2, 2))
        scenario.asked(now, request)
    scenario.tick(400)
    assert describe(scenario).role is Role.RESIGNED


# -- snapshots ---------------------------------------------------------------


def with_snapshot() -> tuple[Scenario, said.FetchSnapshotRequest]:
    scenario = Scenario(history=(1, 1, 1))
    scenario.lead()
    snapshot = at(1, 3)
    scenario.log.snapshots[snapshot] = Snapshot(snapshot, 1, scenario.voters, ())
    return scenario, said.FetchSnapshotRequest(CLUSTER, key(3), LeaderEpoch(2), snapshot, 0, 100)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": LeaderEpoch(1)}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": LeaderEpoch(3)}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"snapshot": at(1, 2)}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"snapshot": at(0, 0)}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"position": 5}, ErrorCode.POSITION_OUT_OF_RANGE),
        ({"position": -1}, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_invalid_snapshot_request_is_rejected(changed: dict, error: ErrorCode) -> None:
    from msgspec.structs import replace

    scenario, request = with_snapshot()
    scenario.asked(110, replace(request, **changed))
    assert scenario.answer() == said.FetchSnapshotReply(error, hint(2, 1))


def test_serving_a_snapshot_renews_the_lease() -> None:
    scenario, request = with_snapshot()
    scenario.asked(350, request)
    reply = scenario.answer()
    assert (reply.size, reply.chunk) == (5, said.ReadSnapshot(0, 100))
    scenario.tick(450)
    assert describe(scenario).role is Role.LEADER


def downloading() -> Scenario:
    scenario = Scenario(history=(1,))
    scenario.follow(leader=2, epoch=4)
    reply = said.FetchReply(NONE, hint(4, 2), Offset(50), Offset(40), snapshot=at(4, 40))
    scenario.receives(3, 2, reply)
    return scenario


WANTED = at(4, 40)


def piece(position: int = 0, length: int = 10, size: int = 10, which=WANTED):
    chunk = said.Chunk(length, b"")
    return said.FetchSnapshotReply(NONE, hint(4, 2), which, size, position, chunk)


@pytest.mark.parametrize(
    "bad", [piece(position=3), piece(length=11), piece(length=0), piece(which=at(4, 41))]
)
def test_invalid_snapshot_chunk_is_rejected(bad: said.FetchSnapshotReply) -> None:
    scenario = downloading()
    scenario.receives(5, 2, bad)
    assert not scenario.has(out.WriteSnapshotChunk)
    assert not scenario.has(out.InstallSnapshot)


def test_replica_installing_a_snapshot_is_no_candidate() -> None:
    scenario = downloading()
    scenario.receives(5, 2, piece())
    assert scenario.has(out.InstallSnapshot)
    for now in (205, 400, 5000):
        scenario.tick(now)
        assert describe(scenario).role is Role.FOLLOWER
        assert scenario.sent() == []
    scenario.tell("rejected", into.SnapshotRejected(Millis(5001), at(4, 40)))
    assert describe(scenario).role is Role.PROSPECTIVE


def test_follower_fetches_again_if_the_leader_lacks_the_snapshot() -> None:
    scenario = downloading()
    gone = said.FetchSnapshotReply(ErrorCode.SNAPSHOT_NOT_FOUND, hint(4, 2))
    scenario.receives(5, 2, gone)
    assert isinstance(scenario.sent()[0], said.FetchRequest)


def test_snapshot_never_discards_committed_records() -> None:
    scenario = Scenario(history=(1, 1, 1))
    scenario.follow(leader=2, epoch=1)
    scenario.records(2, 2, 1, (), high_watermark=3)
    reply = said.FetchReply(NONE, hint(1, 2), Offset(3), Offset(2), snapshot=at(1, 2))
    scenario.receives(3, 2, reply)
    scenario.tick(30)
    assert all(isinstance(r, said.FetchRequest) for r in scenario.sent())


def test_rejection_of_another_snapshot_does_not_end_the_installation() -> None:
    scenario = downloading()
    scenario.receives(5, 2, piece())
    scenario.tell("rejected", into.SnapshotRejected(Millis(5001), at(4, 39)))
    scenario.tick(5002)
    assert describe(scenario).role is Role.FOLLOWER


# -- a voter that rejoins with a repaired log --------------------------------


def rejoining() -> Scenario:
    """Return a follower in epoch 3 whose records of epoch 1 may not be all it once had."""
    scenario = Scenario(history=(1, 1), is_rejoining=True)
    scenario.follow(leader=2, epoch=3)
    return scenario


def may_vote(scenario: Scenario) -> bool:
    """Return whether the replica grants a vote in a later epoch to a candidate with all records."""
    scenario.asked(scenario.now, vote_request(3, epoch=9, end=at(3, 99)))
    return scenario.answer().is_granted


def test_rejoining_replica_neither_votes_nor_stands() -> None:
    scenario = rejoining()
    for now in (205, 400, 5000):
        scenario.tick(now)
        assert describe(scenario).role is not Role.PROSPECTIVE
    assert not may_vote(scenario)


@pytest.mark.parametrize(
    ("epochs", "high_watermark"),
    [((), 2), ((1,), 3), ((3,), 4)],
    ids=["no-record-of-the-epoch", "only-older-records", "below-the-high-watermark"],
)
def test_replica_that_has_not_caught_up_keeps_rejoining(
    epochs: tuple[int, ...], high_watermark: int
) -> None:
    scenario = rejoining()
    scenario.records(6, 2, 3, epochs, high_watermark)
    if epochs:
        scenario.flushed(7)
    assert not scenario.has(out.Rejoined)
    assert not may_vote(scenario)


def test_replica_with_records_that_are_not_durable_keeps_rejoining() -> None:
    scenario = rejoining()
    scenario.records(6, 2, 3, (3,), 2)
    assert not scenario.has(out.Rejoined)
    scenario.flushed(7)
    assert scenario.has(out.Rejoined)


def test_replica_has_rejoined_once_all_that_is_committed_is_durable() -> None:
    scenario = rejoining()
    scenario.records(6, 2, 3, (1, 3), 4)
    assert not scenario.has(out.Rejoined)
    scenario.flushed(7)
    assert scenario.has(out.Rejoined)
    assert may_vote(scenario)


# -- describe and shutdown ---------------------------------------------------


def test_leader_describes_all_replicas() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    scenario.fetch(110, 9, 2, at(2, 2), wait_ms_max=0)
    view = scenario.core.describe(Millis(130))
    assert (view.role, view.epoch, view.leader_id) == (Role.LEADER, 2, 1)
    assert (view.high_watermark, view.log_end_offset) == (2, 2)
    seen = [(r.key.node_id, r.log_end_offset, r.last_fetch_age_ms) for r in view.replicas]
    assert seen == [(1, 2, 0), (2, 2, 30), (3, None, None)]
    [observer] = view.observers
    assert (observer.key.node_id, observer.last_caught_up_age_ms) == (9, 20)
    assert scenario.core.describe(Millis(110 + 300_000)).observers == ()


def test_stopped_node_is_no_candidate() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=2, epoch=5)
    scenario.tell("shutdown", into.Shutdown(Millis(1)))
    assert scenario.has(out.ShutdownReady)
    for now in (201, 500, 5000):
        scenario.tick(now)
    assert describe(scenario).role is Role.FOLLOWER


def test_decreasing_time_is_rejected() -> None:
    scenario = fresh()
    scenario.tick(50)
    with pytest.raises(AssertionError):
        scenario.tick(49)
