"""``__share_group_state`` is pruned, and deleted topics are removed from it."""

from types import SimpleNamespace

from share_state_harness import KEY, NONE, TOPIC, Harness

from ottla.coordinators.share_state.machine import COLD, redundant_below
from ottla.coordinators.share_state.pruning import ShareStatePruning
from ottla.coordinators.share_state.rules import (
    decide_delete,
    decide_initialize,
    decide_topics_deleted,
)
from ottla.coordinators.share_state.state import Run, ShareKey, ShareState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotLeader
from ottla.protocol.types import Offset, Uuid
from ottla.runtime.trusted_time import Times

OTHER = ShareKey("g", TOPIC, 1)


class Trimmed:
    """Deletes the front of a harness's log; a load reads the rest."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.asked: list[int] = []
        self.fault: NotLeader | None = None

    def below(self, index: int, offset: Offset) -> bool:
        self.asked.append(offset)
        if self.fault is not None:
            raise self.fault
        moved = offset > self.harness.log.log_start
        self.harness.log.log_start = max(self.harness.log.log_start, offset)
        return moved


def pruning(harness: Harness, trimmed: Trimmed) -> ShareStatePruning:
    runtime = SimpleNamespace(active=lambda: iter([(0, harness.shard)]))
    return ShareStatePruning(runtime, trimmed.below, 1000)  # type: ignore[arg-type]


def test_all_before_the_oldest_snapshot_is_redundant() -> None:
    states = {
        KEY: ShareState(snapshot_at=Offset(7), updates=3),
        OTHER: ShareState(snapshot_at=Offset(12)),
    }

    assert redundant_below(states, Offset(40)) == 7
    assert redundant_below({}, Offset(40)) == 40


def test_pruned_log_loads_to_the_same_state() -> None:
    harness = Harness(updates_per_snapshot=3)
    harness.initialize()
    harness.initialize(key=OTHER)
    for offset in range(8):
        assert harness.write(Run(offset, offset, 2, 1)) is NONE
    trimmed = Trimmed(harness)

    pruning(harness, trimmed).prune()

    assert trimmed.asked == [1], "the other partition has its first snapshot still"
    before = dict(harness.machine.states)
    harness.write(Run(0, 0, 2, 1), key=OTHER)
    harness.clock.advance(2000)
    harness.submit(lambda m, now: m.on_timer((COLD,), Times(now, now, now)))
    pruning(harness, trimmed).prune()
    assert trimmed.asked[-1] > 8, "written anew, it holds nobody back"
    reloaded = harness.loaded().machine.states
    assert reloaded[KEY].runs == before[KEY].runs
    assert dict(reloaded) == dict(harness.machine.states)


def test_unchanged_share_partition_gets_a_new_snapshot_once() -> None:
    harness = Harness(updates_per_snapshot=3)
    harness.initialize(key=OTHER)
    harness.initialize()
    for offset in range(8):
        harness.write(Run(offset, offset, 2, 1))
    lengths = []

    for _ in range(4):
        harness.clock.advance(2000)
        harness.shard.on_due()
        lengths.append(len(harness.records()))

    assert lengths == [lengths[0]] * 4, "a quiet log does not grow"
    assert redundant_below(harness.machine.states, harness.shard.end) == harness.shard.end - 2


def test_uncommitted_snapshot_makes_nothing_redundant() -> None:
    harness = Harness(updates_per_snapshot=0)
    harness.initialize()
    harness.write(Run(0, 0, 2, 1))
    trimmed = Trimmed(harness)
    harness.log.follows = False

    harness.submit(lambda m, now: decide_delete(m, KEY))
    pruning(harness, trimmed).prune()
    assert trimmed.asked == [1], "the tombstone may yet be lost"

    harness.log.commit()
    pruning(harness, trimmed).prune()
    assert trimmed.asked == [1, 3]


def test_uncommitted_first_snapshot_is_kept() -> None:
    harness = Harness()
    harness.log.follows = False

    harness.submit(lambda m, now: decide_initialize(m, KEY, 0, 0, now))
    trimmed = Trimmed(harness)
    pruning(harness, trimmed).prune()

    assert trimmed.asked == []


def test_a_leader_that_cannot_prune_now_tries_again() -> None:
    harness = Harness()
    harness.initialize()
    assert harness.delete() is NONE
    trimmed = Trimmed(harness)
    trimmed.fault = NotLeader("moved")

    pruning(harness, trimmed).prune()
    trimmed.fault = None
    pruning(harness, trimmed).prune()

    assert trimmed.asked == [2, 2], "without any state, all of it is redundant"
    assert harness.log.log_start == 2


def test_state_of_deleted_topics_is_ended() -> None:
    harness = Harness()
    harness.initialize()
    harness.initialize(key=OTHER)

    harness.carry_out(lambda m, now: decide_topics_deleted(m, {Uuid(bytes(16))}))
    assert set(harness.machine.states) == {KEY, OTHER}
    harness.carry_out(lambda m, now: decide_topics_deleted(m, {TOPIC}))

    assert not harness.machine.states
    assert not harness.loaded().machine.states
    assert harness.read(0).code is ErrorCode.INVALID_REQUEST
