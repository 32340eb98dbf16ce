"""Consume, transform, produce with Java's clients while workers and a broker are killed.

Two workers of one group, each a JVM, write what they make of the input in transactions over three
brokers. Each round one of them dies with kill -9 in the middle of its work, once a broker with it.
What the workers did and what a reader of committed records then finds is judged by the history
checker: nothing torn, aborted, lost or there twice; and every record of the input was done once.
"""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.committed_output import read_committed_output

from conftest import Kafka
from ottla.testing import Cluster, run_cluster
from ottla.testing.history.check import check
from ottla.testing.history.events import AnyEvent, Poll, read_lines

pytestmark = pytest.mark.jvm

HERE = Path(__file__).parent
SECONDS_MAX = 180.0
PARTITIONS = 2
ROUNDS = 4
RECORDS = 120  # of each round, and of one more
BROKER_DIES_IN = 1
WORKERS = ("one", "two")
CONFIG = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def until(is_so: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, why()
        time.sleep(0.05)


class Workers:
    """The JVMs, and the files that they write their history into, one for each life."""

    def __init__(self, kafka: Kafka, cluster: Cluster, protocol: str, folder: Path) -> None:
        self._folder = folder
        self._command = ["java", "-Xmx192m", "-XX:TieredStopAtLevel=1", "-cp"]
        self._command += [f"{folder}:{kafka.classpath}", "ExactlyOnce", cluster.bootstrap, protocol]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lives: Counter[str] = Counter()
        compiler = ["javac", "-cp", kafka.classpath, "-d", str(folder)]
        subprocess.run([*compiler, str(HERE / "ExactlyOnce.java")], check=True)

    def start(self, name: str) -> None:
        self._lives[name] += 1
        history = self._folder / f"{name}-{self._lives[name]}.jsonl"
        with (self._folder / f"{name}.out").open("ab") as said:
            self._running[name] = subprocess.Popen(
                [*self._command, name, str(history)], stdout=said, stderr=said
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def sizes(self) -> dict[str, int]:
        """How much history each has written."""
        return {
            name: sum(path.stat().st_size for path in self._folder.glob(f"{name}-*.jsonl"))
            for name in WORKERS
        }

    def check_alive(self) -> None:
        assert all(each.poll() is None for each in self._running.values()), self.said()

    def said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.out")))

    def events(self) -> list[AnyEvent]:
        found: list[AnyEvent] = []
        for path in sorted(self._folder.glob("*.jsonl")):
            # What a killed process wrote last may be cut off.
            data = path.read_bytes()
            found.extend(read_lines(data[: data.rfind(b"\n") + 1].splitlines()))
        return sorted(found, key=lambda event: event.time)


@contextmanager
def workers_of(kafka: Kafka, cluster: Cluster, protocol: str, folder: Path) -> Iterator[Workers]:
    workers = Workers(kafka, cluster, protocol, folder)
    try:
        for name in WORKERS:
            workers.start(name)
        yield workers
    finally:
        workers.kill_all()


def fill(cluster: Cluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce("in", f"v{number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0


def is_done(cluster: Cluster, count: int) -> bool:
    """Whether the group has committed so many records of the input."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "work"})
    try:
        places = [TopicPartition("in", index) for index in range(PARTITIONS)]
        done = consumer.committed(places, timeout=SECONDS_MAX)
        return all(each.offset == count // PARTITIONS for each in done)
    finally:
        consumer.close()


def kill_one_at_work(workers: Workers, before: dict[str, int]) -> str:
    """Kill a worker as soon as it has written history: it is in the middle of its work."""
    grown: list[str] = []

    def has_grown() -> bool:
        workers.check_alive()
        grown[:] = [name for name, size in workers.sizes().items() if size > before[name]]
        return bool(grown)

    until(has_grown, workers.said)
    workers.kill(grown[0])
    return grown[0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_does_its_work_exactly_once_while_it_and_a_broker_are_killed(
    kafka: Kafka, tmp_path: Path, protocol: str
) -> None:
    rng = random.Random(protocol)
    with run_cluster(3, processes=True, config=CONFIG) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 3) for name in ("in", "out")]
        for each in admin.create_topics(topics).values():
            each.result(SECONDS_MAX)
        with workers_of(kafka, cluster, protocol, tmp_path) as workers:
            for turn in range(ROUNDS):
                before = workers.sizes()
                fill(cluster, range(turn * RECORDS, (turn + 1) * RECORDS))
                name = kill_one_at_work(workers, before)
                if turn == BROKER_DIES_IN:
                    node = rng.choice(cluster.node_ids)
                    cluster.kill(node)
                    cluster.start(node)
                workers.start(name)
            count = (ROUNDS + 1) * RECORDS
            fill(cluster, range(ROUNDS * RECORDS, count))
            until(lambda: is_done(cluster, count), workers.said)
            workers.check_alive()
        events = [*workers.events(), *read_committed_output(cluster.bootstrap, "out", PARTITIONS)]
    anomalies = check(events)
    assert not anomalies, anomalies[:5]
    # Each record of the input was done, and by one transaction only.
    seen = [value for each in events if isinstance(each, Poll) for _, value in each.records]
    done = Counter(value.split("|")[0] for value in seen)
    wanted = Counter(f"v{number}" for number in range(count))
    assert done == wanted, f"{done - wanted} {wanted - done}"
    lives = {each.process for each in events} - {"reader"}
    assert len(lives) > ROUNDS, "all who were killed had worked, and somebody came after them"
