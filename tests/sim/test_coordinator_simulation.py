"""Groups and transactions of whole clusters in seeded simulations.

`test_coordinator_steps.py` injects a fault between every two steps.
"""

import functools
from typing import NamedTuple

import pytest
from tests.seeds import seeds

from simulation.coordinator_watch import CoordinatorWatch
from simulation.coordinators import KINDS, CoordinatorScenario
from simulation.runner import play
from simulation.simulation import Simulation

# Disks fail on purpose here, and each failure would be logged with its traceback.
pytestmark = pytest.mark.usefixtures("quiet")

BLOCK = 4
# Each type of group, both versions of transactions, and a failover of the quorum.
SEEDS = seeds((1, 3, 4), deep=30)


class Played(NamedTuple):
    watch: CoordinatorWatch
    kind: str
    hash: str
    error: Exception | None


@functools.cache
def played(seed: int) -> Played:
    """Run a seed, once for all tests."""
    simulation = Simulation(seed)
    scenario = CoordinatorScenario(simulation)
    error = None
    try:
        simulation.run(scenario.run)
    except Exception as caught:
        error = caught
    return Played(scenario.watch, scenario.kind, simulation.journal.hash(), error)


@pytest.mark.parametrize("block", range(0, len(SEEDS), BLOCK))
def test_work_is_done_exactly_once_by_one_owner(block: int) -> None:
    for seed in SEEDS[block:][:BLOCK]:
        if played(seed).error is not None:
            message = f"coordinators: make sim SEED={seed}"
            raise AssertionError(message) from played(seed).error


def test_coordinator_seeds_cover_the_faults() -> None:
    """The invariants prove something only if the faults that could break them happened."""
    simulations = [played(seed) for seed in SEEDS]
    assert {each.kind for each in simulations} == set(KINDS)
    watches = [each.watch for each in simulations]
    assert sum(watch.committed for watch in watches) > 90
    assert sum(watch.aborted for watch in watches) > 15
    assert sum(watch.generations for watch in watches) > 12
    assert sum(watch.refused for watch in watches) > 40
    assert sum(watch.elections for watch in watches) > 10
    assert sum(watch.standbys for watch in watches) > 2


def test_same_coordinators_seed_gives_same_journal() -> None:
    assert play("coordinators", SEEDS[1]).hash == played(SEEDS[1]).hash
