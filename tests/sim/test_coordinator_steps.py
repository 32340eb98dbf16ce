"""A fault between every two steps of transactions, rebalances and shared records, all counted."""

import pytest

from simulation.coordinator_group_steps import FAULTS as GROUP_FAULTS
from simulation.coordinator_group_steps import KINDS, RebalanceStepsScenario
from simulation.coordinator_txn_steps import FAULTS, STEPS, TransactionStepsScenario
from simulation.runner import play
from simulation.share_consumer import DELIVERIES_MAX
from simulation.share_steps import FAULTS as SHARE_FAULTS
from simulation.share_steps import ShareStepsScenario
from simulation.simulation import Simulation

# Nodes crash on purpose here, and would log it.
pytestmark = pytest.mark.usefixtures("quiet")

# The seed selects the version of transactions, and the type of group.
VERSION_2, VERSION_0 = 0, 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.replace(" ", "-"))
def test_transaction_is_atomic_with_a_fault_between_any_two_steps(fault: str) -> None:
    simulation = Simulation(VERSION_2)
    scenario = TransactionStepsScenario(simulation, [fault])
    simulation.run(scenario.run)
    assert [step for _, step in scenario.hits] == list(FAULTS[fault])
    assert set(scenario.hits.values()) == {1}
    if fault == "worker":
        # It crashed between requesting the end and the reply, which random faults seldom hit.
        assert "asked" in {txn.outcome for txn in scenario.watch.txns}
        assert {txn.must for txn in scenario.watch.txns} == {"", "commit", "abort"}


def test_version_0_transaction_is_atomic_with_a_fault_between_steps() -> None:
    simulation = Simulation(VERSION_0)
    scenario = TransactionStepsScenario(simulation, ["worker", "coordinator"], every=3)
    simulation.run(scenario.run)
    assert [step for _, step in scenario.hits] == [*STEPS[::3], *STEPS[::3]]


@pytest.mark.parametrize("seed", range(len(KINDS)), ids=KINDS)
def test_partition_has_one_reader_with_a_fault_at_any_rebalance_step(seed: int) -> None:
    simulation = Simulation(seed)
    scenario = RebalanceStepsScenario(simulation)
    simulation.run(scenario.run)
    assert set(scenario.hits) == set(scenario.cases())
    assert {fault for fault, _ in scenario.hits} == set(GROUP_FAULTS[scenario.kind])
    if scenario.kind == "streams":
        assert scenario.conversions > 3
        assert scenario.watch.standbys > 20


@pytest.mark.parametrize(
    "faults", [("worker", "leader", "leader moved"), ("coordinator", "deposed")]
)
def test_shared_record_is_finished_once_with_a_fault_at_any_step(
    faults: tuple[str, ...],
) -> None:
    simulation = Simulation(0)
    scenario = ShareStepsScenario(simulation, faults)
    simulation.run(scenario.run)
    assert list(scenario.hits) == [
        (fault, step) for fault in faults for step in SHARE_FAULTS[fault]
    ]
    shares = scenario.shares
    assert shares.accepted > 50
    assert shares.expired > 5
    assert shares.thefts > 3
    assert sum(count == DELIVERIES_MAX for count in shares.deliveries.values()) > 5


def test_same_share_seed_gives_same_journal() -> None:
    """Waiting share fetches are woken in arrival order, not in the order of object addresses."""
    assert len({play("share-steps", 0).hash for _ in range(2)}) == 1
