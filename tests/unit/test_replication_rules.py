"""The rules of following and of the ISR, one by one."""

import pytest
from partition_fixtures import LAG_MS, Machine, append, registration

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition
from ottla.protocol.types import Uuid
from ottla.replication.fetching.fetch_session import EPOCH_MAX, FetchSession, NextFetch
from ottla.replication.fetching.follower_rules import (
    AfterError,
    DivergingEpoch,
    Range,
    Reset,
    decide_after_error,
    decide_cut,
    decide_reset,
)
from ottla.replication.leading.follower_progress import FollowerProgress
from ottla.replication.leading.isr_state import AfterRefusal, Isr, Proposal, decide_after_refusal
from ottla.replication.leading.waiters import OffsetWaiters
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs

TOPIC = Uuid(bytes(15) + b"\x07")


# -- truncation ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "cut"),
    [
        (DivergingEpoch(5, 30), 30),  # both have epoch 5, the leader has less of it
        (DivergingEpoch(5, 60), 40),  # we have less of it: nothing after our end of 5
        (DivergingEpoch(4, 25), 20),  # we have nothing of 4: back to where 2 ends for us
        (DivergingEpoch(2, 15), 15),
        (DivergingEpoch(1, 9), 0),  # older than all we know: nothing is shared
        (DivergingEpoch(-1, 7), 7),
        (DivergingEpoch(9, 45), 45),  # an epoch we know nothing of
    ],
)
def test_follower_truncates_to_the_shared_history(leader: DivergingEpoch, cut: int) -> None:
    epochs = LeaderEpochs([EpochEntry(2, 0), EpochEntry(5, 20), EpochEntry(7, 40)])
    assert decide_cut(epochs, 50, leader) == cut


def test_out_of_range_is_resolved_by_the_leaders_range() -> None:
    assert decide_reset(10, Range(0, 5)) == Reset(5, is_restart=False)
    assert decide_reset(10, Range(20, 30)) == Reset(20, is_restart=True)
    assert decide_reset(10, Range(5, 30)) is None
    assert decide_reset(10, Range(10, 10)) is None


def test_errors_of_a_partition_delay_reset_or_stop_it() -> None:
    assert decide_after_error(ErrorCode.OFFSET_OUT_OF_RANGE) is AfterError.RESET
    assert decide_after_error(ErrorCode.FENCED_LEADER_EPOCH) is AfterError.STOP
    for code in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        assert decide_after_error(code) is AfterError.DELAY


# -- sessions ----------------------------------------------------------------------


def ask(offset: int) -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=offset)


def following(session: FetchSession, wanted: dict) -> NextFetch:
    """Return the next fetch if anything may have changed."""
    return session.next(wanted, [(TOPIC, 0), (TOPIC, 1)])


def test_session_compares_only_touched_partitions() -> None:
    session = FetchSession()
    session.next({(TOPIC, 0): ask(0), (TOPIC, 1): ask(0)}, [])
    session.answered(ErrorCode.NONE, 77)
    moved = {(TOPIC, 0): ask(1), (TOPIC, 1): ask(1)}
    assert list(session.next(moved, [(TOPIC, 1)]).partitions) == [(TOPIC, 1)]
    assert list(session.next(moved, [(TOPIC, 0), (TOPIC, 1)]).partitions) == [(TOPIC, 0)]
    assert session.next({(TOPIC, 1): ask(1)}, [(TOPIC, 0), (TOPIC, 2)]).forgotten == [(TOPIC, 0)]
    assert session.next({(TOPIC, 1): ask(1)}, [(TOPIC, 0)]).forgotten == []


