"""Transcripts of one replica: each event, then its effects in order.

Compared word by word. A difference is a change of behaviour: read the transcript before accepting
the new one.
"""

from raft_scenario import NONE, Scenario, at, hint, key, without_waits
from raft_simulation import CLUSTER, Snapshot, voter

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.core import effects as out
from ottla.raft.core import events as into
from ottla.raft.core import messages as said
from ottla.raft.core.effects import Role
from ottla.raft.core.following import SUCCESSION_MS
from ottla.raft.core.voters import ALL_KRAFT_VERSIONS, VoterSet


def reads(scenario: Scenario, expected: str) -> None:
    assert without_waits(scenario) == expected.strip("\n")


def test_first_election() -> None:
    scenario = Scenario()
    scenario.start()
    scenario.tick(100)
    scenario.vote(101, 2, 0, True)
    scenario.vote(102, 2, 1, True)
    scenario.flushed(104)
    scenario.fetch(105, 2, 1, at(0, 0))
    scenario.fetch(106, 2, 1, at(1, 3))
    reads(
        scenario,
        """
    0 > start
        unattached epoch 0 leader -
        send to 2: fetch by 1 epoch 0 end 0:0
  100 > tick
        prospective epoch 0 leader -
        send to 2: pre-vote for 1 epoch 0 end 0:0
        send to 3: pre-vote for 1 epoch 0 end 0:0
  101 > 2 replies: granted, epoch 0 leader -
        persist epoch 1 voted 1 leader -
        candidate epoch 1 leader -
        send to 2: vote for 1 epoch 1 end 0:0
        send to 3: vote for 1 epoch 1 end 0:0
  102 > 2 replies: granted, epoch 1 leader -
        persist epoch 1 voted 1 leader 1
        leader epoch 1 leader 1 from 0
        append control at 0 epoch 1: leader-change(1 by 1 2) kraft.version(1) voters{1 2 3}
        flush
        send to 2: begin epoch 1 leader 1
        send to 3: begin epoch 1 leader 1
  104 > flushed
  105 > asked #1: fetch by 2 epoch 1 end 0:0
        answer #1: epoch 1 leader 1, records from 0
  106 > asked #2: fetch by 2 epoch 1 end 1:3
        high watermark 3
        answer #2: epoch 1 leader 1, high watermark 3
""",
    )


def test_failover_after_a_pre_vote() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=3, epoch=1)
    scenario.records(10, 3, 1, (1,), high_watermark=3)
    scenario.flushed(11)
    scenario.tick(210)
    scenario.vote(211, 2, 1, True, leader=3)
    scenario.vote(213, 2, 2, True)
    reads(
        scenario,
        """
    0 > start
        unattached epoch 1 leader -
        send to 2: fetch by 1 epoch 1 end 1:2
    0 > asked #1: begin epoch 1 leader 3
        persist epoch 1 voted nobody leader 3
        follower epoch 1 leader 3
        answer #1: epoch 1 leader 3
        send to 3: fetch by 1 epoch 1 end 1:2
   10 > 3 replies: epoch 1 leader 3, high watermark 3, records 2 to 1:3
        append fetched at 2 to 1:3
        flush
        high watermark 2
   11 > flushed
        high watermark 3
        send to 3: fetch by 1 epoch 1 end 1:3
  210 > tick
        prospective epoch 1 leader 3
        send to 2: pre-vote for 1 epoch 1 end 1:3
        send to 3: pre-vote for 1 epoch 1 end 1:3
  211 > 2 replies: granted, epoch 1 leader 3
        persist epoch 2 voted 1 leader -
        candidate epoch 2 leader -
        send to 2: vote for 1 epoch 2 end 1:3
        send to 3: vote for 1 epoch 2 end 1:3
  213 > 2 replies: granted, epoch 2 leader -
        persist epoch 2 voted 1 leader 1
        leader epoch 2 leader 1 from 3
        append control at 3 epoch 2: leader-change(1 by 1 2)
        flush
        send to 2: begin epoch 2 leader 1
        send to 3: begin epoch 2 leader 1
""",
    )


