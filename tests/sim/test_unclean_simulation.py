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
    """Every unclean election is a warning, and here they are what is wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_most_complete_of_the_incomplete_leads(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(UncleanScenario(simulation).run)
