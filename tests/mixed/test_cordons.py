"""Cordoned log directories across the border: set on one kind, obeyed by the other (KIP-1066)."""

from pathlib import Path

import pytest
from tests.mixed.clients import Clients
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.hosts import ask
from tests.mixed.kinds import OTTLA, Kind, kafka, need
from tests.mixed.levels import NEWEST
from tests.mixed.settings import ONE

from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

pytestmark = pytest.mark.jvm

RELEASE = "4.3.1"
APPLIED_S_MAX = 60.0
CONFIGS = "kafka.admin.ConfigCommand"


def cordon(cluster: MixedCluster, node_id: int, value: str) -> None:
    """Set the cordons of a broker with Kafka's tool, and wait until it has them."""
    change = ("--add-config", f"cordoned.log.dirs={value}")
    if not value:
        change = ("--delete-config", "cordoned.log.dirs")
    where = ("--bootstrap-server", cluster.nodes[node_id].address)
    entity = ("--entity-type", "brokers", "--entity-name", str(node_id))
    cluster.tool(CONFIGS, *where, *entity, "--alter", *change, version=RELEASE)
    wait_until(lambda: is_cordoned(cluster, node_id) is bool(value), APPLIED_S_MAX, "the cordon")


def is_cordoned(cluster: MixedCluster, node_id: int) -> bool | None:
    reply = ask(cluster.nodes[node_id].address, DescribeLogDirsRequest(topics=None))
    if not isinstance(reply, DescribeLogDirsResponse):
        return None
    return reply.results[0].is_cordoned


def brokers_of(cluster: MixedCluster, topic: str) -> set[int]:
    reply = cluster.metadata(cluster.brokers[0])
    assert reply is not None
    found = next(each for each in reply.topics if each.name == topic)
    return {int(replica) for each in found.partitions for replica in each.replica_nodes}


@pytest.mark.parametrize("is_kafka_controller", [True, False], ids=["kafka", "ottla"])
def test_cordoned_broker_of_the_other_kind_gets_no_new_partitions(
    is_kafka_controller: bool, tmp_path: Path
) -> None:
    need(RELEASE)
    theirs = kafka(RELEASE)
    controller: Kind = theirs if is_kafka_controller else OTTLA
    broker: Kind = OTTLA if is_kafka_controller else theirs
    shape = Shape(roles={1: CONTROLLER, 2: BROKER, 3: BROKER}, release=NEWEST, config=ONE)
    with run_mixed({1: controller, 2: broker, 3: broker}, tmp_path, shape) as cluster:
        clients = Clients(cluster)
        cordon(cluster, 3, "*")
        # The controller learns of it from a heartbeat.
        numbers = iter(range(100))

        def placed() -> set[int]:
            topic = f"topic-{next(numbers)}"
            clients.create(topic, partitions=6, replicas=1)
            return brokers_of(cluster, topic)

        wait_until(lambda: placed() == {2}, APPLIED_S_MAX, "placement without broker 3")
        cluster.stop(3)
        cluster.start(3)
        assert is_cordoned(cluster, 3)
        wait_until(lambda: placed() == {2}, APPLIED_S_MAX, "the same after a restart")
        cordon(cluster, 3, "")
        wait_until(lambda: placed() == {2, 3}, APPLIED_S_MAX, "placement with broker 3")
