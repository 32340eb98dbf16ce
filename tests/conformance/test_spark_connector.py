"""Spark's own Kafka connector, unchanged, against our broker."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import run_node

pytestmark = pytest.mark.jvm

DRIVER = Path(__file__).parent / "spark_connector_driver.py"
TOPICS = {"plain": 2, "stamped": 1, "transacted": 1, "headed": 1, "written": 3, "streamed": 1}
TOPICS |= {"at-once": 1}


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # For ever: some records are stamped 1970.
    kept = {"retention.ms": "-1"}
    made = admin.create_topics(
        [NewTopic(name, count, 1, config=kept) for name, count in TOPICS.items()]
    )
    for future in made.values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce("plain", f"{number}", partition=number % 2)
        producer.produce("stamped", f"{number}", timestamp=1000 * (number + 1))
    producer.produce("headed", "h", headers=[("a", b"1"), ("b", b"2")])
    assert producer.flush(30) == 0
    transacting = Producer({"bootstrap.servers": bootstrap, "transactional.id": "spark"})
    transacting.init_transactions(30)
    for value, is_kept in (("kept", True), ("void", False), ("also", True)):
        transacting.begin_transaction()
        transacting.produce("transacted", value)
        end = transacting.commit_transaction if is_kept else transacting.abort_transaction
        transacting.flush(30)
        end(30)


def test_the_connector_reads_streams_and_writes(tmp_path):
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; Spark's connector cannot be fetched or run")
    with run_node(processes=True, directory=tmp_path / "node") as node:
        fill(node.bootstrap)
        command = [sys.executable, str(DRIVER), node.bootstrap, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=380)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    digits = [str(number) for number in range(10)]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert found.pop("splits") >= 5
    assert found == {
        "batch": digits,
        "pattern": digits,
        "range": ["1", "4", "6"],
        "timestamps": ["1", "2"],
        "committed": ["also", "kept"],
        "uncommitted": ["also", "kept", "void"],
        "headers": [[["a", "1"], ["b", "2"]]],
        "written": sorted(f"w{number}" for number in range(20)),
        "streamed": digits,
        # Why the page on pipelines names Spark's own source for the lowest latency.
        "real time, ottla": "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",
        "real time, kafka": digits,
    }
