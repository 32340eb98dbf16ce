"""Whole nodes of the quorum, with image and active controller, in seeded simulations."""

import pytest
from tests.seeds import seeds

from simulation.controllers import ROUNDS, make_scenario
from simulation.quorum import run_quorum
from simulation.runner import play
from simulation.simulation import Simulation

# Disks fail on purpose here, and each failure would be logged with its traceback.
pytestmark = pytest.mark.usefixtures("quiet")

BLOCK = 10
SEEDS = seeds(40, deep=300)


@pytest.mark.parametrize("block", SEEDS[::BLOCK])
def test_acknowledged_changes_survive_and_all_images_agree(block: int) -> None:
    for seed in SEEDS[block - SEEDS.start :][:BLOCK]:
        outcome = play("controllers", seed)
        if outcome.error is not None:
            raise AssertionError(outcome.describe()) from outcome.error


def test_controller_seeds_cover_the_faults() -> None:
    """The invariants prove something only if the faults that could break them happened."""
    watches = []
    for seed in range(1, 15):
        simulation = Simulation(seed)
        scenario = make_scenario(simulation)
        watches.append(scenario.watch)
        simulation.run(lambda scenario=scenario: run_quorum(scenario, ROUNDS))  # type: ignore[misc]
    assert sum(watch.acknowledged for watch in watches) > 100
    assert sum(watch.refused for watch in watches) > 30
    assert sum(watch.open for watch in watches) > 40
    assert sum(watch.loads for watch in watches) > 30
    assert sum(len(watch.leaders) for watch in watches) > 30
    assert sum(watch.changes for watch in watches) > 2


def test_same_controllers_seed_gives_same_journal() -> None:
    assert play("controllers", 0).hash == play("controllers", 0).hash
