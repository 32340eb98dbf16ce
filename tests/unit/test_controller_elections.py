"""Elections: on failure, preferred, unclean, and the rebalance of leadership."""

import pytest
from controller_world import World

from ottla.controller.leader_elections import decide_elect_leaders, unclean_partitions
from ottla.controller.rebalance import decide_rebalance
from ottla.controller.unclean_recovery import LogState, leaderless_among, recoveries
from ottla.metadata.topics import LeaderRecoveryState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1


def elect(world: World, kind: int, *names: str, partitions: tuple[int, ...] = (0,)) -> list:
    """Elect as asked; every replica that is alive says that its log ends at its own id."""
    asked = [TopicPartitions(name, list(partitions)) for name in names]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    unclean = unclean_partitions(world.image, request)
    leaderless = leaderless_among(world.image, unclean, world.settings)
    answers = {b: {each.at: LogState(0, b) for each in leaderless} for b in range(10)}
    found = recoveries(leaderless, answers)
    reply = world.take(decide_elect_leaders(world.image, request, world.settings, found))
    assert reply.error_code == 0
    return [p.error_code for t in reply.replica_election_results for p in t.partition_result]


def two(unclean: bool = False) -> World:
    world = World(2)
    world.create("t", [0, 1])
    if unclean:
        world.configure(2, "t", "unclean.leader.election.enable", "true")
    return world


# -- on failure -----------------------------------------------------------------------------


def test_first_live_in_sync_replica_becomes_leader() -> None:
    world = World(4)
    world.create("t", [0, 1, 2, 3])
    world.isr(0, 2, 3)
    world.kill(0)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)


def test_fenced_follower_keeps_leader_and_leader_epoch() -> None:
    world = two()
    world.kill(1)
    partition = world.partition()
    assert (partition.leader, partition.isr) == (0, (0,))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_incomplete_replica_is_not_elected() -> None:
    world = two()
    world.isr(0)
    world.kill(0)
    assert world.partition().leader == -1
    assert world.partition().leader_epoch == 1


def test_topic_may_allow_unclean_election() -> None:
    world = two(unclean=True)
    world.isr(0)
    world.kill(0)
    assert world.partition().leader == -1, "nobody is elected before the replicas were asked"
    world.recover(b1=(0, 10))
    partition = world.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_cluster_may_allow_unclean_election() -> None:
    world = two()
    world.configure(4, "", "unclean.leader.election.enable", "true")
    world.isr(0)
    world.kill(0)
    world.recover(b1=(0, 10))
    assert world.partition().leader == 1


def test_clean_leader_is_preferred_to_an_unclean_one() -> None:
    world = World(3)
    world.create("t", [0, 1, 2], configs={"unclean.leader.election.enable": "true"})
    world.isr(0, 2)
    world.kill(0)
    partition = world.partition()
    assert partition.leader == 2
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_node_zero_can_lead() -> None:
    world = World(2)
    world.create("t", [1, 0])
    world.kill(1)
    assert world.partition().leader == 0


# -- asked for ------------------------------------------------------------------------------


def test_preferred_election_elects_the_first_replica() -> None:
    world = two()
    world.kill(0)
    world.heartbeat(0)
    assert elect(world, PREFERRED, "t") == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.isr(1, 0)
    assert elect(world, PREFERRED, "t") == [0]
    assert world.partition().leader == 0 and world.partition().leader_epoch == 2
    assert elect(world, PREFERRED, "t") == [ErrorCode.ELECTION_NOT_NEEDED]


def test_preferred_election_skips_a_fenced_first_replica() -> None:
    world = two()
    world.kill(0)
    before = world.image
    assert elect(world, PREFERRED, "t") == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert world.image == before


def test_unclean_election_elects_a_live_replica() -> None:
    world = two()
    world.isr(0)
    world.kill(0)
    assert elect(world, UNCLEAN, "t") == [0]
    partition = world.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert elect(world, UNCLEAN, "t") == [ErrorCode.ELECTION_NOT_NEEDED]


def test_unclean_election_fails_without_a_live_replica() -> None:
    world = two()
    world.kill(0)
    world.kill(1)
    assert elect(world, UNCLEAN, "t") == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_election_for_an_unknown_partition_is_rejected() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world = two()
    assert elect(world, PREFERRED, "none") == [unknown]
    assert elect(world, PREFERRED, "t", partitions=(5,)) == [unknown]


def test_repeated_partition_is_elected_once() -> None:
    world = two()
    world.isr(0)
    world.kill(0)
    assert elect(world, UNCLEAN, "t", partitions=(0, 0)) == [0, ErrorCode.ELECTION_NOT_NEEDED]


def test_unknown_election_type_is_rejected() -> None:
    world = two()
    request = ElectLeadersRequest(election_type=2, topic_partitions=None)
    decision = decide_elect_leaders(world.image, request, world.settings)
    assert decision.reply.error_code == ErrorCode.INVALID_REQUEST and not decision.records


def test_election_of_all_partitions_returns_only_those_that_needed_it() -> None:
    world = two()
    world.create("u", [1, 0])
    world.kill(0)
    world.heartbeat(0)
    world.isr(1, 0)
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    reply = world.take(decide_elect_leaders(world.image, request, world.settings))
    told = {t.topic: len(t.partition_result) for t in reply.replica_election_results}
    assert told == {"t": 1, "u": 0}
    assert world.partition("t").leader == 0


# -- the controller's own rounds ------------------------------------------------------------


def test_partition_gets_a_leader_once_its_topic_allows_unclean_election() -> None:
    world = two()
    world.isr(0)
    world.kill(0)
    world.recover(b1=(0, 10))
    assert world.partition().leader == -1
    world.configure(2, "t", "unclean.leader.election.enable", "true")
    world.recover(b1=(0, 10))
    assert world.partition().leader == 1


@pytest.fixture
def lopsided() -> World:
    """Of ten partitions that list 0 first, 1 leads one; of ten that list 1 first, itself all."""
    world = World(2)
    for i in range(10):
        world.create(f"a{i}", [0, 1])
        world.create(f"b{i}", [1, 0])
    world.kill(0)
    world.heartbeat(0)
    for i in range(10):
        world.isr(1, 0, name=f"a{i}")
        world.isr(1, 0, name=f"b{i}")
    for i in range(9):
        assert elect(world, PREFERRED, f"a{i}") == [0]
    return world


def test_rebalance_moves_leadership_back_above_the_limit(lopsided: World) -> None:
    assert decide_rebalance(lopsided.state, 10, lopsided.settings).records == []
    lopsided.take(decide_rebalance(lopsided.state, 9, lopsided.settings))
    assert lopsided.partition("a9").leader == 0
    assert not lopsided.state.index.imbalanced


def test_rebalance_does_nothing_in_a_balanced_cluster() -> None:
    world = two()
    assert decide_rebalance(world.state, 0, world.settings).records == []


def test_rebalance_skips_replicas_that_are_not_in_sync() -> None:
    world = two()
    world.kill(0)
    world.heartbeat(0)
    assert decide_rebalance(world.state, 0, world.settings).records == []