def test_failed_pre_vote_returns_to_the_leader() -> None:
    scenario = Scenario(history=(1, 1))
    scenario.follow(leader=3, epoch=1)
    scenario.records(10, 3, 1, (), high_watermark=2)
    scenario.tick(210)
    scenario.vote(211, 2, 1, False, leader=3)
    scenario.vote(212, 3, 1, False, leader=3)
    reads(
        scenario,
        """
    0 > start
        unattached epoch 1 leader -
        send to 2: fetch by 1 epoch 1 end 1:2
    0 > asked #1: begin epoch 1 leader 3
        persist epoch 1 voted nobody leader 3
        follower epoch 1 leader 3
        answer #1: epoch 1 leader 3
        send to 3: fetch by 1 epoch 1 end 1:2
   10 > 3 replies: epoch 1 leader 3, high watermark 2
        high watermark 2
        send to 3: fetch by 1 epoch 1 end 1:2
  210 > tick
        prospective epoch 1 leader 3
        send to 2: pre-vote for 1 epoch 1 end 1:2
        send to 3: pre-vote for 1 epoch 1 end 1:2
  211 > 2 replies: refused, epoch 1 leader 3
  212 > 3 replies: refused, epoch 1 leader 3
        follower epoch 1 leader 3
        send to 3: fetch by 1 epoch 1 end 1:2
""",
    )


def test_diverging_log_is_truncated_and_replicated_again() -> None:
    scenario = Scenario(history=(1, 1, 2, 2))
    scenario.follow(leader=3, epoch=3)
    reply = said.FetchReply(NONE, hint(3, 3), None, Offset(0), diverging=at(1, 3))
    scenario.receives(5, 3, reply)
    scenario.records(8, 3, 3, (3, 3), high_watermark=4)
    scenario.flushed(12)
    reads(
        scenario,
        """
    0 > start
        unattached epoch 2 leader -
        send to 2: fetch by 1 epoch 2 end 2:4
    0 > asked #1: begin epoch 3 leader 3
        persist epoch 3 voted nobody leader 3
        follower epoch 3 leader 3
        answer #1: epoch 3 leader 3
        send to 3: fetch by 1 epoch 3 end 2:4
    5 > 3 replies: epoch 3 leader 3, diverging at 1:3
        truncate to 2
        send to 3: fetch by 1 epoch 3 end 1:2
    8 > 3 replies: epoch 3 leader 3, high watermark 4, records 2 to 3:4
        append fetched at 2 to 3:4
        flush
        high watermark 2
   12 > flushed
        high watermark 4
        send to 3: fetch by 1 epoch 3 end 3:4
""",
    )


def test_snapshot_replaces_the_log() -> None:
    scenario = Scenario(history=(1,))
    scenario.follow(leader=2, epoch=4)
    wanted = at(4, 40)
    reply = said.FetchReply(NONE, hint(4, 2), Offset(50), Offset(40), snapshot=wanted)
    scenario.receives(3, 2, reply)
    for now, position, length in ((5, 0, 60), (7, 60, 40)):
        chunk = said.Chunk(length, b"")
        piece = said.FetchSnapshotReply(NONE, hint(4, 2), wanted, 100, position, chunk)
        scenario.receives(now, 2, piece)
    voters = VoterSet((voter(1), voter(2), voter(4)))
    scenario.log.install(Snapshot(wanted, 1, voters, ()))
    scenario.tell("snapshot installed", into.SnapshotInstalled(Millis(9), wanted, 1, voters))
    reads(
        scenario,
        """
    0 > start
        unattached epoch 1 leader -
        send to 2: fetch by 1 epoch 1 end 1:1
    0 > asked #1: begin epoch 4 leader 2
        persist epoch 4 voted nobody leader 2
        follower epoch 4 leader 2
        answer #1: epoch 4 leader 2
        send to 2: fetch by 1 epoch 4 end 1:1
    3 > 2 replies: epoch 4 leader 2, high watermark 50, load snapshot 4:40
        send to 2: fetch snapshot 4:40 from 0
    5 > 2 replies: epoch 4 leader 2, snapshot 4:40 piece at 0 of 100
        write snapshot 4:40 from 0
        send to 2: fetch snapshot 4:40 from 60
    7 > 2 replies: epoch 4 leader 2, snapshot 4:40 piece at 60 of 100
        write snapshot 4:40 from 60
        install snapshot 4:40
    9 > snapshot installed
        voters {1 2 4}
        high watermark 40
        send to 2: fetch by 1 epoch 4 end 4:40
""",
    )


