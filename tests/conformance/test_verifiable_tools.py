"""Apache Kafka's verifiable producer and consumer, on three nodes that are restarted meanwhile."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import SECONDS_MAX, Kafka
from ottla.testing import run_cluster

pytestmark = pytest.mark.jvm

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
A_SECOND = 100
# The tool turns retries off; a producer as it comes has them on.
DEFAULTS = "retries=2147483647\nenable.idempotence=true\n"


def events(said: list[str], name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in said if line.startswith("{")]
    return [each for each in found if each["name"] == name]


@contextmanager
def producing(kafka: Kafka, output: Path, *arguments: str) -> Iterator[list[str]]:
    """Run the producer in the background; at the end stop it and yield its output."""
    said: list[str] = []
    # Into a file: of a pipe, lines that were read ahead while waiting for the first would be lost.
    with output.open("wb") as writing:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", kafka.classpath, PRODUCER, *arguments],
            stdout=writing,
            stderr=subprocess.DEVNULL,
        )
    try:
        # The first record is on its way: from here on, it is under load.
        while "producer_send_success" not in output.read_text():
            assert process.poll() is None, "it ended"
            time.sleep(0.05)
        yield said
        process.terminate()
        process.wait(SECONDS_MAX)
        said += output.read_text().splitlines()
    finally:
        process.kill()
        process.wait()


def test_a_rolling_restart_fails_no_send_and_loses_nothing(kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "producer.properties").write_text(DEFAULTS)
    with run_cluster(3, processes=True) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap, "--topic", "verified")
        kafka.run(
            *(TOPICS, *at, "--create", "--partitions", "3", "--replication-factor", "3"),
            *("--config", "min.insync.replicas=2"),
        )
        with producing(
            *(kafka, tmp_path / "sent", *at, "--throughput", str(A_SECOND)),
            *("--command-config", str(tmp_path / "producer.properties")),
        ) as said:
            cluster.restart()
        sent = [
            (each["partition"], each["offset"], each["value"])
            for each in events(said, "producer_send_success")
        ]
        read = kafka.run(
            *(CONSUMER, *at, "--group-id", "verifiers", "--max-messages", str(len(sent))),
            *("--reset-policy", "earliest", "--verbose"),
        ).splitlines()
    assert events(said, "producer_send_error") == []
    assert len(sent) > A_SECOND
    got = [
        (each["partition"], each["offset"], each["value"]) for each in events(read, "record_data")
    ]
    assert sorted(got) == sorted(sent)
    assert any(each["success"] for each in events(read, "offsets_committed"))
