"""Simulated brokers copy to a failing bucket: nothing is lost, nothing is left behind."""

import pytest
from tests.seeds import seeds

from simulation.simulation import Simulation
from simulation.tiering import TieringScenario

# Stores fail on purpose here, and brokers would log it.
pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("seed", seeds((5, 19), deep=40))
def test_leaders_crashes_and_deletions_lose_and_orphan_nothing(
    seed: int, *, is_grouped: bool
) -> None:
    simulation = Simulation(seed)
    simulation.run(TieringScenario(simulation, is_grouped=is_grouped).run)