def test_voter_is_added() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    scenario.lines.clear()
    scenario.fetch(110, 4, 2, at(2, 2), wait_ms_max=0)
    scenario.asked(112, said.AddVoterRequest(CLUSTER, key(4), voter(4).endpoints))
    scenario.receives(114, 4, said.ApiVersionsReply(NONE, ALL_KRAFT_VERSIONS))
    scenario.flushed(115)
    scenario.fetch(116, 2, 2, at(2, 3), wait_ms_max=0)
    scenario.fetch(117, 4, 2, at(2, 3), wait_ms_max=0)
    reads(
        scenario,
        """
  110 > asked #2: fetch by 4 epoch 2 end 2:2
        answer #2: epoch 2 leader 1, high watermark 2
  112 > asked #3: add voter 4
        send to 4: api versions
  114 > 4 replies: kraft.version 0-1
        append control at 2 epoch 2: voters{1 2 3 4}
        flush
        voters {1 2 3 4}
  115 > flushed
  116 > asked #4: fetch by 2 epoch 2 end 2:3
        answer #4: epoch 2 leader 1, high watermark 2
  117 > asked #5: fetch by 4 epoch 2 end 2:3
        high watermark 3
        answer #3: epoch 2 leader 1
        answer #5: epoch 2 leader 1, high watermark 3
""",
    )


def test_removed_leader_resigns() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    scenario.lines.clear()
    scenario.asked(112, said.RemoveVoterRequest(CLUSTER, key(1)))
    scenario.flushed(113)
    scenario.fetch(114, 2, 2, at(2, 3), wait_ms_max=0)
    scenario.fetch(115, 3, 2, at(2, 3), wait_ms_max=0)
    scenario.tick(215)
    reads(
        scenario,
        """
  112 > asked #2: remove voter 1
        append control at 2 epoch 2: voters{2 3}
        flush
        voters {2 3}
  113 > flushed
  114 > asked #3: fetch by 2 epoch 2 end 2:3
        answer #3: epoch 2 leader 1, high watermark 2
  115 > asked #4: fetch by 3 epoch 2 end 2:3
        high watermark 3
        answer #2: epoch 2 leader 1
        resigned epoch 2 leader 1
        answer #4: NOT_LEADER_OR_FOLLOWER, epoch 2 leader 1
        send to 2: end epoch 2 leader 1 then [2 3]
        send to 3: end epoch 2 leader 1 then [2 3]
  215 > tick
        persist epoch 3 voted nobody leader -
        unattached epoch 3 leader -
        send to 2: fetch by 1 epoch 3 end 2:3
""",
    )


def test_partitioned_leader_resigns() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    scenario.lines.clear()
    scenario.tick(250)
    scenario.tick(399)
    scenario.tick(400)
    scenario.tick(500)
    reads(
        scenario,
        """
  250 > tick
  399 > tick
        send to 2: begin epoch 2 leader 1
        send to 3: begin epoch 2 leader 1
  400 > tick
        resigned epoch 2 leader 1
        send to 2: end epoch 2 leader 1 then [2 3]
        send to 3: end epoch 2 leader 1 then [2 3]
  500 > tick
        persist epoch 3 voted nobody leader -
        unattached epoch 3 leader -
        send to 2: fetch by 1 epoch 3 end 2:2
""",
    )


def test_stopping_leader_hands_over() -> None:
    scenario = Scenario(history=(1,))
    scenario.lead()
    scenario.lines.clear()
    scenario.tell("shutdown", into.Shutdown(Millis(110)))
    scenario.receives(112, 2, said.EndEpochReply(NONE, hint(2, 1)))
    scenario.receives(113, 3, said.EndEpochReply(NONE, hint(2, 1)))
    reads(
        scenario,
        """
  110 > shutdown
        resigned epoch 2 leader 1
        send to 2: end epoch 2 leader 1 then [2 3]
        send to 3: end epoch 2 leader 1 then [2 3]
  112 > 2 replies: epoch 2 leader 1
  113 > 3 replies: epoch 2 leader 1
        may stop
""",
    )


def test_crashed_leader_restarts_resigned() -> None:
    scenario = Scenario(history=(1,))
    scenario.elect()
    scenario.lines.clear()
    scenario.restart(150)
    scenario.tick(250)
    reads(
        scenario,
        """
  150 > start
        resigned epoch 2 leader 1
        send to 2: end epoch 2 leader 1 then []
        send to 3: end epoch 2 leader 1 then []
  250 > tick
        persist epoch 3 voted nobody leader -
        unattached epoch 3 leader -
        send to 2: fetch by 1 epoch 3 end 1:1
""",
    )


def lose(scenario: Scenario, now: int, *, is_refused: bool, other: int = 2) -> None:
    """Fail the request to the leader, node 3, and let ``other``, asked next, name it again."""
    words = f"3 {'refuses' if is_refused else 'is lost'}"
    scenario.tell(words, into.Unanswered(Millis(now), scenario.tickets[3], is_refused))
    if scenario.core.describe(Millis(now)).role is Role.FOLLOWER:
        reply = said.FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint(1, 3))
        scenario.receives(now + 1, other, reply)


