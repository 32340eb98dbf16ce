"""Apache Kafka's own admin tools against a node of ours, and its dump tool on the node's files."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_ports import free_ports

from conftest import CLUSTER_ID, SECONDS_MAX, Kafka

pytestmark = pytest.mark.jvm

TOPICS = "org.apache.kafka.tools.TopicCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"


class Ottla:
    """A combined node of ours in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port, self.controller_port = free_ports(2)
        self.properties = root / "server.properties"
        self.process: subprocess.Popen[str] | None = None
        self.properties.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{self.controller_port}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}
controller.listener.names=CONTROLLER
log.dirs={root / "data"}
"""
        )

    @property
    def brokers(self) -> tuple[str, str]:
        return ("--bootstrap-server", f"127.0.0.1:{self.port}")

    @property
    def controllers(self) -> tuple[str, str]:
        return ("--bootstrap-controller", f"127.0.0.1:{self.controller_port}")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ottla.cli.main", *arguments]

    def format(self) -> None:
        command = self.command(
            *("format", "-t", CLUSTER_ID, "-c", str(self.properties), "--standalone")
        )
        subprocess.run(command, check=True, capture_output=True)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command("server", str(self.properties)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("started node 1")

    def stop(self) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.terminate()
        code = process.wait(SECONDS_MAX)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def log_file(self, name: str) -> str:
        return str(self.root / "data" / "__cluster_metadata-0" / name)


@pytest.fixture
def ottla(kafka: Kafka, tmp_path: Path) -> Iterator[Ottla]:
    node = Ottla(tmp_path)
    node.format()
    node.start()
    try:
        yield node
    finally:
        node.stop()


def test_topics_are_made_described_and_deleted(kafka: Kafka, ottla: Ottla) -> None:
    made = kafka.run(
        *(TOPICS, *ottla.brokers, "--create", "--topic", "orders", "--partitions", "3"),
        *("--replication-factor", "1", "--config", "retention.ms=100000"),
    )
    assert "Created topic orders." in made
    output = kafka.run(TOPICS, *ottla.brokers, "--describe", "--topic", "orders")
    assert "PartitionCount: 3" in output and "retention.ms=100000" in output
    assert len(re.findall(r"Leader: 1\tReplicas: 1\tIsr: 1", output)) == 3
    altered = kafka.run(
        *(CONFIGS, *ottla.brokers, "--alter", "--entity-type", "topics"),
        *("--entity-name", "orders", "--add-config", "max.message.bytes=2000"),
    )
    assert "Completed updating config" in altered
    output = kafka.run(
        *(CONFIGS, *ottla.brokers, "--describe", "--entity-type", "topics"),
        *("--entity-name", "orders"),
    )
    assert "max.message.bytes=2000" in output and "retention.ms=100000" in output
    kafka.run(TOPICS, *ottla.brokers, "--delete", "--topic", "orders")
    assert "orders" not in kafka.run(TOPICS, *ottla.brokers, "--list")


def test_quorum_features_and_cluster_are_described_by_both_ways(kafka: Kafka, ottla: Ottla) -> None:
    for way in (ottla.brokers, ottla.controllers):
        status = kafka.run(QUORUM, *way, "describe", "--status")
        assert CLUSTER_ID in status and re.search(r"LeaderId:\s+1\n", status)
        assert f"CONTROLLER://127.0.0.1:{ottla.controller_port}" in status
    replication = kafka.run(QUORUM, *ottla.brokers, "describe", "--replication")
    assert re.search(r"^1\s.*Leader", replication, re.M)
    features = kafka.run(FEATURES, *ottla.brokers, "describe")
    assert re.search(r"metadata\.version\t.*FinalizedVersionLevel: 4\.2-IV1", features)
    assert re.search(r"kraft\.version\t.*FinalizedVersionLevel: 1", features)
    downgraded = kafka.run(FEATURES, *ottla.brokers, "downgrade", "--feature", "share.version=0")
    assert "share.version was downgraded to 0." in downgraded
    assert CLUSTER_ID in kafka.run(CLUSTER, "cluster-id", *ottla.brokers)
    listed = kafka.run(CLUSTER, "list-endpoints", *ottla.controllers)
    assert str(ottla.controller_port) in listed and "controller" in listed


def test_the_dump_tool_reads_log_and_formatted_files(kafka: Kafka, ottla: Ottla) -> None:
    kafka.run(TOPICS, *ottla.brokers, "--create", "--topic", "t", "--partitions", "1")
    assert ottla.stop() == 0
    for name, wanted in (
        ("00000000000000000000.log", ("REGISTER_BROKER_RECORD", '"name":"t"', "LeaderChange")),
        ("00000000000000000000-0000000000.checkpoint", ("KRaftVoters", "SnapshotFooter")),
        ("../bootstrap.checkpoint", ("metadata.version", "SnapshotHeader")),
    ):
        output = kafka.dump("--cluster-metadata-decoder", "--files", ottla.log_file(name))
        assert [text for text in wanted if text not in output] == [], name


def test_controllers_are_added_and_removed(kafka: Kafka, ottla: Ottla, tmp_path: Path) -> None:
    joiner = tmp_path / "joiner.properties"
    port = free_ports(1)[0]
    joiner.write_text(
        f"""process.roles=controller
