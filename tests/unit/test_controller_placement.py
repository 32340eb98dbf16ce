"""Placement of new partitions."""

from collections import Counter

from controller_cluster import ControllerCluster
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision import Refusal
from ottla.controller.decision_settings import settings_of
from ottla.controller.placement import place
from ottla.controller.topic_creation import decide_create_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_registration import Listener
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from simulation.random import SimRandom


def cluster_of(
    racks: list[str | None], fenced: set[int] | None = None, hosts: list[str] | None = None
) -> ControllerCluster:
    cluster = ControllerCluster()
    for broker_id, rack in enumerate(racks):
        listeners = [] if hosts is None else [Listener("PLAINTEXT", hosts[broker_id], 9092, 0)]
        cluster.register(broker_id, rack=rack, listeners=listeners)
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


@given(
    where=st.lists(
        st.sampled_from(["a/1", "a/2", "a/3", "b/4", "b/5", "/6", "/7"]), min_size=1, max_size=9
    ),
    data=st.data(),
)
def test_replicas_share_a_host_only_if_no_other_has_room(
    where: list[str], data: st.DataObject
) -> None:
    """Hosts are within racks. The leader's turn and fenced brokers are part of the search."""
    count = len(where)
    racks = [each.partition("/")[0] or None for each in where]
    fenced = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    factor = data.draw(st.integers(1, count))
    cluster = cluster_of(racks, fenced, where)
    for replicas in placed(cluster, 20, factor, data.draw(st.integers())):
        assert len(replicas) == len(set(replicas)) == factor
        assert len({racks[each] for each in replicas}) == min(factor, len(set(racks)))
        used = Counter(where[each] for each in replicas)
        spare = {where[each] for each in range(count) if each not in {*replicas, *fenced}}
        assert all(used[host] >= max(used.values()) - 1 for host in spare)


def test_replicas_are_spread_over_hosts_and_their_brokers() -> None:
    hosts = ["h1", "h1", "h1", "h2", "h2", "h2"]
    found = placed(cluster_of([None] * 6, hosts=hosts), 600, 2)
    assert all({hosts[each] for each in replicas} == {"h1", "h2"} for replicas in found)
    leaders = Counter(replicas[0] for replicas in found)
    all_replicas = Counter(replica for replicas in found for replica in replicas)
    assert sorted(leaders) == sorted(all_replicas) == list(range(6))
    assert max(leaders.values()) <= 1.2 * min(leaders.values())
    assert max(all_replicas.values()) <= 1.2 * min(all_replicas.values())


def test_few_partitions_are_spread_over_the_brokers_of_a_host() -> None:
    cluster = cluster_of([None] * 6, hosts=["h1", "h1", "h1", "h2", "h2", "h2"])
    for seed in range(20):
        found = placed(cluster, 6, 2, seed)
        assert Counter(each for replicas in found for each in replicas) == dict.fromkeys(
            range(6), 2
        )


def test_host_without_a_replica_comes_before_a_second_one_in_the_next_rack() -> None:
    """Striping alone would continue in rack a, whose only host has a replica already."""
    hosts = ["h1", "h1", "h2", "h3"]
    for replicas in placed(cluster_of(["a", "a", "b", "b"], hosts=hosts), 50, 3):
        assert {hosts[each] for each in replicas} == {"h1", "h2", "h3"}


def test_one_host_and_a_host_for_each_broker_place_like_no_hosts() -> None:
    racks = ["a", "a", "b", None, "b"]
    plain = placed(cluster_of(racks), 40, 3)
    assert placed(cluster_of(racks, hosts=["h"] * 5), 40, 3) == plain
    assert placed(cluster_of(racks, hosts=list("vwxyz")), 40, 3) == plain


def test_host_is_that_of_the_inter_broker_listener() -> None:
    cluster = ControllerCluster()
    for broker_id, host in enumerate(["h1", "H1.", "h2"]):
        outside = Listener("EXTERNAL", "proxy", 9000 + broker_id, 0)
        cluster.start(broker_id, listeners=[outside, Listener("INTERNAL", host, 9092, 0)])
    found = place(cluster.image, 30, 2, SimRandom(1), "INTERNAL")
    assert not isinstance(found, Refusal)
    assert all(2 in replicas for replicas in found)
    by_first = place(cluster.image, 30, 2, SimRandom(1))
    assert not isinstance(by_first, Refusal)
    assert not all(2 in replicas for replicas in by_first)


def test_created_topic_is_spread_over_hosts() -> None:
    settings = settings_of(ConfigContext(node_id=100))
    assert settings.inter_broker_listener == "PLAINTEXT"
    cluster = ControllerCluster()
    cluster.settings = settings
    for broker_id, host in enumerate(["h1", "h1", "h2"]):
        outside = Listener("EXTERNAL", "proxy", 9000 + broker_id, 0)
        cluster.start(broker_id, listeners=[outside, Listener("PLAINTEXT", host, 9092, 0)])
    asked = CreateTopicsRequest([CreatableTopic("t", num_partitions=20, replication_factor=2)])
    cluster.take(decide_create_topics(cluster.state, asked, cluster.topics))
    assert all(2 in each.replicas for each in cluster.topic("t").partitions.values())
