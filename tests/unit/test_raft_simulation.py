"""Whole quorums of the core under crashes, message loss, partitions and voter changes, by seed."""

import pytest
from raft_simulation import QuorumSimulation
from tests.seeds import seeds

from ottla.raft.core.effects import Role

pytestmark = pytest.mark.slow

SEEDS = seeds(120, deep=240)
CHAOS_MS = 2500
# After healing: a lease may have to expire, then elections may collide a few times.
HEALED_MS = 3000


def chaos(sim: QuorumSimulation, ms: int, are_voters_fixed: bool = False) -> None:
    """Inject a random fault every few milliseconds, for that long."""
    rng = sim.random
    end = sim.now + ms
    while sim.now < end:
        sim.run(rng.randint(1, 40))
        draw = rng.random()
        nodes = list(sim.replicas.values())
        if draw < 0.36:
            sim.propose()
        elif draw < 0.52:
            if not are_voters_fixed:
                sim.ask_random_change()
        elif draw < 0.60:
            sim.take_snapshot(rng.choice(nodes))
        elif draw < 0.68:
            one, other = rng.choice(nodes).id, rng.choice(nodes).id
            sim.cuts.add((one, other))
            if rng.random() < 0.5:
                sim.cuts.add((other, one))
        elif draw < 0.72:
            leader = sim.leader()
            if leader is not None:
                sim.cuts |= {(leader.id, n.id) for n in nodes}
        elif draw < 0.82:
            sim.cuts.clear()
        elif draw < 0.86:
            victim = rng.choice(nodes)
            if victim.core is not None:
                sim.crash(victim)
                sim.after(rng.randint(20, 400), lambda v=victim: sim.restart(v))  # type: ignore[misc]
        elif draw < 0.88:
            for node in nodes:
                if node.core is not None:
                    sim.crash(node)
                    sim.after(rng.randint(1, 100), lambda v=node: sim.restart(v))  # type: ignore[misc]
        sim.check_logs_match() if draw < 0.05 else None


def is_caught_up(sim: QuorumSimulation) -> bool:
    leader = sim.leader()
    if leader is None or leader.core is None:
        return False
    end = leader.log.end_offset
    return all(r.high_watermark >= end for r in sim.replicas.values())


@pytest.mark.parametrize("block", SEEDS[::20])
def test_invariants_hold_and_a_healed_quorum_works(block: int) -> None:
    for seed in SEEDS[block - SEEDS.start :][:20]:
        try:
            run_simulation(seed)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


def run_simulation(seed: int) -> QuorumSimulation:
    sim = QuorumSimulation(seed, voters=1 + seed % 5, observers=(seed // 5) % 3)
    sim.crash_chance = (0.0, 0.002, 0.01)[seed % 3]
    chaos(sim, CHAOS_MS)
    sim.heal()
    sim.run(HEALED_MS, lambda: sim.leader() is not None)
    assert sim.run(HEALED_MS, lambda: is_caught_up(sim)), "a healed quorum elects and commits"
    before = len(sim.committed)
    sim.propose()
    assert sim.run(HEALED_MS, lambda: len(sim.committed) > before and is_caught_up(sim))
    sim.check_logs_match()
    sim.check_change_replies()
    assert sum(r.role is Role.LEADER for r in sim.up()) == 1
    return sim


def test_simulations_cover_all_kinds_of_events() -> None:
    """The invariants only mean something if the faults that could violate them occurred."""
    simulations = [run_simulation(seed) for seed in range(3, 23)]
    assert sum(len(w.leaders) for w in simulations) > 60
    assert sum(len(w.committed) for w in simulations) > 400
    assert sum(r.log.start > 0 for w in simulations for r in w.replicas.values()) > 20
    changes = [reply for w in simulations for _, reply in w.change_replies]
    assert sum(reply.error == 0 for reply in changes) > 10


def test_same_seed_gives_the_same_simulation() -> None:
    def journal(seed: int) -> object:
        sim = run_simulation(seed)
        return sim.now, sim.sequence, sim.leaders, sim.committed

    assert journal(7) == journal(7)


@pytest.mark.parametrize("seed", range(10))
def test_replica_with_a_new_disk_is_another_replica(seed: int) -> None:
    sim = QuorumSimulation(seed, voters=3)
    assert sim.run(3000, lambda: len(sim.committed) > 0)
    sim.propose()
    sim.run(300)
    victim = sim.replicas[seed % 3]
    sim.lose_disk(victim)
    sim.run(sim.random.randint(0, 500))
    sim.start(victim)
    # Two of three voters are left: one more change could leave no majority.
    chaos(sim, 1000, are_voters_fixed=True)
    sim.heal()
    before = len(sim.committed)
    sim.run(HEALED_MS, lambda: sim.leader() is not None)
    sim.run(500)
    sim.propose()
    assert sim.run(HEALED_MS, lambda: len(sim.committed) > before)
    sim.check_logs_match()
