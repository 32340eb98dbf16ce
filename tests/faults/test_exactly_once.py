"""Consume, transform, produce with librdkafka while brokers and workers are killed: exactly once.

Two workers of one group, each a process, write their output in transactions over three brokers.
Brokers and workers are killed with kill -9. The history checker compares the workers' actions with
what a read_committed consumer finds: nothing torn, aborted, lost or duplicated; and every input
record was processed once.

    EOS_KILLS=40 python -m pytest tests/faults/test_exactly_once.py
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from eos_worker import GROUP, INPUT, OUTPUT, PARTITIONS
from tests.committed_output import read_committed_output
from tests.patience import SECONDS_MAX

from ottla.testing import Cluster, run_cluster
from ottla.testing.history.check import check
from ottla.testing.history.events import AnyEvent, Poll, read_lines

KILLS = int(os.environ.get("EOS_KILLS", "3"))
RECORDS = 100 * (KILLS + 1)
WORKERS = ("one", "two")
CONFIG = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Workers:
    """The worker processes, and the history file of each."""

    def __init__(self, cluster: Cluster, protocol: str, folder: Path) -> None:
        self._cluster, self._protocol, self._folder = cluster, protocol, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        script = Path(__file__).parent / "eos_worker.py"
        arguments = [self._cluster.bootstrap, self._protocol, name, self._folder / f"{name}.jsonl"]
        with (self._folder / f"{name}.out").open("ab") as said:
            self._processes[name] = subprocess.Popen(
                [sys.executable, str(script), *map(str, arguments)], stdout=said, stderr=said
            )

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()

    def died(self) -> list[str]:
        return [name for name, each in self._processes.items() if each.poll() is not None]

    def said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.out")))

    def events(self) -> list[AnyEvent]:
        found: list[AnyEvent] = []
        for path in sorted(self._folder.glob("*.jsonl")):
            # The last line of a killed process may be incomplete.
            data = path.read_bytes()
            found.extend(read_lines(data[: data.rfind(b"\n") + 1].splitlines()))
        return sorted(found, key=lambda event: event.time)


@contextmanager
def workers_of(cluster: Cluster, protocol: str, folder: Path) -> Iterator[Workers]:
    workers = Workers(cluster, protocol, folder)
    try:
        for name in WORKERS:
            workers.start(name)
        yield workers
    finally:
        workers.stop()


def fill(cluster: Cluster, count: int) -> list[str]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    values = [f"v{number}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(INPUT, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    return values


def is_done(cluster: Cluster) -> bool:
    """Return whether the group has committed all of the input."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(INPUT, index) for index in range(PARTITIONS)]
        done = consumer.committed(places, timeout=SECONDS_MAX)
        return all(each.offset == RECORDS // PARTITIONS for each in done)
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(600 + 15 * KILLS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_work_is_done_exactly_once_while_brokers_and_workers_are_killed(
    tmp_path: Path, protocol: str
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    with run_cluster(3, processes=True, config=CONFIG) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 3) for name in (INPUT, OUTPUT)]
        for each in admin.create_topics(topics).values():
            each.result(SECONDS_MAX)
        values = fill(cluster, RECORDS)
        with workers_of(cluster, protocol, tmp_path) as workers:
            for _ in range(KILLS):
                time.sleep(rng.uniform(0.3, 1.2))
                if rng.random() < 0.5:
                    name = rng.choice(WORKERS)
                    workers.kill(name)
                    workers.start(name)
                else:
                    node = rng.choice(cluster.node_ids)
                    cluster.kill(node)
                    cluster.start(node)
            deadline = time.monotonic() + SECONDS_MAX
            while not is_done(cluster):
                assert not workers.died(), workers.said()
                assert time.monotonic() < deadline, f"seed {seed}: {workers.said()}"
                time.sleep(0.2)
        events = [*workers.events(), *read_committed_output(cluster.bootstrap, OUTPUT, PARTITIONS)]
    seen = [value for each in events if isinstance(each, Poll) for _, value in each.records]
    anomalies = check(events)
    assert not anomalies, f"seed {seed}: {anomalies[:5]}"
    # Each input record was processed, and by one transaction only.
    done = Counter(value.split("|")[0] for value in seen)
    assert done == Counter(values), (
        f"seed {seed}: {done - Counter(values)} {Counter(values) - done}"
    )
