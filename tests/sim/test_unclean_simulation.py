"""Partitions that lose every complete replica, in seeded simulations of whole nodes."""

import pytest
from tests.seeds import seeds

from simulation.cluster_unclean import UncleanScenario
from simulation.simulation import Simulation

# Unclean elections are logged as warnings, and are injected here on purpose.
pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(4, deep=12)


@pytest.mark.parametrize("seed", SEEDS)
def test_most_complete_replica_wins_the_unclean_election(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(UncleanScenario(simulation).run)
