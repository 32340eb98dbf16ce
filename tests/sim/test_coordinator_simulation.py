"""Groups and transactions of whole clusters in seeded simulations.

`COORDINATOR_SEEDS=first:last` plays other seeds than those of every day. What must be hit exactly,
as a death between two steps, is in `test_coordinator_steps.py`.
"""

import functools
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from simulation.coordinator_watch import CoordinatorWatch
from simulation.coordinators import KINDS, CoordinatorScenario
from simulation.runner import play
from simulation.simulation import Simulation

BLOCK = 4
FIRST, LAST = map(int, os.environ.get("COORDINATOR_SEEDS", "0:5").split(":"))


class Played(NamedTuple):
    watch: CoordinatorWatch
    kind: str
    hash: str
    error: Exception | None


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disks fail on purpose here, and each failure would be logged with its stack."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@functools.cache
def played(seed: int) -> Played:
    """Play a seed, once for all tests."""
    simulation = Simulation(seed)
    scenario = CoordinatorScenario(simulation)
    error = None
    try:
        simulation.run(scenario.run)
    except Exception as caught:
        error = caught
    return Played(scenario.watch, scenario.kind, simulation.journal.hash(), error)


@pytest.mark.parametrize("block", range(FIRST, LAST, BLOCK))
def test_b1_b13_work_is_done_exactly_once_by_one_owner(block: int) -> None:
    for seed in range(block, min(block + BLOCK, LAST)):
        if played(seed).error is not None:
            message = f"coordinators: make sim SEED={seed}"
            raise AssertionError(message) from played(seed).error


def test_the_worlds_of_coordinators_are_eventful() -> None:
    """The promises are only worth something if what could break them happened."""
    simulations = [played(seed) for seed in range(FIRST, LAST)]
    assert {each.kind for each in simulations} == set(KINDS)
    watches = [each.watch for each in simulations]
    assert sum(watch.committed for watch in watches) > 90
    assert sum(watch.aborted for watch in watches) > 15
    assert sum(watch.generations for watch in watches) > 12
    assert sum(watch.refused for watch in watches) > 90
    assert sum(watch.elections for watch in watches) > 20
    assert sum(watch.standbys for watch in watches) > 4


def test_one_seed_gives_one_history_of_coordinators() -> None:
    assert play("coordinators", FIRST + 3).hash == played(FIRST + 3).hash
