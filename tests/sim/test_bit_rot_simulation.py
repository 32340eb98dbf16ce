"""Bits that flip in stored segments, in seeded simulations of whole nodes."""

import pytest
from tests.seeds import seeds

from simulation.cluster_rot import BitRotScenario
from simulation.simulation import Simulation

# Damage is logged as an error, and is injected here on purpose.
pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(3, deep=6)


@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bits_are_found_and_repaired(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(BitRotScenario(simulation).run)