def follower(**changed: object) -> Scenario:
    """Return a follower of node 3 that has fetched."""
    scenario = Scenario(history=(1, 1), **changed)
    scenario.follow(leader=3, epoch=1)
    scenario.records(10, 3, 1, (), high_watermark=2)
    return scenario


def role(scenario: Scenario) -> Role:
    return scenario.core.describe(Millis(scenario.now)).role


def test_leader_that_refuses_twice_in_a_row_is_given_up_at_once() -> None:
    scenario = follower()
    scenario.lines.clear()
    lose(scenario, 20, is_refused=False)
    scenario.tick(40)
    lose(scenario, 41, is_refused=True)
    scenario.tick(61)
    lose(scenario, 62, is_refused=True)
    scenario.vote(63, 2, 1, True, leader=3)
    reads(
        scenario,
        """
   20 > 3 is lost
        send to 2: fetch by 1 epoch 1 end 1:2
   21 > 2 replies: NOT_LEADER_OR_FOLLOWER, epoch 1 leader 3
   40 > tick
        send to 3: fetch by 1 epoch 1 end 1:2
   41 > 3 refuses
        send to 2: fetch by 1 epoch 1 end 1:2
   42 > 2 replies: NOT_LEADER_OR_FOLLOWER, epoch 1 leader 3
   61 > tick
        send to 3: fetch by 1 epoch 1 end 1:2
   62 > 3 refuses
        prospective epoch 1 leader 3
        send to 2: pre-vote for 1 epoch 1 end 1:2
        send to 3: pre-vote for 1 epoch 1 end 1:2
   63 > 2 replies: granted, epoch 1 leader 3
        persist epoch 2 voted 1 leader -
        candidate epoch 2 leader -
        send to 2: vote for 1 epoch 2 end 1:2
        send to 3: vote for 1 epoch 2 end 1:2
""",
    )


def test_leader_that_answers_between_two_refusals_is_followed() -> None:
    scenario = follower()
    lose(scenario, 20, is_refused=True)
    scenario.tick(40)
    scenario.records(41, 3, 1, (), high_watermark=2)
    lose(scenario, 60, is_refused=True)
    scenario.tick(80)
    assert role(scenario) is Role.FOLLOWER
    lose(scenario, 81, is_refused=True)
    assert role(scenario) is Role.PROSPECTIVE


def test_lost_connection_between_two_refusals_is_no_evidence() -> None:
    scenario = follower()
    for at_ms, is_refused in ((20, True), (41, False), (62, True)):
        lose(scenario, at_ms, is_refused=is_refused)
        scenario.tick(at_ms + 20)
        assert role(scenario) is Role.FOLLOWER


def test_refusals_are_no_evidence_where_that_is_disabled() -> None:
    scenario = follower(is_refusal_evidence=False)
    for at_ms in (20, 41, 62, 83):
        lose(scenario, at_ms, is_refused=True)
        scenario.tick(at_ms + 20)
        assert role(scenario) is Role.FOLLOWER


def test_second_follower_of_a_stopped_leader_gives_the_first_time_to_be_elected() -> None:
    """Node 1 is the second of the voters 0 and 1 that are left; it grants node 0 its pre-vote."""
    scenario = follower(voters=(0, 1, 3))
    lose(scenario, 20, is_refused=True, other=0)
    scenario.tick(40)
    lose(scenario, 41, is_refused=True, other=0)
    request = said.VoteRequest(CLUSTER, key(0), key(1), LeaderEpoch(1), at(1, 2), True)
    scenario.asked(43, request)
    answers = [each.reply for each in scenario.effects if isinstance(each, out.Answer)]
    assert answers == [said.VoteReply(NONE, hint(1, 3), True)]
    scenario.tick(41 + SUCCESSION_MS - 1)
    assert role(scenario) is Role.FOLLOWER
    scenario.tick(41 + SUCCESSION_MS)
    assert role(scenario) is Role.PROSPECTIVE


def test_pre_vote_after_refusals_is_rejected_by_voters_in_contact_with_the_leader() -> None:
    """A refusal that only one follower sees changes neither the leader nor the epoch."""
    scenario = follower()
    lose(scenario, 20, is_refused=True)
    scenario.tick(40)
    lose(scenario, 41, is_refused=True)
    assert role(scenario) is Role.PROSPECTIVE
    scenario.vote(42, 2, 1, False, leader=3)
    scenario.vote(43, 3, 1, False, leader=3)
    view = scenario.core.describe(Millis(43))
    assert (view.role, view.epoch, view.leader_id) == (Role.FOLLOWER, 1, 3)
