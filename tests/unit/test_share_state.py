"""The share coordinator: the state of share partitions, as its log has it."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from share_state_world import KEY, NONE, TOPIC, World

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
    world = World()

    assert world.read(0).code is ErrorCode.INVALID_REQUEST
    assert world.write() is ErrorCode.INVALID_REQUEST
    assert world.summary() == StateResult(NONE, ShareState())
    assert world.delete() is NONE
    assert world.log.batches == []


def test_written_state_is_read_after_a_load() -> None:
    world = World()
    assert world.initialize(epoch=3, start=10) is NONE
    assert world.write(Run(12, 14, 2, 1), state=3, leader=5, start=11) is NONE
    assert world.write(Run(14, 15, 0, 2), state=3, leader=5, start=-1) is NONE

    before = world.machine.states
    world.shard = world.loaded()

    assert world.machine.states == before
    state = world.read(5).state
    assert (state.state_epoch, state.leader_epoch, state.start_offset) == (3, 5, 11)
    assert state.runs == (Run(12, 13, 2, 1), Run(14, 15, 0, 2))


def test_a_new_start_forgets_what_lies_below() -> None:
    world = World()
    world.initialize()
    world.write(Run(0, 9, 0, 1))

    world.write(start=5)

    assert world.read(0).state.runs == (Run(5, 9, 0, 1),)


def test_old_leader_is_fenced_once_the_new_one_has_read() -> None:
    world = World()
    world.initialize()
    assert world.write(leader=1) is NONE

    assert world.read(2).code is NONE

    assert world.write(leader=1) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(1).code is ErrorCode.FENCED_LEADER_EPOCH
    world.shard = world.loaded()
    assert world.write(leader=1) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(leader=2) is NONE


def test_negative_epochs_are_older_than_any_and_only_a_write_may_leave_them_out() -> None:
    world = World()
    world.initialize()

    for epoch in (-1, -2, -(2**31)):
        assert world.read(epoch).code is ErrorCode.FENCED_LEADER_EPOCH
    for epoch in (-2, -(2**31)):
        assert world.write(leader=epoch) is ErrorCode.FENCED_LEADER_EPOCH
        assert world.write(state=epoch) is ErrorCode.FENCED_STATE_EPOCH
    assert world.write(leader=-1, state=-1) is NONE


def test_reading_again_in_the_same_epoch_writes_nothing() -> None:
    world = World()
    world.initialize()
    world.read(2)
    written = len(world.log.batches)

    assert world.read(2).code is NONE

    assert len(world.log.batches) == written


def test_reset_fences_writes_of_older_state_epochs() -> None:
    world = World()
    world.initialize(epoch=1)
    world.write(Run(0, 3, 2, 1), state=1)

    assert world.initialize(epoch=2, start=50) is NONE

    assert world.write(state=1) is ErrorCode.FENCED_STATE_EPOCH
    assert world.initialize(epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    state = world.summary().state
    assert (state.start_offset, state.runs, state.delivery_complete_count) == (50, (), 0)


def test_partitions_that_do_not_exist() -> None:
    world = World()
    gone = ShareKey("g", TOPIC, 7)

    assert world.initialize(key=gone) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.summary(gone).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nowhere = ShareKey("g", ZERO_UUID, 0)
    assert world.initialize(key=nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.summary(nowhere).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.delete(nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for bad in (ShareKey("", TOPIC, 0), ShareKey("g", TOPIC, -1)):
        assert world.initialize(key=bad) is ErrorCode.INVALID_REQUEST
        assert world.read(0, bad).code is ErrorCode.INVALID_REQUEST
        assert world.write(key=bad) is ErrorCode.INVALID_REQUEST
        assert world.summary(bad).code is ErrorCode.INVALID_REQUEST
        assert world.delete(bad) is ErrorCode.INVALID_REQUEST


def test_a_deleted_share_partition_is_gone() -> None:
    world = World()
    world.initialize(epoch=4)

    assert world.delete() is NONE

    world.shard = world.loaded()
    assert world.read(0).code is ErrorCode.INVALID_REQUEST
    assert world.initialize(epoch=0) is NONE


def test_enough_updates_make_a_snapshot() -> None:
    world = World(updates_per_snapshot=2)
    world.initialize()
    for offset in range(4):
        world.write(Run(offset * 2, offset * 2, 2, 1))

    snapshot, update = ShareSnapshotKey.__name__, ShareUpdateKey.__name__
    assert world.kinds() == [snapshot, update, update, snapshot, update]
    assert len(world.read(0).state.runs) == 4
    world.shard = world.loaded()
    assert len(world.read(0).state.runs) == 4


def test_everything_before_the_oldest_snapshot_is_redundant() -> None:
    world = World(updates_per_snapshot=1)
    world.initialize()
    world.initialize(key=ShareKey("g", TOPIC, 1))
    world.write()
    world.write()

    assert redundant_below(world.machine.states, world.shard.end) == 1


def test_idle_share_partitions_get_new_snapshots() -> None:
    world = World()
    world.initialize()
    world.write(Run(1, 1, 2, 1))
    world.write(key=KEY)

    world.clock.advance(2000)
    world.shard.on_due()

    assert world.kinds()[-1] == ShareSnapshotKey.__name__
    assert redundant_below(world.machine.states, world.shard.end) == 3
    assert world.read(0).state.runs == (Run(1, 1, 2, 1),)


def test_share_partitions_of_deleted_topics_end() -> None:
    world = World()
    world.initialize()
    world.known.clear()

    world.carry_out(lambda machine, now: machine.on_timer((COLD,), Times(now, now, now)))

    assert len(world.machine.states) == 0
    assert redundant_below(world.machine.states, Offset(2)) == 2


def test_a_share_partition_is_found_by_its_key() -> None:
    assert KEY.coordinator_key() == "g:AAECAwQFBgcICQoLDA0ODw:0"


def test_a_timer_of_another_kind_does_nothing() -> None:
    world = World()
    assert world.machine.on_timer(("other",), Times(Millis(0), Millis(0), Millis(0))) == Decision()
    world.shard.submit(lambda machine, now: Decision(), RecordedReply())


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
