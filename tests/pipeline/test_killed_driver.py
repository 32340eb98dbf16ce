"""A driver is killed with all of its processes: another one resumes its streams without a loss."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killed_driver_process import copy_stream
from source_cluster import SourceCluster, wait_until
from source_table import Table

from ottla.testing import Cluster

START_S = 180.0
"""A driver starts slowly on a busy machine."""


class Killed:
    """Two streams in one driver, which is killed while both are under way."""

    def __init__(self, cluster: SourceCluster, root: Path) -> None:
        self.cluster = cluster
        self.root = root
        self.source, self.copied = cluster.create("source"), cluster.create("copied")
        self.numbers = cluster.create("numbers", 2)
        cluster.produce(self.source, [f"{each:0100}" for each in range(2000)])
        cluster.produce(self.numbers, range(400), 0)
        cluster.produce(self.numbers, range(400, 600), 1)
        streams = {
            "source": self.earliest(self.source, maxBytesPerPartition=60_000),
            "sink": cluster.options(topic=self.copied, delivery="exactly-once"),
            "table": self.earliest(self.numbers, maxOffsetsPerTrigger=4),
        }
        for option in ("fetchOffset.retryIntervalMs", "kafka.default.api.timeout.ms"):
            del streams["sink"][option]  # of the source
        (root / "streams.json").write_text(json.dumps(streams))
        self.batches = 0

    def earliest(self, topic: str, **options: object) -> dict[str, str]:
        return self.cluster.options(subscribe=topic, startingOffsets="earliest", **options)

    def _is_under_way(self) -> bool:
        planned = list((self.root / "checkpoint" / "offsets").glob("[0-9]*"))
        self.batches = len(planned)
        return self.batches >= 3 and len(self.cluster.values(subscribe=self.copied)) > 0

    def run(self) -> None:
        """Start the driver and kill it: Python, Java and all workers at once."""
        script = Path(__file__).with_name("killed_driver_process.py")
        output = self.root / "driver.log"
        with output.open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, str(script), str(self.root)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(
                lambda: self._is_under_way() or driver.poll() is not None, "both streams", START_S
            )
            assert driver.poll() is None, output.read_text()[-2000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


@pytest.fixture(scope="module")
def killed(spark_node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    root = tmp_path_factory.mktemp("killed")
    made = Killed(SourceCluster(spark_node, "killed-driver", root), root)
    made.run()
    return made


def test_table_of_a_killed_driver_loses_no_row(spark, killed):
    assert killed.batches < 140, "it was killed too late"
    table = Table(spark, killed.root)
    table.run(killed.earliest(killed.numbers, maxOffsetsPerTrigger=400))
    assert sorted(map(int, table.values)) == list(range(600))


def test_copy_of_a_killed_driver_with_changed_cut_has_every_row_once(spark, killed):
    """One of four tasks is committed; new records would reduce the batch to one task."""
    cluster = killed.cluster
    assert 0 < len(cluster.values(subscribe=killed.copied)) < 2000, "not killed between two tasks"
    cluster.produce(killed.source, [str(each) for each in range(2000, 22_000)])
    (killed.root / "open").touch()
    query = copy_stream(spark, killed.root)
    assert query.awaitTermination(120), "the query did not end"
    assert query.exception() is None
    found = sorted(map(int, cluster.values(subscribe=killed.copied)))
    assert found == list(range(22_000))
