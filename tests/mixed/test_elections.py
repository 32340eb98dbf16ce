"""Leaders that are elected although replicas were lost: brokers of both kinds, either controller.

The last replicas in sync of a partition are stopped or killed, one after the other, and come back
in the same order: the broker that comes back first misses what the other one wrote since.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mixed.clients import (
    ANSWER_S_MAX,
    Clients,
    assert_replicas_equal,
    leader_at,
    wait_leads,
)
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.kinds import KAFKA, OTTLA, Kind, need
from tests.mixed.settings import TWO

pytestmark = pytest.mark.jvm

FIRST = [f"first-{each}" for each in range(20)]
MORE = [f"more-{each}" for each in range(20)]


@pytest.fixture(params=[KAFKA, OTTLA], ids=["kafka-controls", "ottla-controls"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    """Two brokers, one of each kind, under a controller of either kind."""
    need()
    controller: Kind = request.param
    shape = Shape(roles={1: BROKER, 2: BROKER, 3: CONTROLLER}, config=TWO)
    with run_mixed({1: KAFKA, 2: OTTLA, 3: controller}, tmp_path, shape) as running:
        yield running


def test_incomplete_replica_leads_only_where_the_topic_permits_it(cluster: MixedCluster) -> None:
    clients = Clients(cluster)
    for ahead, behind in ((1, 2), (2, 1)):
        unclean, clean = f"unclean-{ahead}", f"clean-{ahead}"
        for topic, is_permitted in ((unclean, "true"), (clean, "false")):
            clients.create_at(
                topic, [[ahead, behind]], min_insync_replicas="1",
                unclean_leader_election_enable=is_permitted,
            )  # fmt: skip
            clients.write(topic, FIRST)
        cluster.kill(behind)
        for topic in (unclean, clean):
            wait_in_sync(cluster, topic, ahead, {ahead})
            clients.write(topic, MORE)
        cluster.kill(ahead)
        cluster.start(behind)
        wait_leads(cluster, unclean, behind)
        assert leader_at(cluster, clean, behind) == -1
        Clients(cluster).write(unclean, ["after"])
        cluster.start(ahead)
        cluster.wait_whole()
        assert Clients(cluster).read(unclean) == [*FIRST, "after"]
        assert Clients(cluster).read(clean) == FIRST + MORE
        for topic in (unclean, clean):
            assert_replicas_equal(cluster, f"{topic}-0", replicas=2)


def test_eligible_replica_leads_although_the_other_kind_took_over(cluster: MixedCluster) -> None:
    """A replica below min.insync.replicas stays eligible if its broker was stopped (KIP-966).

    Its directories are taken over by the other kind: that one tells the controller that the last
    run ended well, so nothing that was acknowledged can be missing.
    """
    for stopped, killed in ((1, 2), (2, 1)):
        clients, topic = Clients(cluster), f"eligible-{stopped}"
        clients.create_at(topic, [[killed, stopped]], min_insync_replicas="2")
        clients.write(topic, FIRST)
        before = cluster.kinds[stopped]
        cluster.stop(stopped)
        wait_in_sync(cluster, topic, killed, {killed})
        cluster.kill(killed)
        cluster.hosts[stopped].kind = OTTLA if before.is_kafka else KAFKA
        cluster.start(stopped)
        wait_leads(cluster, topic, stopped)
        cluster.start(killed)
        cluster.wait_whole()
        cluster.replace(stopped, before)
        cluster.wait_whole()
        assert Clients(cluster).read(topic) == FIRST
        assert_replicas_equal(cluster, f"{topic}-0", replicas=2)


def wait_in_sync(cluster: MixedCluster, topic: str, asked: int, wanted: set[int]) -> None:
    def found() -> bool:
        reply = cluster.metadata(asked)
        topics = [] if reply is None else [each for each in reply.topics if each.name == topic]
        return bool(topics) and set(topics[0].partitions[0].isr_nodes) == wanted

    wait_until(found, ANSWER_S_MAX, f"{topic} with {wanted} in sync")
