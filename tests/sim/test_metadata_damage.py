"""A voter whose metadata log is damaged refuses to start, rejoins, and loses nothing."""

import pytest
from tests.seeds import seeds

from simulation.metadata_damage import MetadataDamageScenario
from simulation.simulation import Simulation

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("seed", seeds(4, deep=12))
def test_damaged_voter_refuses_to_start_and_rejoins_without_loss(seed: int) -> None:
    simulation = Simulation(seed)
    damage = MetadataDamageScenario(simulation)
    simulation.run(damage.play)
    assert damage.refusals == 1
