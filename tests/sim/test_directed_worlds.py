"""Weak spots of replication, hit on purpose, in seeded worlds of whole nodes."""

import logging
from collections.abc import Iterator

import pytest

from simulation.cluster_directed import BelowMinimum, Joining
from simulation.world import World

SEEDS = range(4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes die on purpose here, and would say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_joins_the_isr_has_what_was_acknowledged(seed: int) -> None:
    world = World(seed)
    world.run(Joining(world).run)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_leader_below_the_minimum_showed_stays(seed: int) -> None:
    world = World(seed)
    world.run(BelowMinimum(world).run)
