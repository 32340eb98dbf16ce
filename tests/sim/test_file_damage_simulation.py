"""One file of one replica is damaged in any way, in seeded simulations of whole nodes."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_damage import FileDamageScenario
from simulation.simulation import Simulation

# 69 and 93: an index is removed under a running node, before a read and before a flush.
SEEDS = seeds((0, 1, 69, 93), deep=40)


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
