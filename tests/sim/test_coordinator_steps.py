"""A blow between every two steps of transactions, rebalances and shared records, all counted."""

import logging
from collections.abc import Iterator

import pytest

from simulation.coordinator_group_steps import BLOWS as GROUP_BLOWS
from simulation.coordinator_group_steps import KINDS, RebalanceSteps
from simulation.coordinator_txn_steps import BLOWS, STEPS, TransactionSteps
from simulation.runner import play
from simulation.share_consumer import DELIVERIES_MAX
from simulation.share_steps import BLOWS as SHARE_BLOWS
from simulation.share_steps import ShareSteps
from simulation.world import World

# The seed says the version of transactions, and the kind of group.
VERSION_2, VERSION_0 = 0, 1


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes die on purpose here, and would say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("blow", BLOWS, ids=lambda blow: blow.replace(" ", "-"))
def test_b1_a_transaction_is_whole_whoever_dies_between_two_steps(blow: str) -> None:
    world = World(VERSION_2)
    torment = TransactionSteps(world, [blow])
    world.run(torment.run)
    assert [step for _, step in torment.hits] == list(BLOWS[blow])
    assert set(torment.hits.values()) == {1}
    if blow == "worker":
        # It died between asking for the end and hearing of it, which chance seldom hits.
        assert "asked" in {txn.outcome for txn in torment.watch.txns}
        assert {txn.must for txn in torment.watch.txns} == {"", "commit", "abort"}


def test_so_is_one_of_an_older_client() -> None:
    world = World(VERSION_0)
    torment = TransactionSteps(world, ["worker", "coordinator"], every=3)
    world.run(torment.run)
    assert [step for _, step in torment.hits] == [*STEPS[::3], *STEPS[::3]]


@pytest.mark.parametrize("seed", range(len(KINDS)), ids=KINDS)
def test_b13_a_partition_has_one_reader_whoever_dies_in_a_rebalance(seed: int) -> None:
    world = World(seed)
    torment = RebalanceSteps(world)
    world.run(torment.run)
    assert set(torment.hits) == set(torment.cases())
    assert {blow for blow, _ in torment.hits} == set(GROUP_BLOWS[torment.kind])
    if torment.kind == "streams":
        assert torment.conversions > 3
        assert torment.watch.standbys > 20


@pytest.mark.parametrize(
    "blows", [("worker", "leader", "leader moved"), ("coordinator", "deposed")]
)
def test_b18_a_shared_record_is_finished_once_whoever_dies_on_its_way(
    blows: tuple[str, ...],
) -> None:
    world = World(0)
    torment = ShareSteps(world, blows)
    world.run(torment.run)
    assert list(torment.hits) == [(blow, step) for blow in blows for step in SHARE_BLOWS[blow]]
    shares = torment.shares
    assert shares.accepted > 50
    assert shares.expired > 5
    assert shares.thefts > 3
    assert sum(count == DELIVERIES_MAX for count in shares.deliveries.values()) > 5


def test_one_seed_gives_one_history_of_shared_records() -> None:
    """Who waits for records is woken in the order of coming, not of where its object lies."""
    assert len({play("share-steps", 0).hash for _ in range(3)}) == 1
