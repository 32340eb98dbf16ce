"""Whole clusters with their clients in seeded simulations."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster import ClusterScenario
from simulation.runner import play
from simulation.simulation import Simulation

BLOCK = 5
SEEDS = seeds(20, deep=200)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disks fail on purpose here, and each failure would be logged with its stack."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("block", SEEDS[::BLOCK])
def test_acknowledged_records_stay_and_replicas_agree(block: int) -> None:
    for seed in SEEDS[block - SEEDS.start :][:BLOCK]:
        outcome = play("cluster", seed)
        if outcome.error is not None:
            raise AssertionError(outcome.describe()) from outcome.error


def test_the_worlds_of_clusters_are_eventful() -> None:
    """The promises are only worth something if what could break them happened."""
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


def test_one_seed_gives_one_history_of_a_cluster() -> None:
    assert play("cluster", 3).hash == play("cluster", 3).hash
