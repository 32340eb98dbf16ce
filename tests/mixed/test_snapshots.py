"""Snapshots of the metadata log: written by one kind, fetched, loaded and replaced by the other."""

import itertools
from pathlib import Path

import pytest
from tests.mixed.clients import Clients
from tests.mixed.cluster import MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.kinds import KAFKA, OTTLA, Kind, need
from tests.mixed.metadata import assert_images_equal, log_of, snapshots
from tests.mixed.settings import ONE

from ottla.metadata.configs import ConfigResource, ConfigResourceType

pytestmark = pytest.mark.jvm

# Kafka deletes what a snapshot replaces once a minute.
TRIMMED_S_MAX = 150.0
SNAPSHOTS_S_MAX = 60.0
RETENTION_MS = "123456"
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "1",
}


@pytest.mark.parametrize(
    ("first", "second"), [(KAFKA, OTTLA), (OTTLA, KAFKA)], ids=["kafka-first", "ottla-first"]
)
def test_snapshots_of_one_kind_are_read_by_the_other(
    first: Kind, second: Kind, tmp_path: Path
) -> None:
    need()
    shape = Shape(joiners=frozenset({2}), config=ONE | SMALL)
    with run_mixed({1: first, 2: second}, tmp_path, shape, absent=frozenset({2})) as cluster:
        made = Topics(cluster)
        made.write_snapshot()
        (oldest, *_) = snapshots(log_of(cluster, 1))
        made.wait_trimmed(oldest)
        cluster.start(2)
        made.check(2)
        assert_fetched(cluster)
        for kind, is_kill in ((second, False), (first, False), (second, True), (first, True)):
            cluster.replace(1, kind, kill=is_kill)
            made.check(1)
            made.write_snapshot()
        made.check(2)
        made.check_images(1)
        made.check_images(2)


class Topics:
    """Topics that were created so far, and must be known from then on."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._numbers = itertools.count()
        self._names: set[str] = set()

    def create(self) -> None:
        name = f"topic-{next(self._numbers)}"
        Clients(self._cluster).create_at(name, [[1]] * 3, retention_ms=RETENTION_MS)
        self._names.add(name)

    def write_snapshot(self) -> None:
        """Create topics until node 1 has written a snapshot of its own."""
        known = snapshots(log_of(self._cluster, 1))[-1:]

        def is_written() -> bool:
            self.create()
            return snapshots(log_of(self._cluster, 1))[-1:] != known

        wait_until(is_written, SNAPSHOTS_S_MAX, "a snapshot")

    def wait_trimmed(self, oldest: Path) -> None:
        """Wait until a snapshot is deleted: the log begins at a later one then."""

        def is_trimmed() -> bool:
            self.create()
            return not oldest.exists()

        wait_until(is_trimmed, TRIMMED_S_MAX, "the log begins at a snapshot")

    def check(self, node_id: int) -> None:
        """Check that a broker knows all topics."""

        def is_known() -> bool:
            reply = self._cluster.metadata(node_id)
            return reply is not None and self._names <= {str(each.name) for each in reply.topics}

        wait_until(is_known, SNAPSHOTS_S_MAX, f"all topics at node {node_id}")

    def check_images(self, node_id: int) -> None:
        """Check that both kinds make the same image of a node's newest snapshot and its log."""
        quorum = self._cluster.quorum()
        assert quorum is not None
        upto = int(quorum.topics[0].partitions[0].high_watermark)
        image = assert_images_equal(log_of(self._cluster, node_id), upto)
        assert self._names <= {topic.name for topic in image.topics.by_id.values()}
        for name in self._names:
            found = image.configs.of(ConfigResource(ConfigResourceType.TOPIC, name))
            assert found["retention.ms"] == RETENTION_MS


def assert_fetched(cluster: MixedCluster) -> None:
    """Assert that node 2 began with a snapshot of node 1, and has it to the byte."""
    log = log_of(cluster, 2)
    first = min(int(each.stem) for each in log.glob("*.log"))
    assert first > 0, "it read the log from its start, without a snapshot"
    theirs = {each.name: each.read_bytes() for each in snapshots(log_of(cluster, 1))}
    mine = {each.name: each.read_bytes() for each in snapshots(log)}
    common = theirs.keys() & mine.keys()
    assert any(theirs[each] == mine[each] for each in common), (sorted(theirs), sorted(mine))
