"""Simulated brokers copy to a failing bucket: nothing is lost, nothing is left behind."""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from simulation.simulation import Simulation
from simulation.tiering import TieringScenario


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stores fail on purpose here, and brokers would log it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("seed", seeds((5, 19), deep=40))
def test_leaders_crashes_and_deletions_lose_and_orphan_nothing(
    seed: int, *, is_grouped: bool
) -> None:
    simulation = Simulation(seed)
    simulation.run(TieringScenario(simulation, is_grouped=is_grouped).run)
