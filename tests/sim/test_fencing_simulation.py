"""Simulated brokers that are gone are fenced at once; those that may be alive are not."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_fencing import FAULTS, FencingScenario
from simulation.simulation import Simulation

SEEDS = seeds(1, deep=20)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes crash on purpose here, and would log it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


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
