"""Groups and transactions of whole clusters in seeded worlds.

`COORDINATOR_SEEDS=first:last` plays other seeds than those of every day.
"""

import logging
import os
from collections.abc import Iterator

import pytest

from ottla.sim.coordinators import CoordinatorTorment
from ottla.sim.runner import play
from ottla.sim.world import World

BLOCK = 4
FIRST, LAST = map(int, os.environ.get("COORDINATOR_SEEDS", "0:16").split(":"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disks fail on purpose here, and each failure would be logged with its stack."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("block", range(FIRST, LAST, BLOCK))
def test_b1_b13_work_is_done_exactly_once_by_one_owner(block: int) -> None:
    for seed in range(block, min(block + BLOCK, LAST)):
        outcome = play("coordinators", seed)
        if outcome.error is not None:
            raise AssertionError(outcome.describe()) from outcome.error


def test_the_worlds_of_coordinators_are_eventful() -> None:
    """The promises are only worth something if what could break them happened."""
    watches = []
    for seed in range(4, 8):
        world = World(seed)
        torment = CoordinatorTorment(world)
        watches.append(torment.watch)
        world.run(torment.run)
    assert sum(watch.committed for watch in watches) > 60
    assert sum(watch.aborted for watch in watches) > 10
    assert sum(watch.generations for watch in watches) > 12
    assert sum(watch.refused for watch in watches) > 60
    assert sum(watch.elections for watch in watches) > 15
    # A worker died inside a transaction, and nobody was told how that ended.
    outcomes = {txn.outcome for watch in watches for txn in watch.txns}
    assert outcomes & {"open", "asked"}


def test_one_seed_gives_one_history_of_coordinators() -> None:
    assert play("coordinators", 5).hash == play("coordinators", 5).hash
