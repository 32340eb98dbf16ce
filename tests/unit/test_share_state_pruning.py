"""``__share_group_state`` is kept short, and forgets what is deleted."""

from types import SimpleNamespace

from share_state_world import KEY, NONE, TOPIC, World

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
    """Deletes the front of a world's log; what is left is what a load reads."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[int] = []
        self.fault: NotLeader | None = None

    def below(self, index: int, offset: Offset) -> bool:
        self.asked.append(offset)
        if self.fault is not None:
            raise self.fault
        moved = offset > self.world.log.log_start
        self.world.log.log_start = max(self.world.log.log_start, offset)
        return moved


def pruning(world: World, trimmed: Trimmed) -> ShareStatePruning:
    runtime = SimpleNamespace(active=lambda: iter([(0, world.shard)]))
    return ShareStatePruning(runtime, trimmed.below, 1000)  # type: ignore[arg-type]


def test_all_before_the_oldest_snapshot_is_redundant() -> None:
    states = {
        KEY: ShareState(snapshot_at=Offset(7), updates=3),
        OTHER: ShareState(snapshot_at=Offset(12)),
    }

    assert redundant_below(states, Offset(40)) == 7
    assert redundant_below({}, Offset(40)) == 40


def test_pruned_log_loads_to_the_same_state() -> None:
    world = World(updates_per_snapshot=3)
    world.initialize()
    world.initialize(key=OTHER)
    for offset in range(8):
        assert world.write(Run(offset, offset, 2, 1)) is NONE
    trimmed = Trimmed(world)

    pruning(world, trimmed).prune()

    assert trimmed.asked == [1], "the other partition has its first snapshot still"
    before = dict(world.machine.states)
    world.write(Run(0, 0, 2, 1), key=OTHER)
    world.clock.advance(2000)
    world.submit(lambda m, now: m.on_timer((COLD,), Times(now, now, now)))
    pruning(world, trimmed).prune()
    assert trimmed.asked[-1] > 8, "written anew, it holds nobody back"
    reloaded = world.loaded().machine.states
    assert reloaded[KEY].runs == before[KEY].runs
    assert dict(reloaded) == dict(world.machine.states)


def test_unchanged_share_partition_gets_a_new_snapshot_once() -> None:
    world = World(updates_per_snapshot=3)
    world.initialize(key=OTHER)
    world.initialize()
    for offset in range(8):
        world.write(Run(offset, offset, 2, 1))
    lengths = []

    for _ in range(4):
        world.clock.advance(2000)
        world.shard.on_due()
        lengths.append(len(world.records()))

    assert lengths == [lengths[0]] * 4, "a quiet log does not grow"
    assert redundant_below(world.machine.states, world.shard.end) == world.shard.end - 2


def test_uncommitted_snapshot_makes_nothing_redundant() -> None:
    world = World(updates_per_snapshot=0)
    world.initialize()
    world.write(Run(0, 0, 2, 1))
    trimmed = Trimmed(world)
    world.log.follows = False

    world.submit(lambda m, now: decide_delete(m, KEY))
    pruning(world, trimmed).prune()
    assert trimmed.asked == [1], "the tombstone may yet be lost"

    world.log.commit()
    pruning(world, trimmed).prune()
    assert trimmed.asked == [1, 3]


def test_uncommitted_first_snapshot_is_kept() -> None:
    world = World()
    world.log.follows = False

    world.submit(lambda m, now: decide_initialize(m, KEY, 0, 0, now))
    trimmed = Trimmed(world)
    pruning(world, trimmed).prune()

    assert trimmed.asked == []


def test_a_leader_that_cannot_prune_now_tries_again() -> None:
    world = World()
    world.initialize()
    assert world.delete() is NONE
    trimmed = Trimmed(world)
    trimmed.fault = NotLeader("moved")

    pruning(world, trimmed).prune()
    trimmed.fault = None
    pruning(world, trimmed).prune()

    assert trimmed.asked == [2, 2], "without any state, all of it is redundant"
    assert world.log.log_start == 2


def test_state_of_deleted_topics_is_ended() -> None:
    world = World()
    world.initialize()
    world.initialize(key=OTHER)

    world.carry_out(lambda m, now: decide_topics_deleted(m, {Uuid(bytes(16))}))
    assert set(world.machine.states) == {KEY, OTHER}
    world.carry_out(lambda m, now: decide_topics_deleted(m, {TOPIC}))

    assert not world.machine.states
    assert not world.loaded().machine.states
    assert world.read(0).code is ErrorCode.INVALID_REQUEST
