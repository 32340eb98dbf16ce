"""A node of three whose metadata log is damaged: it does not start, and rejoins on request."""

import time
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from ottla.protocol.types import NodeId
from ottla.raft.core.voters import VoterSet
from ottla.raft.repair import MARK_NAME, Repair, repair_log
from ottla.runtime.disk import RealDisk
from ottla.testing import NodeFailed, run_cluster

DIRECTORY = "__cluster_metadata-0"


def test_node_with_a_damaged_metadata_log_refuses_and_rejoins(tmp_path: Path) -> None:
    with run_cluster(3, directory=tmp_path) as cluster:
        victim = cluster.node_ids[-1]
        data = cluster.data(victim)
        cluster.stop(victim)
        segment = max((data / DIRECTORY).glob("*.log"), key=lambda each: each.stat().st_size)
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0x01
        segment.write_bytes(content)

        with pytest.raises(NodeFailed):
            cluster.start(victim)

        voters = VoterSet()  # the log names them
        repair_log(RealDisk(), str(data), Repair(is_rejoining=True), voters, NodeId(victim))
        mark = data / DIRECTORY / MARK_NAME
        assert mark.exists()
        cluster.start(victim)
        deadline = time.monotonic() + SECONDS_MAX
        while mark.exists():
            assert time.monotonic() < deadline, "it has not caught up"
            time.sleep(0.05)
        # Its vote counts again: without another node it is needed for a majority.
        cluster.stop(cluster.node_ids[0])
        cluster.restart(victim)
