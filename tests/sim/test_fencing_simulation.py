"""Simulated brokers that are gone are fenced at once; those that may be alive are not."""

import pytest
from tests.seeds import seeds

from simulation.cluster_fencing import FAULTS, FencingScenario
from simulation.simulation import Simulation

# Nodes crash on purpose here, and would log it.
pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(1, deep=20)


@pytest.mark.parametrize("is_controller_hit", [False, True], ids=["broker", "controller"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_only_a_broker_whose_process_is_gone_is_fenced_early(
    seed: int, fault: str, is_controller_hit: bool
) -> None:
    simulation = Simulation(seed)
    scenario = FencingScenario(simulation, fault)
    scenario.is_controller_hit = is_controller_hit
    simulation.run(scenario.run)
