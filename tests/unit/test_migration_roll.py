"""The rules of ``ottla migrate plan`` and ``status``."""

import pytest

from ottla.cli.migration.cluster_facts import ClusterFacts, NodeFacts, PartitionFacts, Software
from ottla.cli.migration.gathering import metadata_lags
from ottla.cli.migration.roll_plan import order, plan
from ottla.cli.migration.roll_status import METADATA_LAG_MAX, decide
from ottla.cli.migration.software import OWN_KEYS, software_of
from ottla.client.admin import ConfigSource
from ottla.protocol.messages.describe_quorum import ReplicaState, ResponsePartitionData
from ottla.protocol.types import TopicPartition

STATIC, DEFAULT = int(ConfigSource.STATIC_BROKER_CONFIG), int(ConfigSource.DEFAULT_CONFIG)


def node(number: int, **changes: object) -> NodeFacts:
    return NodeFacts(node_id=number, metadata_lag=0, **changes)  # type: ignore[arg-type]


NODES = [
    node(1, is_voter=True, is_active_controller=True),
    node(2, is_voter=True),
    node(3, is_broker=False),
    node(4),
    node(5, is_broker=False, is_voter=True),
]


def test_brokers_are_replaced_first_and_the_active_controller_last() -> None:
    assert [each.node_id for each in order(NODES)] == [4, 3, 2, 5, 1]


def test_plan_leaves_out_nodes_that_are_replaced_and_knows_the_way_back() -> None:
    nodes = [
        node(1, is_voter=True, software=Software.OTTLA),
        node(2, is_voter=True, software=Software.KAFKA),
    ]
    facts = ClusterFacts(cluster_id="c", nodes=nodes)
    (there,) = plan(facts, "broker:9092")
    (back,) = plan(facts, "broker:9092", is_back=True)
    assert (there.node_id, back.node_id) == (2, 1)
    assert "ottla server server.properties" in there.commands
    assert there.undo == back.commands and back.undo == there.commands
    assert there.commands[-1] == "ottla migrate status -b broker:9092 --wait"


def facts(**changes: object) -> ClusterFacts:
    fields: dict[str, object] = {
        "cluster_id": "c",
        "nodes": [node(n, is_voter=True) for n in (1, 2, 3)],
        "partitions": [PartitionFacts(TopicPartition("t", 0), 1, (1, 2, 3), (3, 2, 1), 2)],
    }
    return ClusterFacts(**{**fields, **changes})  # type: ignore[arg-type]


def test_cluster_with_everything_in_sync_is_safe() -> None:
    assert decide(facts(), 3).is_safe


def test_topic_with_fewer_replicas_than_min_insync_replicas_does_not_stop_the_roll() -> None:
    single = PartitionFacts(TopicPartition("single", 0), 1, (1,), (1,), 2)
    decision = decide(facts(partitions=[single]), 3)
    assert (decision.is_safe, decision.under_min_isr) == (True, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"partitions": [PartitionFacts(TopicPartition("t", 0), 1, (1, 2), (1,))]}, "t-0"),
        (
            {"partitions": [PartitionFacts(TopicPartition("t", 0), -1, (1, 2), (2,))]},
            "without a leader",
        ),
        (
            {"partitions": [PartitionFacts(TopicPartition("t", 0), 1, (1, 2), (1,), 2)]},
            "min.insync",
        ),
        ({"reassignments": [TopicPartition("t", 0)]}, "reassigned"),
        ({"has_quorum_leader": False}, "active controller"),
        ({"nodes": [node(1), node(2)]}, "2 of 3"),
        ({"nodes": [node(1), node(2, is_fenced=True), node(3)]}, "node 2 is fenced"),
        ({"nodes": [node(1), node(2, problem="gone"), node(3)]}, "node 2 does not answer"),
        (
            {"nodes": [node(1), node(2), NodeFacts(node_id=3, is_voter=True)]},
            "voter 3 has not fetched",
        ),
        (
            {
                "nodes": [
                    node(1),
                    node(2),
                    NodeFacts(node_id=3, is_voter=True, metadata_lag=METADATA_LAG_MAX + 1),
                ]
            },
            "voter 3 lags",
        ),
    ],
)
def test_cluster_is_not_safe_to_go_on_and_says_why(changes: dict[str, object], reason: str) -> None:
    decision = decide(facts(**changes), 3)
    assert not decision.is_safe
    assert any(reason in each for each in decision.reasons), decision.reasons


def test_lag_counts_records_and_leaves_out_voters_that_went_silent() -> None:
    state = ResponsePartitionData(
        leader_id=1,
        current_voters=[
            ReplicaState(replica_id=1, log_end_offset=100, last_fetch_timestamp=50_000),
            ReplicaState(replica_id=2, log_end_offset=90, last_fetch_timestamp=49_900),
            ReplicaState(replica_id=3, log_end_offset=100, last_fetch_timestamp=10_000),
        ],
        observers=[ReplicaState(replica_id=4, log_end_offset=100, last_fetch_timestamp=-1)],
    )
    assert metadata_lags(state) == {1: 0, 2: 10, 4: 0}


def test_software_is_recognised_by_defaults_of_own_keys_and_not_by_keys_in_the_file() -> None:
    assert len(OWN_KEYS) > 5
    assert software_of([(OWN_KEYS[0], STATIC), (OWN_KEYS[1], DEFAULT)]) is Software.OTTLA
    assert software_of([(OWN_KEYS[0], STATIC)]) is Software.KAFKA
    assert software_of([]) is Software.KAFKA
