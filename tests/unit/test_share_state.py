"""The share coordinator: the state of share partitions and its log."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from share_state_harness import KEY, NONE, TOPIC, Harness

from ottla.coordinators.decision import Decision
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.share_state.machine import (
    COLD,
    redundant_below,
)
from ottla.coordinators.share_state.rules import (
    StateResult,
)
from ottla.coordinators.share_state.state import Run, ShareKey, ShareState, combined
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.share_state_records import (
    ShareSnapshotKey,
    ShareUpdateKey,
)
from ottla.protocol.types import ZERO_UUID, Millis, Offset
from ottla.runtime.trusted_time import Times


def test_uninitialized_share_partition_is_neither_read_nor_written() -> None:
    harness = Harness()

    assert harness.read(0).code is ErrorCode.INVALID_REQUEST
    assert harness.write() is ErrorCode.INVALID_REQUEST
    assert harness.summary() == StateResult(NONE, ShareState())
    assert harness.delete() is NONE
    assert harness.log.batches == []


def test_written_state_is_read_after_a_load() -> None:
    harness = Harness()
    assert harness.initialize(epoch=3, start=10) is NONE
    assert harness.write(Run(12, 14, 2, 1), state=3, leader=5, start=11) is NONE
    assert harness.write(Run(14, 15, 0, 2), state=3, leader=5, start=-1) is NONE

    before = harness.machine.states
    harness.shard = harness.loaded()

    assert harness.machine.states == before
    state = harness.read(5).state
    assert (state.state_epoch, state.leader_epoch, state.start_offset) == (3, 5, 11)
    assert state.runs == (Run(12, 13, 2, 1), Run(14, 15, 0, 2))


def test_a_new_start_forgets_what_lies_below() -> None:
    harness = Harness()
    harness.initialize()
    harness.write(Run(0, 9, 0, 1))

    harness.write(start=5)

    assert harness.read(0).state.runs == (Run(5, 9, 0, 1),)


def test_old_leader_is_fenced_once_the_new_one_has_read() -> None:
    harness = Harness()
    harness.initialize()
    assert harness.write(leader=1) is NONE

    assert harness.read(2).code is NONE

    assert harness.write(leader=1) is ErrorCode.FENCED_LEADER_EPOCH
    assert harness.read(1).code is ErrorCode.FENCED_LEADER_EPOCH
    harness.shard = harness.loaded()
    assert harness.write(leader=1) is ErrorCode.FENCED_LEADER_EPOCH
    assert harness.write(leader=2) is NONE


def test_negative_epochs_are_older_than_any_and_only_a_write_may_leave_them_out() -> None:
    harness = Harness()
    harness.initialize()

    for epoch in (-1, -2, -(2**31)):
        assert harness.read(epoch).code is ErrorCode.FENCED_LEADER_EPOCH
    for epoch in (-2, -(2**31)):
        assert harness.write(leader=epoch) is ErrorCode.FENCED_LEADER_EPOCH
        assert harness.write(state=epoch) is ErrorCode.FENCED_STATE_EPOCH
    assert harness.write(leader=-1, state=-1) is NONE


def test_reading_again_in_the_same_epoch_writes_nothing() -> None:
    harness = Harness()
    harness.initialize()
    harness.read(2)
    written = len(harness.log.batches)

    assert harness.read(2).code is NONE

    assert len(harness.log.batches) == written


def test_reset_fences_writes_of_older_state_epochs() -> None:
    harness = Harness()
    harness.initialize(epoch=1)
    harness.write(Run(0, 3, 2, 1), state=1)

    assert harness.initialize(epoch=2, start=50) is NONE

    assert harness.write(state=1) is ErrorCode.FENCED_STATE_EPOCH
    assert harness.initialize(epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    state = harness.summary().state
    assert (state.start_offset, state.runs, state.delivery_complete_count) == (50, (), 0)


def test_partitions_that_do_not_exist() -> None:
    harness = Harness()
    gone = ShareKey("g", TOPIC, 7)

    assert harness.initialize(key=gone) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.summary(gone).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nowhere = ShareKey("g", ZERO_UUID, 0)
    assert harness.initialize(key=nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.summary(nowhere).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.delete(nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for bad in (ShareKey("", TOPIC, 0), ShareKey("g", TOPIC, -1)):
        assert harness.initialize(key=bad) is ErrorCode.INVALID_REQUEST
        assert harness.read(0, bad).code is ErrorCode.INVALID_REQUEST
        assert harness.write(key=bad) is ErrorCode.INVALID_REQUEST
        assert harness.summary(bad).code is ErrorCode.INVALID_REQUEST
        assert harness.delete(bad) is ErrorCode.INVALID_REQUEST


def test_a_deleted_share_partition_is_gone() -> None:
    harness = Harness()
    harness.initialize(epoch=4)

    assert harness.delete() is NONE

    harness.shard = harness.loaded()
    assert harness.read(0).code is ErrorCode.INVALID_REQUEST
    assert harness.initialize(epoch=0) is NONE


def test_enough_updates_make_a_snapshot() -> None:
    harness = Harness(updates_per_snapshot=2)
    harness.initialize()
    for offset in range(4):
        harness.write(Run(offset * 2, offset * 2, 2, 1))

    snapshot, update = ShareSnapshotKey.__name__, ShareUpdateKey.__name__
    assert harness.kinds() == [snapshot, update, update, snapshot, update]
    assert len(harness.read(0).state.runs) == 4
    harness.shard = harness.loaded()
    assert len(harness.read(0).state.runs) == 4


def test_everything_before_the_oldest_snapshot_is_redundant() -> None:
    harness = Harness(updates_per_snapshot=1)
    harness.initialize()
    harness.initialize(key=ShareKey("g", TOPIC, 1))
    harness.write()
    harness.write()

    assert redundant_below(harness.machine.states, harness.shard.end) == 1


def test_idle_share_partitions_get_new_snapshots() -> None:
    harness = Harness()
    harness.initialize()
    harness.write(Run(1, 1, 2, 1))
    harness.write(key=KEY)

    harness.clock.advance(2000)
    harness.shard.on_due()

    assert harness.kinds()[-1] == ShareSnapshotKey.__name__
    assert redundant_below(harness.machine.states, harness.shard.end) == 3
    assert harness.read(0).state.runs == (Run(1, 1, 2, 1),)


def test_share_partitions_of_deleted_topics_end() -> None:
    harness = Harness()
    harness.initialize()
    harness.known.clear()

    harness.carry_out(lambda machine, now: machine.on_timer((COLD,), Times(now, now, now)))

    assert len(harness.machine.states) == 0
    assert redundant_below(harness.machine.states, Offset(2)) == 2


def test_a_share_partition_is_found_by_its_key() -> None:
    assert KEY.coordinator_key() == "g:AAECAwQFBgcICQoLDA0ODw:0"


def test_a_timer_of_another_kind_does_nothing() -> None:
    harness = Harness()
    assert (
        harness.machine.on_timer(("other",), Times(Millis(0), Millis(0), Millis(0))) == Decision()
    )
    harness.shard.submit(lambda machine, now: Decision(), RecordedReply())


RUNS = st.lists(
    st.builds(
        lambda first, size, state, count: Run(first, first + size, state, count),
        st.integers(0, 20),
        st.integers(-1, 6),
        st.sampled_from((0, 2, 4)),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(RUNS, st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_later_runs_override_earlier_ones(layers: list[Run], start: int) -> None:
    model: dict[int, tuple[int, int]] = {}
    for run in layers:
        for offset in range(run.first, run.last + 1):
            model[offset] = run[2:]

    found = combined(layers, start)

    covered = {o: run[2:] for run in found for o in range(run.first, run.last + 1)}
    assert covered == {offset: value for offset, value in model.items() if offset >= start}
    for left, right in pairwise(found):
        assert left.last < right.first
        assert left.last + 1 < right.first or left[2:] != right[2:]
