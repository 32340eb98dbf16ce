"""Whether a broker may be restarted without making partitions unavailable."""

from controller_cluster import ControllerCluster

from ottla.node.broker.settled import is_settled


def test_broker_is_settled_once_its_replicas_are_in_sync() -> None:
    cluster = ControllerCluster(3)
    cluster.create("t", [0, 1, 2])
    assert all(is_settled(cluster.image, each) for each in range(3))
    cluster.kill(1)
    assert not is_settled(cluster.image, 1), "it is fenced"
    assert is_settled(cluster.image, 0), "others of its partitions are in sync"
    cluster.start(1, number=1)
    assert not is_settled(cluster.image, 1), "it has not caught up"
    cluster.isr(0, 1, 2)
    assert is_settled(cluster.image, 1)


def test_last_replica_in_sync_of_several_is_not_settled() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    cluster.kill(1)
    assert not is_settled(cluster.image, 0)


def test_single_replicas_and_partitions_without_a_leader_do_not_count() -> None:
    cluster = ControllerCluster(2)
    cluster.create("single", [0])
    assert is_settled(cluster.image, 0)
    cluster.create("t", [0, 1])
    cluster.kill(0)
    cluster.kill(1)
    cluster.start(0, number=1)
    assert cluster.partition("t").leader == -1
    assert is_settled(cluster.image, 0)


def test_unknown_broker_is_not_settled() -> None:
    assert not is_settled(ControllerCluster(1).image, 5)
