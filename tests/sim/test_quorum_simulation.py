"""Simulations of whole quorums of the real driver, log, client and server.

Far more seeds run with the controller on top (`test_controllers_simulation.py`).
"""

import pytest
from tests.seeds import seeds

from simulation.quorum import QuorumScenario, make_machines, run_quorum
from simulation.quorum_watch import QuorumWatch
from simulation.runner import play
from simulation.simulation import Simulation

# Disks fail on purpose here, and each failure would be logged with its traceback.
pytestmark = pytest.mark.usefixtures("quiet")

BLOCK = 20
SEEDS = seeds(20, deep=40)


@pytest.mark.parametrize("block", SEEDS[::BLOCK])
def test_invariants_hold_and_repaired_quorum_works(block: int) -> None:
    for seed in SEEDS[block - SEEDS.start :][:BLOCK]:
        outcome = play("quorum", seed)
        if outcome.error is not None:
            raise AssertionError(outcome.describe()) from outcome.error


def test_quorum_seeds_cover_the_faults() -> None:
    """The invariants prove something only if the faults that could break them happened."""
    watches = []
    for seed in range(1, 21):
        simulation = Simulation(seed)
        play = QuorumScenario(simulation, QuorumWatch(), make_machines(simulation))
        watches.append(play.watch)
        simulation.run(lambda play=play: run_quorum(play))  # type: ignore[misc]
    assert sum(len(watch.leaders) for watch in watches) > 40
    assert sum(watch.end for watch in watches) > 600
    assert sum(watch.loads for watch in watches) > 60
    assert sum(watch.changes for watch in watches) > 10


def test_same_quorum_seed_gives_same_journal() -> None:
    assert play("quorum", 8).hash == play("quorum", 8).hash
