"""Ottla beside every release of Apache Kafka that a cluster may come from.

`tests.mixed.matrix` writes the outcomes into docs/migration.md: a test is a column, a release a
row.
"""

from pathlib import Path

import pytest
from tests.mixed.clients import Clients, assert_replicas_equal
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed
from tests.mixed.hand_over import COMPACTING, hand_over
from tests.mixed.kinds import OTTLA, RELEASES, kafka, need
from tests.mixed.levels import level
from tests.mixed.rolling import LOAD, Step, roll
from tests.mixed.settings import ONE, TWO

pytestmark = pytest.mark.jvm

releases = pytest.mark.parametrize("version", RELEASES)


def has_new_groups(version: str) -> bool:
    """Return whether clusters of a release have share groups and streams groups."""
    return level(version) >= "4.2"


def write_and_read(cluster: MixedCluster, replicas: int) -> None:
    """Write to partitions led by every broker, in and out of transactions, and read all of it."""
    clients = Clients(cluster)
    brokers = cluster.brokers
    assignment = [[*brokers[each:], *brokers[:each]] for each in range(len(brokers))]
    clients.create_at("written", assignment)
    for partition in range(len(brokers)):
        clients.write("written", [f"{partition}:{each}" for each in range(200)], partition)
    clients.transaction("good", "written", ["committed-1", "committed-2"], commit=True)
    clients.transaction("bad", "written", ["aborted"], commit=False)
    values = clients.read("written")
    assert len(values) == len(set(values)) == 200 * len(brokers) + 2 and "aborted" not in values
    for partition in range(len(brokers)):
        assert_replicas_equal(cluster, f"written-{partition}", replicas=replicas)


@releases
def test_cluster_rolls_to_ottla_and_back(version: str, tmp_path: Path) -> None:
    need(version)
    theirs = kafka(version)
    steps = [
        Step(1, OTTLA, is_kill=True),
        Step(2, OTTLA),
        Step(3, OTTLA),
        Step(2, theirs, is_kill=True),
        Step(1, theirs),
        Step(3, theirs),
    ]
    shape = Shape(release=level(version))
    with run_mixed(dict.fromkeys((1, 2, 3), theirs), tmp_path, shape) as cluster:
        outcome = roll(cluster, steps, tmp_path, load=LOAD, has_new_groups=has_new_groups(version))
        assert outcome.is_good, str(outcome)
        assert outcome.acknowledged > 1000 and outcome.seen >= outcome.acknowledged


@releases
def test_ottla_broker_serves_under_kafka_controller(version: str, tmp_path: Path) -> None:
    need(version)
    theirs = kafka(version)
    shape = Shape(roles={1: CONTROLLER, 2: BROKER, 3: BROKER}, release=level(version), config=TWO)
    with run_mixed({1: theirs, 2: theirs, 3: OTTLA}, tmp_path, shape) as cluster:
        write_and_read(cluster, 2)
        cluster.kill(3)
        Clients(cluster).write("written", ["while it was down"], 0)
        cluster.start(3)
        cluster.wait_whole()
        assert_replicas_equal(cluster, "written-0", replicas=2)


@releases
def test_kafka_broker_serves_under_ottla_controller(version: str, tmp_path: Path) -> None:
    need(version)
    theirs = kafka(version)
    shape = Shape(roles={1: CONTROLLER, 2: BROKER, 3: BROKER}, release=level(version), config=TWO)
    with run_mixed({1: OTTLA, 2: theirs, 3: OTTLA}, tmp_path, shape) as cluster:
        write_and_read(cluster, 2)
        cluster.kill(2)
        Clients(cluster).write("written", ["while it was down"], 1)
        cluster.start(2)
        cluster.wait_whole()
        assert_replicas_equal(cluster, "written-1", replicas=2)


@releases
def test_directory_changes_hands_after_clean_stops_and_kills(version: str, tmp_path: Path) -> None:
    need(version)
    theirs = kafka(version)
    shape = Shape(release=level(version), config=ONE | COMPACTING)
    with run_mixed({1: theirs}, tmp_path, shape) as cluster:
        hand_over(cluster, theirs)
