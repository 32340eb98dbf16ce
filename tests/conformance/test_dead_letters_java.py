"""Java's share consumer of Kafka 4.4 gives records up while brokers are killed (KIP-1191)."""

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.patience import SECONDS_MAX
from tests.redriving import (
    DURABLE,
    check_letters,
    check_redrive,
    leader_of,
    letters_in,
    origins,
    set_up,
)

from conftest import Kafka
from ottla.testing.cluster import Cluster, run_cluster

pytestmark = pytest.mark.jvm

HERE = Path(__file__).parent
RECORDS = 60
REJECTED, USED_UP, ACCEPTED = (set(range(first, RECORDS, 3)) for first in range(3))
MESSAGES = {
    "Offset rejected by client.": REJECTED,
    "Offset delivery count exceeded the threshold.": USED_UP | ACCEPTED,
}


def headers_of(cluster: Cluster, count: int) -> list[dict[str, str]]:
    """Return the headers of so many letters, in their order."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    reader.assign([TopicPartition("dlq.orders", 0, 0)])
    found: list[dict[str, str]] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append({name: value.decode() for name, value in message.headers()})
        assert time.monotonic() < deadline, found
    reader.close()
    return found


def test_records_that_java_gives_up_become_letters_and_come_back_once(
    kafka_clients: Kafka, tmp_path: Path
) -> None:
    with run_cluster(3, processes=True, config=DURABLE) as cluster:
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{number}\n" for number in range(RECORDS)))
        set_up(cluster, str(lines))
        source = str(HERE / "DeadLetters.java")
        java = ["java", "-Xmx256m", "-cp", kafka_clients.classpath, source]
        with (tmp_path / "java.log").open("w") as log:
            worker = subprocess.Popen(
                [*java, cluster.bootstrap, "queue", "orders"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            wait_for(cluster, worker, REJECTED, least=3)
            for topic in ("orders", "dlq.orders"):
                leader = leader_of(cluster, topic)
                cluster.kill(leader)
                wait_for(cluster, worker, REJECTED, least=6)
                cluster.start(leader)
            wait_for(cluster, worker, REJECTED | USED_UP)
            output, _ = worker.communicate("\n", timeout=SECONDS_MAX)
        finally:
            worker.kill()
            worker.wait(SECONDS_MAX)
        accepted = {int(line) for line in output.split()}
        letters = check_letters(cluster, REJECTED | USED_UP, accepted)
        for headers in headers_of(cluster, len(letters)):
            offset = int(headers["__dlq.errors.offset"])
            assert headers["__dlq.errors.topic"] == "orders"
            assert headers["__dlq.errors.partition"] == "0"
            assert headers["__dlq.errors.group"] == "queue"
            assert offset in MESSAGES[headers["__dlq.errors.message"]]
            assert 1 <= int(headers["__dlq.errors.delivery.count"]) <= 5
            assert len(headers) == 6
        check_redrive(cluster, letters)


def wait_for(
    cluster: Cluster, worker: subprocess.Popen[str], dead: set[int], least: int | None = None
) -> None:
    """Wait until all, or at least so many, of these records have a letter."""
    deadline = time.monotonic() + SECONDS_MAX
    goal = len(dead) if least is None else least
    while len(dead & set(origins(letters_in(cluster)))) < goal:
        assert worker.poll() is None, "the consumer has ended"
        assert time.monotonic() < deadline