def test_session_sends_only_changed_partitions() -> None:
    session = FetchSession()
    first = following(session, {(TOPIC, 0): ask(0), (TOPIC, 1): ask(5)})
    assert (first.session_id, first.session_epoch, len(first.partitions)) == (0, 0, 2)
    session.answered(ErrorCode.NONE, 77)
    second = following(session, {(TOPIC, 0): ask(3), (TOPIC, 1): ask(5)})
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert list(second.partitions) == [(TOPIC, 0)]
    session.answered(ErrorCode.NONE, 77)
    third = following(session, {(TOPIC, 0): ask(3)})
    assert third.session_epoch == 2
    assert third.partitions == {}
    assert third.forgotten == [(TOPIC, 1)]


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 77),
    ],
)
def test_failed_session_sends_a_full_request(error: ErrorCode, session_id: int) -> None:
    session = FetchSession()
    following(session, {(TOPIC, 0): ask(0)})
    session.answered(ErrorCode.NONE, 77)
    following(session, {(TOPIC, 0): ask(1)})
    session.answered(error, 0)
    anew = following(session, {(TOPIC, 0): ask(1)})
    assert (anew.session_id, anew.session_epoch) == (session_id, 0)
    assert len(anew.partitions) == 1


def test_leader_without_sessions_receives_full_requests() -> None:
    session = FetchSession()
    for _ in range(2):
        assert len(following(session, {(TOPIC, 0): ask(0)}).partitions) == 1
        session.answered(ErrorCode.NONE, 0)


def test_epoch_of_a_session_wraps_to_one() -> None:
    session = FetchSession()
    session._epoch = EPOCH_MAX
    session.answered(ErrorCode.NONE, 77)
    assert following(session, {}).session_epoch == 1


# -- followers and the ISR ---------------------------------------------------------


def test_idle_follower_is_caught_up_until_its_last_fetch() -> None:
    follower = FollowerProgress()
    follower.fetched(10, 0, 10, 1000)
    follower.rested(50_000)
    assert follower.is_caught_up(11, 50_000 + LAG_MS, LAG_MS)
    assert not follower.is_caught_up(11, 50_001 + LAG_MS, LAG_MS)
    follower.rested(40_000)
    assert follower.is_caught_up(11, 50_000 + LAG_MS, LAG_MS)
    follower.fetched(10, 0, 11, 60_000)
    assert (follower.log_end, follower.caught_up_at) == (10, 50_000)


def test_follower_at_the_previous_log_end_is_caught_up() -> None:
    follower = FollowerProgress()
    follower.begin_epoch(0, 0, is_new_leader=True, is_in_sync=False)
    for at in range(1, 5):
        follower.fetched(10 * (at - 1), 0, 10 * at, at * 20_000)
    assert follower.caught_up_at == 60_000
    assert follower.is_caught_up(100, 60_000 + LAG_MS, LAG_MS)
    assert not follower.is_caught_up(100, 60_001 + LAG_MS, LAG_MS)


def test_follower_that_falls_behind_is_not_caught_up() -> None:
    follower = FollowerProgress()
    follower.begin_epoch(0, 0, is_new_leader=True, is_in_sync=True)
    for at in range(1, 5):
        follower.fetched(at, 0, 10 * at, at * 20_000)
    assert follower.caught_up_at == 0


def test_maximal_isr_holds_both_sets() -> None:
    grown = Proposal((0, 1, 2), (1, 1, 1), 0, 0)
    shrunk = Proposal((0,), (1,), 0, 0)
    assert Isr((0, 1), grown).maximal == (0, 1, 2)
    assert Isr((0, 1), shrunk).maximal == (0, 1)


def test_only_two_errors_roll_the_isr_back() -> None:
    rolled_back = [e for e in ErrorCode if decide_after_refusal(e) is AfterRefusal.ROLL_BACK]
    assert {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA} == set(rolled_back)
    assert decide_after_refusal(ErrorCode.FENCED_LEADER_EPOCH) is AfterRefusal.STAY
    assert decide_after_refusal(ErrorCode.NOT_CONTROLLER) is AfterRefusal.RETRY


