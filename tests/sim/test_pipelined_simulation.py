"""Pipelined transactional producers on whole simulated clusters."""

import functools
from typing import NamedTuple

import pytest
from tests.seeds import seeds

from simulation.coordinator_pipeline import PipelinedScenario
from simulation.coordinator_watch import CoordinatorWatch
from simulation.simulation import Simulation

# Disks fail on purpose here, and each failure would be logged with its traceback.
pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(3, deep=3)


class Played(NamedTuple):
    watch: CoordinatorWatch
    error: Exception | None


@functools.cache
def played(seed: int) -> Played:
    """Run a seed, once for all tests."""
    simulation = Simulation(seed)
    scenario = PipelinedScenario(simulation)
    try:
        simulation.run(scenario.run)
    except Exception as caught:
        return Played(scenario.watch, caught)
    return Played(scenario.watch, None)


@pytest.mark.parametrize("seed", SEEDS)
def test_pipelined_transactions_are_appended_once_and_in_order(seed: int) -> None:
    if (error := played(seed).error) is not None:
        message = f"pipelined: make sim SEED={seed}"
        raise AssertionError(message) from error


def test_pipelined_simulations_commit_abort_and_retry() -> None:
    watches = [played(seed).watch for seed in SEEDS]
    assert sum(watch.committed for watch in watches) > 60
    assert sum(watch.aborted for watch in watches) > 15
    assert sum(watch.refused for watch in watches) > 30
