"""One file of one replica is damaged in any way, in seeded simulations of whole nodes."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_damage import FileDamageScenario
from simulation.simulation import Simulation

SEEDS = seeds(3, deep=40)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Damage is logged as an error, and is injected here on purpose."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_file_of_one_replica_loses_nothing(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(FileDamageScenario(simulation).run)
