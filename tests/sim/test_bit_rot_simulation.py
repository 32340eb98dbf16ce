"""Bits that flip in stored segments, in seeded simulations of whole nodes."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_rot import BitRotScenario
from simulation.simulation import Simulation

SEEDS = seeds(3, deep=6)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every damage is an error line, and here they are wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_replicas_are_found_and_repaired(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(BitRotScenario(simulation).run)
