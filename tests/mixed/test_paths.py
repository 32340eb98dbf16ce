"""What brokers of both kinds do with each other: each way, in one small cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.mixed.clients import ANSWER_S_MAX, Clients, assert_replicas_equal
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.hosts import ask
from tests.mixed.kinds import KAFKA, OTTLA, Kind, need
from tests.mixed.settings import TWO
from tests.nemesis.watch import has_settled, move_replica, reassign_partition

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

pytestmark = pytest.mark.jvm

RACKS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "log.dirs": "data,data-2",
    "min.insync.replicas": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(params=[KAFKA, OTTLA], ids=["kafka-controls", "ottla-controls"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    """Two brokers, one of each kind, under a controller of either kind."""
    need()
    controller: Kind = request.param
    shape = Shape(
        roles={1: BROKER, 2: BROKER, 3: CONTROLLER},
        config=TWO | RACKS,
        own={1: {"broker.rack": "one"}, 2: {"broker.rack": "two"}, 3: {"log.dirs": "data"}},
    )
    with run_mixed({1: KAFKA, 2: OTTLA, 3: controller}, tmp_path, shape) as running:
        yield running


def test_brokers_of_both_kinds_serve_each_other(cluster: MixedCluster) -> None:
    clients = Clients(cluster)
    for leader, follower in ((1, 2), (2, 1)):
        check_truncation(cluster, clients, leader, follower)
        check_fetch_from_follower(cluster, clients, leader, follower)
        check_open_transaction(cluster, clients, leader)
        check_reassignment(cluster, clients, leader, follower)
        check_directories(cluster, clients, leader)
    cluster.wait_whole()


def check_truncation(cluster: MixedCluster, clients: Clients, leader: int, follower: int) -> None:
    """A leader that is killed with records no follower has drops them when it is back."""
    topic = f"truncated-{leader}"
    clients.create_at(topic, [[leader, follower]])
    clients.write(topic, ["first"])
    cluster.pause(follower)
    unsafe = {"enable_idempotence": False, "acks": 1}
    # Answers the fetch that the follower sent before it was paused.
    clients.write(topic, ["pending"], **unsafe)
    clients.write(topic, [f"lost-{each}" for each in range(50)], **unsafe)
    cluster.kill(leader)
    cluster.resume(follower)
    wait_until(lambda: clients.leader(topic) == follower, ANSWER_S_MAX, "a new leader")
    clients.write(topic, ["second"])
    cluster.start(leader)
    cluster.wait_whole()
    assert [each for each in clients.read(topic) if each != "pending"] == ["first", "second"]
    assert_replicas_equal(cluster, f"{topic}-0", replicas=2)


def check_fetch_from_follower(
    cluster: MixedCluster, clients: Clients, leader: int, follower: int
) -> None:
    """The leader sends a consumer to the follower in its rack, and that one serves it (KIP-392)."""
    topic = f"racks-{leader}"
    clients.create_at(topic, [[leader, follower]])
    clients.write(topic, [f"near-{each}" for each in range(100)])
    rack = {1: "one", 2: "two"}[follower]
    wait_until(
        lambda: preferred_replica(cluster, topic, leader, rack) == follower,
        ANSWER_S_MAX,
        f"broker {leader} prefers broker {follower}",
    )
    assert len(clients.read(topic, client_rack=rack)) == 100


def preferred_replica(cluster: MixedCluster, topic: str, leader: int, rack: str) -> int | None:
    reply = cluster.metadata(leader)
    ids = [] if reply is None else [each.topic_id for each in reply.topics if each.name == topic]
    if not ids:
        return None
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)
    request = FetchRequest(
        max_wait_ms=100,
        max_bytes=1024,
        session_epoch=-1,
        topics=[FetchTopic(topic, ids[0], [partition])],
        rack_id=rack,
    )
    fetched = ask(cluster.address(leader), request)
    if not isinstance(fetched, FetchResponse) or not fetched.responses:
        return None
    return int(fetched.responses[0].partitions[0].preferred_read_replica)


def check_open_transaction(cluster: MixedCluster, clients: Clients, node_id: int) -> None:
    """A transaction is committed although its coordinator or leader was restarted meanwhile."""
    topic = f"open-{node_id}"
    clients.create(topic, partitions=2, replicas=2)
    producers: list[Producer] = []
    for name in ("a", "b", "c"):  # with coordinators on both brokers
        producer = clients.producer(transactional_id=f"{topic}-{name}")
        producer.init_transactions(ANSWER_S_MAX)
        producer.begin_transaction()
        producer.produce(topic, f"{name}-before".encode(), partition=0)
        producer.flush(ANSWER_S_MAX)
        producers.append(producer)
    cluster.restart(node_id)
    cluster.wait_whole()
    assert clients.read(topic) == []
    for name, producer in zip("abc", producers, strict=True):
        producer.produce(topic, f"{name}-after".encode(), partition=1)
        producer.commit_transaction(ANSWER_S_MAX)
    expected = [f"{name}-{when}" for when in ("before", "after") for name in "abc"]
    assert sorted(clients.read(topic)) == sorted(expected)


def check_reassignment(cluster: MixedCluster, clients: Clients, source: int, target: int) -> None:
    """A partition moves from one kind of broker to the other with all its records."""
    topic = f"moved-{source}"
    clients.create_at(topic, [[source]])
    values = [f"moved-{each}" for each in range(300)]
    clients.write(topic, values)
    reassign_partition(cluster, topic, 0, [target])
    wait_until(lambda: replicas(cluster, topic, target) == [target], ANSWER_S_MAX, "the move")
    assert clients.read(topic) == values


def replicas(cluster: MixedCluster, topic: str, node_id: int) -> list[int]:
    reply = cluster.metadata(node_id)
    found = [] if reply is None else [each for each in reply.topics if each.name == topic]
    return list(found[0].partitions[0].replica_nodes) if found else []


def check_directories(cluster: MixedCluster, clients: Clients, node_id: int) -> None:
    """A replica moves between directories; the controller learns of it from either kind."""
    topic = f"jbod-{node_id}"
    clients.create_at(topic, [[node_id]])
    values = [f"jbod-{each}" for each in range(300)]
    clients.write(topic, values)
    here = [each for each in cluster.directories(node_id) if (each / f"{topic}-0").exists()]
    (there,) = set(cluster.directories(node_id)) - set(here)
    move_replica(cluster, node_id, topic, 0, str(there))
    wait_until(
        lambda: (there / f"{topic}-0").exists() and has_settled(cluster, node_id),
        ANSWER_S_MAX,
        "the move between directories",
    )
    assert clients.read(topic) == values
