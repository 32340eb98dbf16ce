"""Kafka Streams counts words on a node of ours, exactly, though an instance is killed meanwhile."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conftest import Kafka
from ottla.testing import Cluster, run_node

pytestmark = pytest.mark.jvm

HERE = Path(__file__).parent
SECONDS_MAX = 150.0
PARTITIONS = 4
GROUP = "word-count"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
INTERNAL = {f"{GROUP}-words-repartition", f"{GROUP}-words-seen-changelog"}
QUICK = {
    "group.streams.min.session.timeout.ms": 6000,
    "group.streams.session.timeout.ms": 6000,
    "group.streams.min.heartbeat.interval.ms": 500,
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 500,
    "group.initial.rebalance.delay.ms": 500,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
EXACTLY_ONCE = ("processing.guarantee=exactly_once_v2", "consumer.session.timeout.ms=6000")


def until(is_so: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, why
        time.sleep(0.05)


class Application:
    """Instances of the word count, compiled once."""

    def __init__(self, kafka: Kafka, node: Cluster, directory: Path, *settings: str) -> None:
        self._node, self._directory, self._settings = node, directory, settings
        self._classpath = f"{directory}:{kafka.classpath}"
        self._running: dict[str, subprocess.Popen[str]] = {}
        command = ["javac", "-cp", kafka.classpath, "-d", str(directory)]
        subprocess.run([*command, str(HERE / "WordCount.java")], check=True)

    def start(self, name: str) -> None:
        command = ["java", "-Xmx256m", "-cp", self._classpath, "WordCount", self._node.bootstrap]
        with self._output(name).open("w") as output:
            self._running[name] = subprocess.Popen(
                [*command, str(self._directory / f"state-{name}"), *self._settings],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def _output(self, name: str) -> Path:
        return self._directory / f"{name}.out"

    def wait_says(self, name: str, words: str) -> None:
        until(lambda: words in self._output(name).read_text(), self._output(name).read_text())

    def ask(self, name: str) -> None:
        """Have an instance say where state can be asked for."""
        stdin = self._running[name].stdin
        assert stdin is not None
        stdin.write("?")
        stdin.flush()

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.communicate()

    def close(self, name: str) -> None:
        process = self._running.pop(name)
        process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)


@contextmanager
def application(
    kafka: Kafka, directory: Path, *settings: str
) -> Iterator[tuple[Cluster, Application]]:
    with run_node(processes=True, config=QUICK, directory=directory / "node") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        wanted = [NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]
        for future in admin.create_topics(wanted).values():
            future.result(SECONDS_MAX)
        app = Application(kafka, node, directory, *settings)
        try:
            yield node, app
        finally:
            app.stop()


def line(number: int) -> str:
    return f"all b{number % 7} c{number % 3} all"


def send(node: Cluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in numbers:
        producer.produce("lines", line(number).encode(), key=str(number).encode())
    assert producer.flush(SECONDS_MAX) == 0


class Counts:
    """All counts that were committed, in their order, by word."""

    def __init__(self, node: Cluster) -> None:
        self.found: dict[str, list[int]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition("counts", each, 0) for each in range(PARTITIONS)])

    def wait_lines(self, count: int) -> None:
        """Wait until every word of so many lines is counted."""
        wanted: dict[str, int] = {}
        for number in range(count):
            for word in line(number).split():
                wanted[word] = wanted.get(word, 0) + 1

        def is_counted() -> bool:
            for record in self._consumer.consume(500, 0.05):
                assert record.error() is None, record.error()
                self.found.setdefault(record.key().decode(), []).append(int(record.value()))
            return {word: counts[-1] for word, counts in self.found.items()} == wanted

        until(is_counted, f"{self.found} {wanted}")

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_words_are_counted_exactly_once_though_an_instance_is_killed(
    kafka: Kafka, tmp_path: Path, protocol: str
) -> None:
    settings = (f"group.protocol={protocol}", *EXACTLY_ONCE)
    with application(kafka, tmp_path, *settings) as (node, app):
        counts = Counts(node)
        send(node, range(200))
        for name in ("one", "two"):
            app.start(name)
        for name in ("one", "two"):
            app.wait_says(name, "state RUNNING")
        counts.wait_lines(200)
        send(node, range(200, 600))
        app.kill("two")
        counts.wait_lines(600)
        app.start("three")
        app.wait_says("three", "state RUNNING")
        send(node, range(600, 700))
        counts.wait_lines(700)
        counts.close()
        # Each word was counted up one by one: nothing twice, nothing left out, nothing aborted.
        for word, found in counts.found.items():
            assert found == list(range(1, len(found) + 1)), word
        app.close("one")
        app.close("three")


def test_kafkas_tool_sees_and_changes_a_streams_group(kafka: Kafka, tmp_path: Path) -> None:
    standbys = ("--entity-type", "groups", "--entity-name", GROUP)
    with application(kafka, tmp_path, "group.protocol=streams", "application.server=here:1") as (
        node,
        app,
    ):
        at = ("--bootstrap-server", node.bootstrap)

        def tool(*arguments: str) -> str:
            return kafka.run(STREAMS_GROUPS, *at, *arguments)

        kafka.run(
            *("kafka.admin.ConfigCommand", *at, "--alter", *standbys),
            *("--add-config", "streams.num.standby.replicas=1"),
        )
        counts = Counts(node)
        send(node, range(50))
        app.start("one")
        counts.wait_lines(50)
        counts.close()
        app.ask("one")
        app.wait_says("one", "host='here', port=1")
        assert tool("--list").split() == [GROUP]
        assert "Stable" in tool("--describe", "--group", GROUP, "--state")
        members = tool("--describe", "--group", GROUP, "--members", "--verbose")
        assert members.count("ACTIVE: 0:[") == 4, "two threads, each with its tasks and its target"
        until(lambda: lags(tool("--describe", "--group", GROUP)) == [0] * 8, "all is read")
        tool("--delete", "--group", GROUP)
        assert tool("--list").split() == [GROUP], "a group with members stays"
        app.close("one")
        assert "Empty" in tool("--describe", "--group", GROUP, "--state")
        reset = ("--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-earliest")
        planned = tool(*reset, "--dry-run")
        assert planned.count("lines") == PARTITIONS
        tool(*reset, "--execute", "--delete-all-internal-topics")
        topics = set(AdminClient({"bootstrap.servers": node.bootstrap}).list_topics().topics)
        assert not INTERNAL & topics
        assert committed(node) == [0] * PARTITIONS, "all lines are to be read again"
        tool("--delete", "--group", GROUP)
        assert GROUP not in tool("--list")
    (log,) = (tmp_path / "node").rglob("__consumer_offsets-0/00000000000000000000.log")
    dumped = kafka.dump("--offsets-decoder", "--files", str(log))
    kinds = set(re.findall(r'key: {"type":"(\d+)"', dumped))
    assert {"17", "19", "20", "21", "22", "23"} <= kinds, dumped
    assert "Could not read" not in dumped, dumped


def committed(node: Cluster) -> list[int]:
    """Where the group is in the topic that it reads."""
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": GROUP})
    places = [TopicPartition("lines", each) for each in range(PARTITIONS)]
    found = [each.offset for each in reader.committed(places, timeout=SECONDS_MAX)]
    reader.close()
    return found


def lags(described: str) -> list[int]:
    """The last column: how far behind the group is in each partition."""
    lines = [each.split() for each in described.splitlines()]
    return [int(each[-1]) for each in lines if len(each) == 4 and each[-1].isdigit()]
