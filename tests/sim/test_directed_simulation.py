"""Simulations of whole nodes that inject faults at weak spots of replication."""

import pytest
from tests.seeds import seeds

from simulation.cluster_directed import BelowMinimumScenario, JoiningScenario
from simulation.simulation import Simulation

# Nodes crash on purpose here, and would log it.
pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(2, deep=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_replica_that_joins_the_isr_has_all_acknowledged_records(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(JoiningScenario(simulation).run)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_read_below_min_insync_replicas_survive_the_leader(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(BelowMinimumScenario(simulation).run)