def alone_in_isr(high_watermark: int = 3):
    """A leader of two, alone in its ISR, with records of its leader epoch."""
    machine = Machine()
    partition = machine.host()
    partition.apply(registration(replicas=(0, 1), isr=(0,)))
    for _ in range(high_watermark):
        append(partition, b"x")
    return machine, partition


def test_follower_joins_when_it_has_all_that_is_committed() -> None:
    machine, partition = alone_in_isr()
    partition.follower_fetched(1, 2, log_start=0, broker_epoch=9)
    assert machine.fake_host.proposals == []
    partition.follower_fetched(1, 3, log_start=0, broker_epoch=9)
    ((_, proposal),) = machine.fake_host.proposals
    assert proposal.isr == (0, 1)
    assert proposal.broker_epochs == (100, 9)


def test_high_watermark_waits_for_a_follower_that_is_joining() -> None:
    _, partition = alone_in_isr()
    partition.follower_fetched(1, 3, log_start=0)
    append(partition, b"y")
    assert partition.log.high_watermark == 3, "the maximal ISR counts"
    partition.follower_fetched(1, 4, log_start=0)
    assert partition.log.high_watermark == 4


def test_broker_that_is_fenced_or_restarted_does_not_join() -> None:
    machine, partition = alone_in_isr()
    machine.fake_host.dead.add(1)
    partition.follower_fetched(1, 3, log_start=0)
    machine.fake_host.dead.clear()
    machine.fake_host.epochs[1] = 8
    partition.follower_fetched(1, 3, log_start=0, broker_epoch=7)
    assert machine.fake_host.proposals == []
    partition.follower_fetched(1, 3, log_start=0, broker_epoch=8)
    assert len(machine.fake_host.proposals) == 1


def test_follower_joins_only_after_the_leader_epoch_start() -> None:
    machine = Machine()
    partition = machine.host()
    partition.apply(registration(replicas=(0, 1, 2), isr=(0, 1)))
    append(partition, b"a")
    append(partition, b"b")
    partition.apply(registration(replicas=(0, 1, 2), isr=(0, 1), epoch=1, partition_epoch=1))
    partition.follower_fetched(2, 1, log_start=0)
    assert partition.log.high_watermark == 0
    assert machine.fake_host.proposals == []
    partition.follower_fetched(2, 2, log_start=0)
    assert len(machine.fake_host.proposals) == 1


def test_one_proposal_is_in_flight_at_a_time() -> None:
    machine, partition = alone_in_isr()
    partition.follower_fetched(1, 3, log_start=0)
    partition.follower_fetched(1, 3, log_start=0)
    assert len(machine.fake_host.proposals) == 1
    machine.clock.pass_ms(2 * LAG_MS)
    assert partition.shrink_isr() == ()


def test_answer_to_an_older_proposal_is_ignored() -> None:
    machine, partition = alone_in_isr()
    partition.follower_fetched(1, 3, log_start=0)
    ((_, proposal),) = machine.fake_host.proposals
    partition.apply(registration(replicas=(0, 1), isr=(0,), epoch=2, partition_epoch=5))
    partition.isr_accepted(proposal, (0, 1), 0, 9)
    assert partition.isr == (0,)
    assert partition.partition_epoch == 5
    assert not partition.isr_refused(proposal, ErrorCode.NOT_CONTROLLER)


def test_definite_rejection_rolls_the_isr_back() -> None:
    machine, partition = alone_in_isr()
    partition.follower_fetched(1, 3, log_start=0)
    ((_, proposal),) = machine.fake_host.proposals
    assert not partition.isr_refused(proposal, ErrorCode.INVALID_UPDATE_VERSION)
    assert partition.proposal is proposal, "it may have been carried out"
    assert partition.isr_refused(proposal, ErrorCode.NOT_CONTROLLER)
    assert not partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.proposal is None


def test_removed_waiters_are_dropped() -> None:
    waiters = OffsetWaiters()
    for offset in range(1000):
        waiters.add(offset, lambda fault: None)()
    assert len(waiters) == 0
    assert len(waiters._heap) < 100
