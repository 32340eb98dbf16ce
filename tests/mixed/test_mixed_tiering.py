"""Tiered topics (KIP-405) across the border: each kind reads and deletes what the other copied.

The metadata is on ``__remote_log_metadata``. Kafka has no remote storage of its own, so it runs
with a plugin that keeps segments in the layout of Ottla's directory store.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from tests.mixed.clients import ANSWER_S_MAX, Clients, partition_dirs, wait_leads
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.kinds import KAFKA, OTTLA, TARGET, Kind, classpath, need
from tests.mixed.settings import TWO
from tests.nemesis.watch import reassign_partition

pytestmark = pytest.mark.jvm

PLUGIN = Path(__file__).parents[1] / "conformance" / "DirectoryStorage.java"
TIER = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
    "min.insync.replicas": "1",
}
STORE = "remote.log.storage.manager.class"
TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": "1048576",
    "local_retention_bytes": "1",
    "retention_ms": "-1",
}
PADDING = "x" * 10_000


def store_of(kind: Kind, plugin: Path, tier: Path) -> dict[str, str]:
    """Return the settings of the remote storage of a broker."""
    where = {"rsm.config.directory": str(tier)}
    if not kind.is_kafka:
        return where | {f"{STORE}.name": "directory"}
    return where | {f"{STORE}.name": PLUGIN.stem, f"{STORE}.path": str(plugin)}


@pytest.fixture(params=[KAFKA, OTTLA], ids=["kafka-controls", "ottla-controls"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    need()
    plugin, tier = tmp_path / "plugin", tmp_path / "tier"
    tier.mkdir()
    compile_plugin = ["javac", "-cp", classpath(TARGET), "-d", str(plugin), str(PLUGIN)]
    subprocess.run(compile_plugin, check=True)
    kinds = {1: KAFKA, 2: OTTLA, 3: request.param}
    shape = Shape(
        roles={1: BROKER, 2: BROKER, 3: CONTROLLER},
        config=TWO | TIER,
        own={each: store_of(kind, plugin, tier) for each, kind in kinds.items()},
    )
    with run_mixed(kinds, tmp_path, shape) as running:
        yield running


def test_tiered_topic_changes_hands(cluster: MixedCluster, tmp_path: Path) -> None:
    for first, second in ((1, 2), (2, 1)):
        clients, topic = Clients(cluster), f"tiered-{first}"
        clients.create_at(topic, [[first]], **TIERED)
        written = write(clients, topic, 0)
        wait_tiered(cluster, topic, first)
        # A new replica takes over the state before its local log from remote storage.
        reassign_partition(cluster, topic, 0, [first, second])
        clients.wait_in_sync(topic)
        assert local_start(cluster, topic, second) > 0
        cluster.stop(first)
        wait_leads(cluster, topic, second)
        assert Clients(cluster).read(topic) == written
        written += write(Clients(cluster), topic, 1)
        wait_tiered(cluster, topic, second, above=local_start(cluster, topic, second))
        cluster.start(first)
        cluster.wait_whole()
        elect(Clients(cluster), topic)
        wait_leads(cluster, topic, first)
        assert Clients(cluster).read(topic) == written
    admin = Clients(cluster).admin
    for done in admin.delete_topics(["tiered-1", "tiered-2"]).values():
        done.result(ANSWER_S_MAX)
    wait_until(
        lambda: not [each for each in (tmp_path / "tier").rglob("*") if each.is_file()],
        ANSWER_S_MAX,
        "no segments of deleted topics in remote storage",
    )


def write(clients: Clients, topic: str, turn: int) -> list[str]:
    """Write some segments; return their values."""
    values = [f"{turn}:{number}:{PADDING}" for number in range(350)]
    clients.write(topic, values, batch_size=50_000)
    return values


def local_start(cluster: MixedCluster, topic: str, node_id: int) -> int:
    """Return the base offset of the first segment on a broker's disk."""
    directory = partition_dirs(cluster, f"{topic}-0")[node_id]
    return min(int(each.stem) for each in directory.glob("*.log"))


def wait_tiered(cluster: MixedCluster, topic: str, node_id: int, above: int = 0) -> None:
    """Wait until a broker has deleted segments from its disk, after they were copied."""
    wait_until(
        lambda: local_start(cluster, topic, node_id) > above,
        ANSWER_S_MAX,
        f"segments of {topic} are only in remote storage",
    )


def elect(clients: Clients, topic: str) -> None:
    """Elect the preferred leader of a topic's only partition."""
    at = [TopicPartition(topic, 0)]
    clients.admin.elect_leaders(ElectionType.PREFERRED, at).result(ANSWER_S_MAX)