node.id=2
controller.quorum.bootstrap.servers=127.0.0.1:{ottla.controller_port}
listeners=CONTROLLER://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={tmp_path / "joiner"}
"""
    )
    formatting = ottla.command("format", "-t", CLUSTER_ID, "-c", str(joiner), "-N")
    subprocess.run(formatting, check=True, capture_output=True)
    meta = (tmp_path / "joiner" / "meta.properties").read_text()
    directory_id = re.search(r"^directory\.id=(.+)$", meta, re.M)
    assert directory_id
    process = subprocess.Popen(ottla.command("server", str(joiner)), stderr=subprocess.DEVNULL)
    try:
        for _ in range(20):  # until it fetches; each asking takes a JVM a second or two
            status = kafka.run(QUORUM, *ottla.controllers, "describe", "--status")
            if re.search(r'CurrentObservers:.*"id": 2,', status):
                break
        added = kafka.run(
            QUORUM, *ottla.controllers, "--command-config", str(joiner), "add-controller"
        )
        assert "Added controller 2" in added
        status = kafka.run(QUORUM, *ottla.controllers, "describe", "--status")
        assert re.search(r'CurrentVoters:.*"id": 1,.*"id": 2,', status), status
        gone = ("--controller-id", "2", "--controller-directory-id", directory_id[1])
        assert "Removed" in kafka.run(QUORUM, *ottla.controllers, "remove-controller", *gone)
        status = kafka.run(QUORUM, *ottla.controllers, "describe", "--status")
        assert not re.search(r'CurrentVoters:.*"id": 2,', status), status
    finally:
        process.kill()
        process.wait()


def test_broker_loggers_are_described_and_changed(kafka: Kafka, ottla: Ottla) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    change = (CONFIGS, *ottla.brokers, "--alter", *loggers)
    altered = kafka.run(*change, "--add-config", "ottla.server=DEBUG,root=WARN")
    assert "Completed updating config for broker-logger 1." in altered
    output = kafka.run(CONFIGS, *ottla.brokers, "--describe", *loggers)
    assert re.search(r"^  root=WARN ", output, re.MULTILINE)
    assert re.search(r"^  ottla.server=DEBUG ", output, re.MULTILINE)
    kafka.run(*change, "--delete-config", "ottla.server")
    output = kafka.run(CONFIGS, *ottla.brokers, "--describe", *loggers)
    assert re.search(r"^  ottla.server=WARN ", output, re.MULTILINE)


def test_broker_and_client_metrics_configs_are_changed(kafka: Kafka, ottla: Ottla) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    with pytest.raises(AssertionError, match="double"):
        kafka.run(
            *(CONFIGS, *ottla.brokers, "--alter", *broker),
            *("--add-config", "log.cleaner.threads=5"),
        )
    metrics = ("--entity-type", "client-metrics", "--entity-name", "basic")
    kafka.run(
        *(CONFIGS, *ottla.brokers, "--alter", *metrics),
        *("--add-config", "metrics=org.apache.kafka.producer.,interval.ms=15000"),
    )
    output = kafka.run(CONFIGS, *ottla.brokers, "--describe", *metrics)
    assert "interval.ms=15000 sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG" in output
