"""One file of one replica is damaged in any way, in seeded simulations of whole nodes."""

import pytest
from tests.seeds import seeds

from simulation.cluster_damage import FileDamageScenario
from simulation.simulation import Simulation

# Damage is logged as an error, and is injected here on purpose.
pytestmark = pytest.mark.usefixtures("quiet")

# 69 and 93: an index is removed under a running node, before a read and before a flush.
SEEDS = seeds((0, 1, 69, 93), deep=40)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_file_of_one_replica_loses_nothing(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(FileDamageScenario(simulation).run)
