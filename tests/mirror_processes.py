"""Processes of ``ottla mirror run``, a load for the source, and a comparison of both clusters."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

PLAIN, TXNS = "plain", "txns"
PARTITIONS = 3
Config = Mapping[str, str]
"""Settings of a client by librdkafka's names, bootstrap.servers among them."""
Found = tuple[int, bytes | None, bytes | None, object, object]


def ottla(*arguments: str) -> list[str]:
    """Return the command line of an ``ottla`` command."""
    return [sys.executable, "-m", "ottla.cli.main", *arguments]


class MirrorProcess:
    """One ``ottla mirror run``; its output is in ``log``."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ottla("mirror", *arguments), stdout=output, stderr=output
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill it as ``kill -9`` does."""
        assert self.is_running, self.log.read_text()[-2000:]
        self._process.kill()
        self._process.wait(SECONDS_MAX)

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self._process.wait(SECONDS_MAX)

    def discard(self) -> None:
        if self.is_running:
            self._process.kill()
        self._process.wait(SECONDS_MAX)


def create_topics(config: Config) -> None:
    topics = [NewTopic(PLAIN, PARTITIONS, 1), NewTopic(TXNS, 1, 1)]
    admin = AdminClient(dict(config))
    for future in admin.create_topics(topics).values():
        future.result(SECONDS_MAX)


class Load:
    """Writes to the source until stopped: plain records, and transactions of which some abort."""

    def __init__(self, config: Config, seed: int) -> None:
        self.written = 0
        self._config = dict(config)
        self._random = random.Random(seed)
        self._failures: list[BaseException] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> int:
        """End the load once all is acknowledged; return how many plain records were written."""
        self._stopping.set()
        self._thread.join(SECONDS_MAX)
        assert not self._failures, self._failures
        return self.written

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # reported by `stop`
            self._failures.append(error)

    def _write(self) -> None:
        plain = Producer({**self._config, "enable.idempotence": "true"})
        writer = Producer({**self._config, "transactional.id": "writer"})
        writer.init_transactions(SECONDS_MAX)
        turn = 0
        while not self._stopping.is_set():
            for _ in range(self._random.randint(1, 200)):
                key = b"k%d" % (self.written % 11)
                partition = self.written % PARTITIONS
                plain.produce(PLAIN, b"%d" % self.written, key=key, partition=partition)
                self.written += 1
            assert plain.flush(SECONDS_MAX) == 0
            writer.begin_transaction()
            for number in range(self._random.randint(1, 20)):
                writer.produce(TXNS, b"%d-%d" % (turn, number))
            if self._random.random() < 0.3:
                writer.abort_transaction(SECONDS_MAX)
            else:
                writer.commit_transaction(SECONDS_MAX)
            turn += 1
            time.sleep(0.02)  # a steady load, not as much as the machine can write


def contents(config: Config, topic: str, partition: int, *, committed: bool) -> list[Found]:
    """Return every record of a partition: offset, key, value, headers, timestamp."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {**config, "group.id": "check", "enable.partition.eof": "true", "isolation.level": level}
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Found] = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{topic}-{partition}: no end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(
                (
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    message.headers(),
                    message.timestamp(),
                )
            )
    finally:
        consumer.close()


def assert_equal(source: Config, target: Config, written: int) -> None:
    """Check that the target has each committed record of the source once, in order.

    Offsets of plain records are preserved; those of transactions have no gaps.
    """
    total = 0
    for partition in range(PARTITIONS):
        theirs = contents(source, PLAIN, partition, committed=True)
        assert contents(target, PLAIN, partition, committed=False) == theirs
        assert [int(each[2] or b"") for each in theirs] == list(
            range(partition, written, PARTITIONS)
        )
        total += len(theirs)
    assert total == written
    theirs = contents(source, TXNS, 0, committed=True)
    ours = contents(target, TXNS, 0, committed=False)
    assert [each[1:] for each in ours] == [each[1:] for each in theirs]
    assert [each[0] for each in ours] == list(range(len(ours))) and ours


def end_of(config: Config, topic: str = PLAIN, partition: int = 0) -> int:
    """Return where a partition ends, 0 while it does not exist."""
    consumer = Consumer({**config, "group.id": "check"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10.0)
        return int(high)
    except Exception:
        return 0
    finally:
        consumer.close()


def kill_repeatedly(
    arguments: list[str], directory: Path, target: Config, kills: int, seed: int
) -> None:
    """Run a mirror and kill it at random moments: while it starts, and while it copies."""
    moments = random.Random(seed)
    for turn in range(kills):
        process = MirrorProcess(arguments, directory / "mirror.log")
        try:
            if moments.random() < 0.25:
                time.sleep(moments.uniform(0.3, 2.0))  # while it starts
            else:
                goal = end_of(target) + moments.randint(1, 300)
                wait_until(lambda: end_of(target) >= goal, f"progress in turn {turn}")  # noqa: B023
                time.sleep(moments.uniform(0.0, 0.3))
            process.kill()
        finally:
            process.discard()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
