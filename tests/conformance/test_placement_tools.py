"""Apache Kafka's tools for replicas and directories, against nodes of ours."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Kafka
from ottla.testing.cluster import Cluster, run_cluster

pytestmark = pytest.mark.jvm

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
VERIFY = "org.apache.kafka.tools.ReplicaVerificationTool"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
LOAD = (
    *("--topic", "orders", "--num-records", "2000", "--record-size", "200"),
    *("--throughput", "-1"),
)


@pytest.fixture
def three() -> Iterator[Cluster]:
    with run_cluster(3, config={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def brokers(cluster: Cluster) -> tuple[str, str]:
    return ("--bootstrap-server", cluster.bootstrap)


def plan(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text(json.dumps({"version": 1, "partitions": list(rows)}))
    return str(path)


def replicas(kafka: Kafka, cluster: Cluster) -> list[tuple[int, list[int]]]:
    """Leader and replicas of every partition of the topic."""
    output = kafka.run(TOPICS, *brokers(cluster), "--describe", "--topic", "orders")
    found = re.findall(r"Leader: (\d+)\tReplicas: ([\d,]+)", output)
    return [(int(leader), [int(each) for each in listed.split(",")]) for leader, listed in found]


def finished(kafka: Kafka, cluster: Cluster, wanted: str) -> str:
    """Ask until the tool calls everything done; each asking takes a JVM a second or two."""
    for _ in range(20):
        output = kafka.run(
            REASSIGN, *brokers(cluster), "--reassignment-json-file", wanted, "--verify"
        )
        if "still in progress" not in output:
            return output
    raise AssertionError(output)


def test_partitions_are_reassigned_with_a_throttle(
    kafka: Kafka, three: Cluster, tmp_path: Path
) -> None:
    kafka.run(
        *(TOPICS, *brokers(three), "--create", "--topic", "orders"),
        *("--replica-assignment", "1:2,2:3"),
    )
    wanted = plan(
        tmp_path / "plan.json",
        {"topic": "orders", "partition": 0, "replicas": [3, 2]},
        {"topic": "orders", "partition": 1, "replicas": [2, 1]},
    )
    begun = kafka.run(
        *(REASSIGN, *brokers(three), "--reassignment-json-file", wanted, "--execute"),
        *("--throttle", "10000000"),
    )
    assert "Successfully started partition reassignments for orders-0,orders-1" in begun
    limited = kafka.run(
        CONFIGS, *brokers(three), "--describe", "--entity-type", "topics", "--entity-name", "orders"
    )
    assert "leader.replication.throttled.replicas=" in limited
    output = finished(kafka, three, wanted)
    assert output.count("is completed.") == 2
    assert "Clearing broker-level throttles" in output
    assert "Clearing topic-level throttles" in output
    assert [found for _, found in replicas(kafka, three)] == [[3, 2], [2, 1]]
    assert "No partition reassignments found." in kafka.run(REASSIGN, *brokers(three), "--list")


def test_preferred_leaders_are_elected(kafka: Kafka, three: Cluster) -> None:
    kafka.run(
        *(TOPICS, *brokers(three), "--create", "--topic", "orders"),
        *("--replica-assignment", "2:1:3,2:3:1"),
    )
    three.restart(2)
    assert [leader for leader, _ in replicas(kafka, three)] != [2, 2]
    for _ in range(20):
        output = kafka.run(
            *(ELECT, *brokers(three), "--election-type", "preferred", "--all-topic-partitions")
        )
        if [leader for leader, _ in replicas(kafka, three)] == [2, 2]:
            break
    assert [leader for leader, _ in replicas(kafka, three)] == [2, 2], output


def test_log_directories_are_described_and_partitions_moved(kafka: Kafka, tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    with run_cluster(1, config={"log.dirs": f"{first},{second}"}) as cluster:
        kafka.run(TOPICS, *brokers(cluster), "--create", "--topic", "orders", "--partitions", "2")
        rows = [
            {"topic": "orders", "partition": at, "replicas": [1], "log_dirs": [second]}
            for at in range(2)
        ]
        wanted = plan(tmp_path / "plan.json", *rows)
        begun = kafka.run(
            REASSIGN, *brokers(cluster), "--reassignment-json-file", wanted, "--execute"
        )
        assert "Successfully started" in begun
        output = finished(kafka, cluster, wanted)
        assert output.count("is completed") >= 2, output
        listed = kafka.run(LOG_DIRS, *brokers(cluster), "--describe", "--topic-list", "orders")
        (report,) = json.loads(listed.splitlines()[-1])["brokers"]
        held = {
            each["logDir"]: sorted(row["partition"] for row in each["partitions"])
            for each in report["logDirs"]
        }
        assert held[second] == ["orders-0", "orders-1"]
        assert all(each["error"] is None for each in report["logDirs"])


@contextmanager
def verifying(kafka: Kafka, *arguments: str) -> Iterator[Iterator[str]]:
    """Run the replica verification, which never ends by itself; give what it says."""
    process = subprocess.Popen(
        ["java", "-Xmx512m", "-cp", kafka.classpath, VERIFY, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as said:
        try:
            yield iter(said.readline, "")
        finally:
            process.kill()
            process.wait()


def test_every_replica_holds_the_same_records(kafka: Kafka, three: Cluster) -> None:
    """Reads every replica as a debugger does, and compares checksums batch by batch."""
    kafka.run(
        *(TOPICS, *brokers(three), "--create", "--topic", "orders", "--partitions", "2"),
        *("--replication-factor", "3"),
    )
    kafka.run(PERFORMANCE, *brokers(three), *LOAD)
    with verifying(
        *(kafka, "--broker-list", three.bootstrap, "--topics-include", "orders"),
        *("--time", "-2", "--report-interval-ms", "500"),
    ) as said:
        reports = 0
        for line in said:
            assert not re.search("match|rror|xception", line), line
            reports += "max lag" in line
            assert reports < 60, line
            # Read to the end by all, and nobody behind.
            if re.search(r"max lag is 0 for partition orders-\d at offset [1-9]\d* among 2 ", line):
                break
        else:
            raise AssertionError("it ended by itself")
