"""Whole clusters with their clients in seeded simulations."""

import pytest
from tests.seeds import seeds

from simulation.cluster import ClusterScenario
from simulation.runner import play
from simulation.simulation import Simulation

# Disks fail on purpose here, and each failure would be logged with its traceback.
pytestmark = pytest.mark.usefixtures("quiet")

BLOCK = 5
SEEDS = seeds(20, deep=200)


@pytest.mark.parametrize("block", SEEDS[::BLOCK])
def test_acknowledged_records_survive_and_replicas_agree(block: int) -> None:
    for seed in SEEDS[block - SEEDS.start :][:BLOCK]:
        outcome = play("cluster", seed)
        if outcome.error is not None:
            raise AssertionError(outcome.describe()) from outcome.error


def test_cluster_seeds_cover_the_faults() -> None:
    """The invariants prove something only if the faults that could break them happened."""
    watches = []
    for seed in range(4):
        simulation = Simulation(seed)
        scenario = ClusterScenario(simulation)
        watches.append(scenario.watch)
        simulation.run(scenario.run)
    assert sum(watch.acknowledged for watch in watches) > 300
    assert sum(watch.read for watch in watches) > 300
    assert sum(watch.retried for watch in watches) > 20
    assert sum(watch.refused for watch in watches) > 20
    assert sum(watch.elections for watch in watches) > 15


def test_same_cluster_seed_gives_same_journal() -> None:
    assert play("cluster", 3).hash == play("cluster", 3).hash
