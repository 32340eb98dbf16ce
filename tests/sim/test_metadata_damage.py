"""A voter whose metadata log is damaged refuses to start, rejoins, and loses nothing."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.metadata_damage import MetadataDamageScenario
from simulation.simulation import Simulation


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", seeds(4, deep=12))
def test_damaged_voter_refuses_to_start_and_rejoins_without_loss(seed: int) -> None:
    simulation = Simulation(seed)
    damage = MetadataDamageScenario(simulation)
    simulation.run(damage.play)
    assert damage.refusals == 1
