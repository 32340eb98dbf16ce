"""Whole quorums of the pure core under crashes, loss, cuts and membership changes, by seed."""

import pytest
from raft_world import World
from tests.seeds import seeds

from ottla.raft.core.effects import Role

SEEDS = seeds(120, deep=240)
CHAOS_MS = 2500
# After healing: a lease may have to run out, then elections may collide a few times.
HEALED_MS = 3000


def chaos(world: World, ms: int, are_voters_fixed: bool = False) -> None:
    """Let things happen for that long, every few milliseconds one of them."""
    rng = world.random
    end = world.now + ms
    while world.now < end:
        world.run(rng.randint(1, 40))
        draw = rng.random()
        nodes = list(world.replicas.values())
        if draw < 0.36:
            world.propose()
        elif draw < 0.52:
            if not are_voters_fixed:
                world.ask_random_change()
        elif draw < 0.60:
            world.take_snapshot(rng.choice(nodes))
        elif draw < 0.68:
            one, other = rng.choice(nodes).id, rng.choice(nodes).id
            world.cuts.add((one, other))
            if rng.random() < 0.5:
                world.cuts.add((other, one))
        elif draw < 0.72:
            leader = world.leader()
            if leader is not None:
                world.cuts |= {(leader.id, n.id) for n in nodes}
        elif draw < 0.82:
            world.cuts.clear()
        elif draw < 0.86:
            victim = rng.choice(nodes)
            if victim.core is not None:
                world.crash(victim)
                world.after(rng.randint(20, 400), lambda v=victim: world.restart(v))  # type: ignore[misc]
        elif draw < 0.88:
            for node in nodes:
                if node.core is not None:
                    world.crash(node)
                    world.after(rng.randint(1, 100), lambda v=node: world.restart(v))  # type: ignore[misc]
        world.check_logs_match() if draw < 0.05 else None


def is_caught_up(world: World) -> bool:
    leader = world.leader()
    if leader is None or leader.core is None:
        return False
    end = leader.log.end_offset
    return all(r.high_watermark >= end for r in world.replicas.values())


@pytest.mark.parametrize("block", SEEDS[::20])
def test_invariants_hold_and_a_healed_quorum_works(block: int) -> None:
    for seed in SEEDS[block - SEEDS.start :][:20]:
        try:
            one_world(seed)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


def one_world(seed: int) -> World:
    world = World(seed, voters=1 + seed % 5, observers=(seed // 5) % 3)
    world.crash_chance = (0.0, 0.002, 0.01)[seed % 3]
    chaos(world, CHAOS_MS)
    world.heal()
    world.run(HEALED_MS, lambda: world.leader() is not None)
    assert world.run(HEALED_MS, lambda: is_caught_up(world)), "a healed quorum elects and commits"
    before = len(world.committed)
    world.propose()
    assert world.run(HEALED_MS, lambda: len(world.committed) > before and is_caught_up(world))
    world.check_logs_match()
    world.check_change_replies()
    assert sum(r.role is Role.LEADER for r in world.up()) == 1
    return world


def test_simulations_cover_all_kinds_of_events() -> None:
    """The promises are only worth something if what could break them happened."""
    worlds = [one_world(seed) for seed in range(3, 23)]
    assert sum(len(w.leaders) for w in worlds) > 60
    assert sum(len(w.committed) for w in worlds) > 400
    assert sum(r.log.start > 0 for w in worlds for r in w.replicas.values()) > 20
    changes = [reply for w in worlds for _, reply in w.change_replies]
    assert sum(reply.error == 0 for reply in changes) > 10


def test_same_seed_gives_the_same_simulation() -> None:
    def journal(seed: int) -> object:
        world = one_world(seed)
        return world.now, world.sequence, world.leaders, world.committed

    assert journal(7) == journal(7)


@pytest.mark.parametrize("seed", range(10))
def test_replica_with_a_new_disk_is_another_replica(seed: int) -> None:
    world = World(seed, voters=3)
    assert world.run(3000, lambda: len(world.committed) > 0)
    world.propose()
    world.run(300)
    victim = world.replicas[seed % 3]
    world.lose_disk(victim)
    world.run(world.random.randint(0, 500))
    world.start(victim)
    # Two of three voters are left: one change more could leave no majority.
    chaos(world, 1000, are_voters_fixed=True)
    world.heal()
    before = len(world.committed)
    world.run(HEALED_MS, lambda: world.leader() is not None)
    world.run(500)
    world.propose()
    assert world.run(HEALED_MS, lambda: len(world.committed) > before)
    world.check_logs_match()
