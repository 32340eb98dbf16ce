"""A node on what macOS and Windows have: the profile is in force, and clients do not notice it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.runtime import event_loop, system_calls
from ottla.testing import Cluster, run_cluster

HIDES = os.environ.get("OTTLA_HIDES")
pytestmark = pytest.mark.skipif(HIDES is None, reason="part of make test-portable")
PROFILE = json.loads(HIDES or '{"profile": ""}')["profile"]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


def test_names_are_hidden_from_the_product_and_not_from_tests() -> None:
    product = system_calls.os
    assert hasattr(os, "posix_fallocate") and not hasattr(product, "posix_fallocate")
    assert hasattr(product, "pread") is (PROFILE == "macos")
    assert system_calls.IS_POSIX is (PROFILE == "macos")
    assert system_calls.send_file is None
    loop = event_loop.new_event_loop()
    assert type(loop).__module__.startswith("asyncio."), "not on asyncio's own loop"
    loop.close()


def test_names_are_hidden_in_child_processes() -> None:
    code = "from ottla.runtime import system_calls; print(hasattr(system_calls.os, 'fdatasync'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        "log.segment.bytes": "1048576",
        "log.retention.check.interval.ms": "200",
        "log.segment.delete.delay.ms": "100",
        "log.cleaner.backoff.ms": "100",
    }
    with run_cluster(1, config=config) as running:
        yield running


def create(cluster: Cluster, name: str, **config: str) -> AdminClient:
    admin = AdminClient(cluster.client_config)
    topic = NewTopic(
        name, 1, 1, config={key.replace("_", "."): text for key, text in config.items()}
    )
    admin.create_topics([topic])[name].result(SECONDS_MAX)
    return admin


def send(cluster: Cluster, topic: str, records: int) -> None:
    producer = Producer({**cluster.client_config, "acks": "all"})
    for number in range(records):
        producer.produce(topic, bytes(1000), key=str(number % 7).encode())
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0


def test_records_are_written_and_read(cluster: Cluster) -> None:
    create(cluster, "plain")
    send(cluster, "plain", 3000)
    settings = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.client_config, **settings})
    consumer.subscribe(["plain"])
    read = 0

    def consume() -> bool:
        nonlocal read
        read += len(consumer.consume(500, 1.0))
        return read >= 3000

    wait_until(consume, "the records were not read")
    assert read == 3000
    consumer.close()


def logs(cluster: Cluster, topic: str) -> list[Path]:
    return list(cluster.data(1).glob(f"{topic}-0*/*.log"))


def test_open_segments_are_compacted(cluster: Cluster) -> None:
    create(cluster, "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    send(cluster, "compacted", 5000)
    wait_until(
        lambda: sum(path.stat().st_size for path in logs(cluster, "compacted")) < 3_000_000,
        "the log was not compacted",
    )


def test_open_segments_of_old_records_are_deleted(cluster: Cluster) -> None:
    create(cluster, "short", retention_bytes="1048576")
    send(cluster, "short", 5000)
    wait_until(lambda: len(logs(cluster, "short")) <= 2, "old segments were not deleted")


def test_topic_is_deleted_with_its_files_and_the_node_goes_on(cluster: Cluster) -> None:
    admin = create(cluster, "deleted")
    send(cluster, "deleted", 100)
    admin.delete_topics(["deleted"])["deleted"].result(SECONDS_MAX)
    wait_until(lambda: not logs(cluster, "deleted"), "the directory was not removed")
    create(cluster, "next")
    send(cluster, "next", 10)
