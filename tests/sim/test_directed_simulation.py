"""Weak spots of replication, hit on purpose, in seeded simulations of whole nodes."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.cluster_directed import BelowMinimumScenario, JoiningScenario
from simulation.simulation import Simulation

SEEDS = seeds(2, deep=4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes die on purpose here, and would say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_joins_the_isr_has_what_was_acknowledged(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(JoiningScenario(simulation).run)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_leader_below_the_minimum_showed_stays(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(BelowMinimumScenario(simulation).run)
