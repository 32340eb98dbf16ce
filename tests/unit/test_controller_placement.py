"""Placement of new partitions."""

from collections import Counter

from controller_cluster import ControllerCluster
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.decision import Refusal
from ottla.controller.placement import place
from ottla.protocol.errors import ErrorCode
from simulation.random import SimRandom


def cluster_of(racks: list[str | None], fenced: set[int] | None = None) -> ControllerCluster:
    cluster = ControllerCluster()
    for broker_id, rack in enumerate(racks):
        cluster.register(broker_id, rack=rack)
        if broker_id not in (fenced or set()):
            cluster.heartbeat(broker_id)
    return cluster


def placed(
    cluster: ControllerCluster, partitions: int, factor: int, seed: int = 1
) -> list[tuple[int, ...]]:
    found = place(cluster.image, partitions, factor, SimRandom(seed))
    assert not isinstance(found, Refusal)
    assert len(found) == partitions
    return found


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    data=st.data(),
)
def test_every_placement_is_valid(racks: list, data: st.DataObject) -> None:
    count = len(racks)
    fenced = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    factor = data.draw(st.integers(1, count))
    cluster = cluster_of(racks, fenced)
    names = set(racks)
    for replicas in placed(
        cluster, data.draw(st.integers(1, 40)), factor, data.draw(st.integers())
    ):
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(range(count))
        assert replicas[0] not in fenced, "a fenced broker cannot lead"
        used = {racks[replica] for replica in replicas}
        assert len(used) == min(factor, len(names)), "as many racks as there are"


def test_leaders_and_replicas_are_spread_evenly() -> None:
    cluster = cluster_of(["a", "a", "b", "b", "c", "c"])
    found = placed(cluster, 600, 3)
    leaders = Counter(replicas[0] for replicas in found)
    all_replicas = Counter(replica for replicas in found for replica in replicas)
    assert sorted(leaders) == sorted(all_replicas) == list(range(6))
    assert max(leaders.values()) <= 1.2 * min(leaders.values())
    assert max(all_replicas.values()) <= 1.2 * min(all_replicas.values())


def test_brokers_do_not_always_share_the_same_partitions() -> None:
    found = placed(cluster_of([None] * 5), 200, 2)
    assert len(set(found)) >= 15


def test_placement_depends_only_on_the_seed() -> None:
    cluster = cluster_of([None] * 5)
    assert placed(cluster, 10, 3, seed=4) == placed(cluster, 10, 3, seed=4)
    assert len({tuple(placed(cluster, 10, 3, seed=i)) for i in range(5)}) > 1


def test_fenced_brokers_are_used_only_if_there_are_no_others() -> None:
    cluster = cluster_of([None] * 4, fenced={3})
    assert all(3 not in replicas for replicas in placed(cluster, 50, 3))
    assert all(3 in replicas for replicas in placed(cluster, 50, 4))


def test_single_live_broker_leads_everything() -> None:
    cluster = cluster_of([None] * 3, fenced={0, 2})
    assert {replicas[0] for replicas in placed(cluster, 20, 3)} == {1}


def refused(cluster: ControllerCluster, factor: int) -> ErrorCode:
    found = place(cluster.image, 1, factor, SimRandom(1))
    assert isinstance(found, Refusal)
    return found.code


def test_more_replicas_than_brokers_are_rejected() -> None:
    cluster = cluster_of([None] * 2)
    for factor in (3, 0, -2):
        assert refused(cluster, factor) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(cluster_of([None], fenced={0}), 1) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(ControllerCluster(), 1) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_broker_in_controlled_shutdown_gets_no_new_replica() -> None:
    cluster = cluster_of([None] * 3)
    cluster.create("t", [0, 1])
    cluster.heartbeat(0, want_shut_down=True)
    assert all(0 not in replicas for replicas in placed(cluster, 30, 2))
    assert refused(cluster, 3) is ErrorCode.INVALID_REPLICATION_FACTOR
