"""Feature levels across the border: what a node does not support, it refuses with a reason."""

import re
from pathlib import Path

import pytest
from tests.mixed.clients import Clients
from tests.mixed.cluster import BROKER, Shape, run_mixed, wait_until
from tests.mixed.kinds import OTTLA, kafka, need
from tests.mixed.levels import NEWEST
from tests.mixed.settings import ONE

pytestmark = pytest.mark.jvm

EXIT_S_MAX = 60.0
FEATURES = "org.apache.kafka.tools.FeatureCommand"


def test_ottla_names_the_level_of_a_newer_cluster_and_exits(tmp_path: Path) -> None:
    need("4.3.1")
    # A level that no release has finished.
    unstable = {"unstable.feature.versions.enable": "true"}
    shape = Shape(roles={2: BROKER}, config=ONE | unstable, release="4.4-IV0")
    kinds = {1: kafka("4.3.1"), 2: kafka("4.3.1")}
    with run_mixed(kinds, tmp_path, shape, absent=frozenset({2})) as cluster:
        cluster.hosts[2].kind = OTTLA
        cluster.begin(2)
        wait_until(lambda: not cluster.hosts[2].is_alive, EXIT_S_MAX, "the broker's exit")
        line = cluster.output(2).splitlines()[-1]
        assert "metadata.version" in line and "30" in line, line


def test_ottla_controller_says_why_an_older_broker_may_not_join(tmp_path: Path) -> None:
    need("4.0.2")
    # At 4.3-IV0 it could not even read the log, which has a newer RegisterBrokerRecord.
    shape = Shape(roles={2: BROKER}, config=ONE, release="4.2-IV1")
    with run_mixed({1: OTTLA, 2: OTTLA}, tmp_path, shape, absent=frozenset({2})) as cluster:
        cluster.hosts[2].kind = kafka("4.0.2")
        cluster.begin(2)
        reason = "metadata.version is finalized at 29, the broker supports 7 to 25"
        wait_until(lambda: reason in cluster.output(1), EXIT_S_MAX, "the reason")


def test_level_rises_once_the_last_old_node_is_gone(tmp_path: Path) -> None:
    need("4.0.2")
    shape = Shape(roles={2: BROKER}, config=ONE, release="4.0-IV3")
    with run_mixed({1: OTTLA, 2: kafka("4.0.2")}, tmp_path, shape) as cluster:
        where = ("--bootstrap-server", cluster.bootstrap)
        upgrade = ("upgrade", "--metadata", NEWEST)
        with pytest.raises(AssertionError, match="Broker 2 only supports versions 7-25"):
            cluster.tool(FEATURES, *where, *upgrade)
        cluster.replace(2, OTTLA)
        cluster.tool(FEATURES, *where, *upgrade)
        assert NEWEST in cluster.tool(FEATURES, *where, "describe")
        Clients(cluster).create("after", replicas=1)


def test_cluster_that_kafka_formatted_by_default_takes_ottla_nodes_and_leaders(
    tmp_path: Path,
) -> None:
    need("4.3.1")
    theirs = kafka("4.3.1")
    with run_mixed({1: theirs, 2: theirs, 3: theirs}, tmp_path) as cluster:
        where = ("--bootstrap-server", cluster.bootstrap)
        described = cluster.tool(FEATURES, *where, "describe", version="4.3.1")
        assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", described)
        clients = Clients(cluster)
        clients.create("before")
        clients.write("before", ["a", "b"])
        for node_id in (1, 2):
            cluster.replace(node_id, OTTLA)
            cluster.wait_whole()
        cluster.kill(3)
        leader = cluster.wait_leader(other_than=3)
        assert cluster.kinds[leader] is OTTLA
        cluster.start(3)
        cluster.wait_whole()
        clients.create("under-ottla", partitions=3)
        clients.write("before", ["c"])
        assert sorted(clients.read("before")) == ["a", "b", "c"]
        # The log that Ottla wrote is read by a controller of Kafka.
        cluster.kill(leader)
        other = cluster.wait_leader(other_than=leader)
        cluster.start(leader)
        cluster.wait_whole()
        cluster.replace(1 if other != 1 else 2, theirs)
        cluster.wait_whole()
        clients.create("after", partitions=3)
