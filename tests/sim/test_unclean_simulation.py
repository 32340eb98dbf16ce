"""Partitions that lose every complete replica, in seeded simulations of whole nodes."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_unclean import UncleanScenario
from simulation.simulation import Simulation

SEEDS = seeds(4, deep=12)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Unclean elections are logged as warnings, and are injected here on purpose."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_most_complete_replica_wins_the_unclean_election(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(UncleanScenario(simulation).run)
