"""Elections: on failure, preferred, unclean, and the rebalance of leadership."""

import pytest
from controller_cluster import ControllerCluster

from ottla.controller.elect_leaders import decide_elect_leaders, unclean_partitions
from ottla.controller.rebalance import decide_rebalance
from ottla.controller.unclean_recovery import LogState, leaderless_among, recoveries
from ottla.metadata.topics import LeaderRecoveryState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1


def elect(
    cluster: ControllerCluster, kind: int, *names: str, partitions: tuple[int, ...] = (0,)
) -> list:
    """Elect as requested; every live replica reports its own id as the end of its log."""
    asked = [TopicPartitions(name, list(partitions)) for name in names]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    unclean = unclean_partitions(cluster.image, request)
    leaderless = leaderless_among(cluster.image, unclean, cluster.settings)
    answers = {b: {each.at: LogState(0, b) for each in leaderless} for b in range(10)}
    found = recoveries(leaderless, answers)
    reply = cluster.take(decide_elect_leaders(cluster.image, request, cluster.settings, found))
    assert reply.error_code == 0
    return [p.error_code for t in reply.replica_election_results for p in t.partition_result]


def two(unclean: bool = False) -> ControllerCluster:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    if unclean:
        cluster.configure(2, "t", "unclean.leader.election.enable", "true")
    return cluster


# -- on failure -----------------------------------------------------------------------------


def test_first_live_in_sync_replica_becomes_leader() -> None:
    cluster = ControllerCluster(4)
    cluster.create("t", [0, 1, 2, 3])
    cluster.isr(0, 2, 3)
    cluster.kill(0)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)


def test_fenced_follower_keeps_leader_and_leader_epoch() -> None:
    cluster = two()
    cluster.kill(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (0, (0,))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_incomplete_replica_is_not_elected() -> None:
    cluster = two()
    cluster.isr(0)
    cluster.kill(0)
    assert cluster.partition().leader == -1
    assert cluster.partition().leader_epoch == 1


def test_topic_may_allow_unclean_election() -> None:
    cluster = two(unclean=True)
    cluster.isr(0)
    cluster.kill(0)
    assert cluster.partition().leader == -1, "nobody is elected before the replicas were asked"
    cluster.recover(b1=(0, 10))
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_cluster_may_allow_unclean_election() -> None:
    cluster = two()
    cluster.configure(4, "", "unclean.leader.election.enable", "true")
    cluster.isr(0)
    cluster.kill(0)
    cluster.recover(b1=(0, 10))
    assert cluster.partition().leader == 1


def test_clean_leader_is_preferred_to_an_unclean_one() -> None:
    cluster = ControllerCluster(3)
    cluster.create("t", [0, 1, 2], configs={"unclean.leader.election.enable": "true"})
    cluster.isr(0, 2)
    cluster.kill(0)
    partition = cluster.partition()
    assert partition.leader == 2
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_node_zero_can_lead() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [1, 0])
    cluster.kill(1)
    assert cluster.partition().leader == 0


# -- requested ------------------------------------------------------------------------------


def test_preferred_election_elects_the_first_replica() -> None:
    cluster = two()
    cluster.kill(0)
    cluster.heartbeat(0)
    assert elect(cluster, PREFERRED, "t") == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.isr(1, 0)
    assert elect(cluster, PREFERRED, "t") == [0]
    assert cluster.partition().leader == 0 and cluster.partition().leader_epoch == 2
    assert elect(cluster, PREFERRED, "t") == [ErrorCode.ELECTION_NOT_NEEDED]


def test_preferred_election_skips_a_fenced_first_replica() -> None:
    cluster = two()
    cluster.kill(0)
    before = cluster.image
    assert elect(cluster, PREFERRED, "t") == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert cluster.image == before


def test_unclean_election_elects_a_live_replica() -> None:
    cluster = two()
    cluster.isr(0)
    cluster.kill(0)
    assert elect(cluster, UNCLEAN, "t") == [0]
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert elect(cluster, UNCLEAN, "t") == [ErrorCode.ELECTION_NOT_NEEDED]


