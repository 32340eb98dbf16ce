"""Simulations of whole nodes that inject faults at weak spots of replication."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_directed import BelowMinimumScenario, JoiningScenario
from simulation.simulation import Simulation

SEEDS = seeds(2, deep=4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes crash on purpose here, and would log it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_replica_that_joins_the_isr_has_all_acknowledged_records(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(JoiningScenario(simulation).run)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_read_below_min_insync_replicas_survive_the_leader(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(BelowMinimumScenario(simulation).run)
