"""Bits that flip in stored segments, in seeded simulations of whole nodes."""

import logging
import os
from collections.abc import Iterator

import pytest

from simulation.cluster_rot import BitRotScenario
from simulation.simulation import Simulation

FIRST, LAST = map(int, os.environ.get("ROT_SEEDS", "0:6").split(":"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every damage is an error line, and here they are wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_damaged_replicas_are_found_and_repaired(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(BitRotScenario(simulation).run)
