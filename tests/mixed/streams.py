"""An application of Kafka Streams that counts words, exactly once, while nodes are replaced.

Its threads are the members of a streams group (KIP-1071). Every count is written in a transaction,
so the counts of a word are 1, 2, 3, ... unless a line was processed twice or not at all.
"""

import subprocess
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.mixed.cluster import MixedCluster, wait_until
from tests.mixed.hosts import LOGGING, ask, bound_to_us, java
from tests.mixed.kinds import TARGET
from tests.nemesis.load import LOGGER, Worker
from tests.nemesis.recorder import Recorder

from ottla.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

SOURCE = Path(__file__).parents[1] / "conformance" / "WordCount.java"
GROUP, LINES, COUNTS = "word-count", "lines", "counts"
PARTITIONS, REPLICAS, THREADS = 3, 3, 2
EVERY_S = 0.05
COUNTED_S_MAX = 80.0
END_S_MAX = 30.0
SETTINGS = (
    "group.protocol=streams",
    "processing.guarantee=exactly_once_v2",
    f"replication.factor={REPLICAS}",
    f"num.stream.threads={THREADS}",
    # Ten seconds by default: on a busy machine a node is not replaced in that time, and an
    # application whose transaction was aborted by its coordinator ends.
    "producer.transaction.timeout.ms=60000",
)


def words(number: int) -> list[str]:
    """Return the words of a line."""
    return ["all", f"b{number % 7}", f"c{number % 3}"]


class WordCounter(Worker):
    """Writes lines while the application counts their words; checks all counts at the end."""

    def __init__(self, recorder: Recorder, cluster: MixedCluster, directory: Path) -> None:
        super().__init__("streams", recorder)
        self._cluster = cluster
        self._settings = {"bootstrap.servers": cluster.bootstrap}
        self._directory = directory
        self._output = directory / "streams.out"
        self.counted: dict[str, list[int]] = {}
        self.lines = 0

    def run(self) -> None:
        self._create_topics()
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                [*bound_to_us(), *self._command()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        try:
            self._write()
            self._check()
            self._end(process)
        finally:
            process.kill()
            process.wait()

    def _create_topics(self) -> None:
        admin = AdminClient(dict(self._settings), logger=LOGGER)
        wanted = [NewTopic(name, PARTITIONS, REPLICAS) for name in (LINES, COUNTS)]
        for future in admin.create_topics(wanted).values():
            future.result(END_S_MAX)

    def _command(self) -> list[str]:
        where = (self._settings["bootstrap.servers"], str(self._directory / "streams-state"))
        logging = self._directory / "streams-log4j2.properties"
        logging.write_text(LOGGING.replace("rootLogger.level=info", "rootLogger.level=warn"))
        return java(TARGET, str(SOURCE), *where, *SETTINGS, logging=logging)

    def _write(self) -> None:
        producer = Producer(
            {**self._settings, "client.id": self.name, "enable.idempotence": True}, logger=LOGGER
        )
        while not self.stopping.wait(EVERY_S):
            line = " ".join(words(self.lines)).encode()
            producer.produce(LINES, line, str(self.lines).encode())
            self.lines += 1
            producer.poll(0)
        if producer.flush(END_S_MAX):
            self.recorder.complain("streams: lines were not acknowledged")

    def _check(self) -> None:
        """Wait until all lines are counted, and check that each word was counted up by one."""
        wanted: dict[str, int] = {}
        for number in range(self.lines):
            for word in words(number):
                wanted[word] = wanted.get(word, 0) + 1
        if not self._read_to(sum(wanted.values())):
            found = {word: len(counts) for word, counts in self.counted.items()}
            self.recorder.complain(f"streams: counted {found} instead of {wanted}")
        for word, counts in self.counted.items():
            if counts != list(range(1, len(counts) + 1)):
                self.recorder.complain(f"streams: {word} was counted {counts}")

    def _read_to(self, total: int) -> bool:
        """Read counts until there are so many; return whether there were in time."""
        settings = {"group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer(
            {**self._settings, **settings, "isolation.level": "read_committed"}, logger=LOGGER
        )
        consumer.assign([TopicPartition(COUNTS, each, 0) for each in range(PARTITIONS)])
        deadline, found = time.monotonic() + COUNTED_S_MAX, 0
        while found < total and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    found += 1
                    counts = self.counted.setdefault(message.key().decode(), [])
                    counts.append(int(message.value()))
        consumer.close()
        return found == total

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End the application; all its threads must still be members of the streams group."""
        try:
            wait_until(lambda: self._members() == THREADS, END_S_MAX, "members of a streams group")
            process.communicate(timeout=END_S_MAX)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            text = self._output.read_text(errors="replace")[-4000:]
            self.recorder.complain(f"streams: {error}: {text}")

    def _members(self) -> int:
        """Return how many members the group's coordinator knows; 0 unless the group is stable."""
        for node_id in self._cluster.brokers:
            reply = ask(self._cluster.address(node_id), StreamsGroupDescribeRequest([GROUP]))
            if isinstance(reply, StreamsGroupDescribeResponse):
                for group in reply.groups:
                    if group.error_code == 0 and group.group_state == "Stable":
                        return len(group.members)
        return 0