def test_unclean_election_fails_without_a_live_replica() -> None:
    cluster = two()
    cluster.kill(0)
    cluster.kill(1)
    assert elect(cluster, UNCLEAN, "t") == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_election_for_an_unknown_partition_is_rejected() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster = two()
    assert elect(cluster, PREFERRED, "none") == [unknown]
    assert elect(cluster, PREFERRED, "t", partitions=(5,)) == [unknown]


@pytest.mark.parametrize(
    ("name", "partition_id", "text"),
    [
        ("none", 0, "No such topic as none"),
        ("t", 5, "No such partition as t-5"),
        ("t", 0, "The preferred leader was not available."),
    ],
)
def test_rejected_election_is_explained_in_kafkas_words(
    name: str, partition_id: int, text: str
) -> None:
    cluster = two()
    cluster.kill(0)
    request = ElectLeadersRequest(
        election_type=PREFERRED, topic_partitions=[TopicPartitions(name, [partition_id])]
    )
    decision = decide_elect_leaders(cluster.image, request, cluster.settings, recoveries((), {}))
    (result,) = cluster.take(decision).replica_election_results[0].partition_result
    assert result.error_message == text


def test_repeated_partition_is_elected_once() -> None:
    cluster = two()
    cluster.isr(0)
    cluster.kill(0)
    assert elect(cluster, UNCLEAN, "t", partitions=(0, 0)) == [0, ErrorCode.ELECTION_NOT_NEEDED]


def test_unknown_election_type_is_rejected() -> None:
    cluster = two()
    request = ElectLeadersRequest(election_type=2, topic_partitions=None)
    decision = decide_elect_leaders(cluster.image, request, cluster.settings)
    assert decision.reply.error_code == ErrorCode.INVALID_REQUEST and not decision.records


def test_election_of_all_partitions_returns_only_those_that_needed_it() -> None:
    cluster = two()
    cluster.create("u", [1, 0])
    cluster.kill(0)
    cluster.heartbeat(0)
    cluster.isr(1, 0)
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    reply = cluster.take(decide_elect_leaders(cluster.image, request, cluster.settings))
    replies = {t.topic: len(t.partition_result) for t in reply.replica_election_results}
    assert replies == {"t": 1, "u": 0}
    assert cluster.partition("t").leader == 0


# -- periodic -------------------------------------------------------------------------------


def test_partition_gets_a_leader_once_its_topic_allows_unclean_election() -> None:
    cluster = two()
    cluster.isr(0)
    cluster.kill(0)
    cluster.recover(b1=(0, 10))
    assert cluster.partition().leader == -1
    cluster.configure(2, "t", "unclean.leader.election.enable", "true")
    cluster.recover(b1=(0, 10))
    assert cluster.partition().leader == 1


@pytest.fixture
def imbalanced_cluster() -> ControllerCluster:
    """Return ten partitions that prefer 0, one led by 1, and ten that prefer 1, led by 1."""
    cluster = ControllerCluster(2)
    for i in range(10):
        cluster.create(f"a{i}", [0, 1])
        cluster.create(f"b{i}", [1, 0])
    cluster.kill(0)
    cluster.heartbeat(0)
    for i in range(10):
        cluster.isr(1, 0, name=f"a{i}")
        cluster.isr(1, 0, name=f"b{i}")
    for i in range(9):
        assert elect(cluster, PREFERRED, f"a{i}") == [0]
    return cluster


def test_rebalance_moves_leadership_back_above_the_limit(
    imbalanced_cluster: ControllerCluster,
) -> None:
    assert decide_rebalance(imbalanced_cluster.state, 10, imbalanced_cluster.settings).records == []
    imbalanced_cluster.take(
        decide_rebalance(imbalanced_cluster.state, 9, imbalanced_cluster.settings)
    )
    assert imbalanced_cluster.partition("a9").leader == 0
    assert not imbalanced_cluster.state.index.imbalanced


def test_rebalance_does_nothing_in_a_balanced_cluster() -> None:
    cluster = two()
    assert decide_rebalance(cluster.state, 0, cluster.settings).records == []


def test_rebalance_skips_replicas_that_are_not_in_sync() -> None:
    cluster = two()
    cluster.kill(0)
    cluster.heartbeat(0)
    assert decide_rebalance(cluster.state, 0, cluster.settings).records == []
