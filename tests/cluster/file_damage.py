"""Damages one file of one replica of three real processes, and checks what the cluster holds then.

A trial is a file, a kind of damage and a state of its node; everything else follows from a seed.
A writer runs all the time: transactions over three partitions, some of them aborted. After the
repair the three replicas are equal batch by batch, and a client that reads from the damaged
replica gets what was acknowledged: read_uncommitted every record at its offset, read_committed
those of the committed transactions only.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path

from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import read_header
from ottla.testing import Cluster

TOPIC = "t"
PARTITIONS = 3
NODES = (1, 2, 3)
LOG_START = 4
"""Records before it are deleted at first, so that all checkpoints have a line."""
SEGMENTS_MIN = 4
CONFIG = {
    "log.scrub.enable": "true",
    "log.scrub.interval.ms": "500",
    "log.scrub.max.bytes.per.second": "100000000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
}
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.ms": "400", "retention.ms": "-1"}

KINDS = ("flip", "cut", "empty", "remove", "garbage", "stale", "swap")
STATES = ("stopped", "killed", "running")
OF_DIRECTORY = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
)
OF_PARTITION = (
    "first .log",
    "sealed .log",
    "active .log",
    "sealed .index",
    "sealed .timeindex",
    "active .timeindex",
    "sealed .txnindex",
    "sealed .snapshot",
    "active .snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "segment-inventory",
)
FILES = (*OF_DIRECTORY, *OF_PARTITION)
READ_AGAIN = (".log", ".index", ".timeindex", ".txnindex")
"""Files that a running node reads again; others are read by its next start."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One damage."""

    file: str
    kind: str
    state: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.file}, node {self.state}"


def all_trials(files: tuple[str, ...] = FILES) -> Iterator[Trial]:
    """Yield every damage of the files. Only a clean stop leaves the mark of one."""
    for file, kind, state in product(files, KINDS, STATES):
        if file != ".kafka_cleanshutdown" or state == "stopped":
            yield Trial(file, kind, state)


# -- the damage --------------------------------------------------------------------


def choose_file(data: Path, partition: int, file: str) -> Path | None:
    """Return the path of a file to damage; None if the replica has none of its kind."""
    if file in OF_DIRECTORY:
        path = data / file
        return path if path.exists() else None
    directory = data / f"{TOPIC}-{partition}"
    place, _, suffix = file.rpartition(" ")
    if not place:
        return directory / file
    bases = [path.stem for path in live_segments(directory)]
    wanted = {"first": bases[:1], "sealed": bases[1:-1], "active": bases[-1:]}[place]
    paths = [directory / f"{base}{suffix}" for base in wanted]
    return next((path for path in paths if path.exists()), None)


def live_segments(directory: Path) -> list[Path]:
    """Return the segments from the log start on, in order; those below are deleted some time."""
    segments = sorted(directory.glob("*.log"))
    below = [segment for segment in segments if int(segment.stem) <= LOG_START]
    return segments[max(0, len(below) - 1) :]


def batches_of(directory: Path) -> list[tuple[int, str]]:
    """Return base offset and digest of the batches from the log start on; those on disk.

    Raises:
        OSError, CorruptBatch, UnsupportedMagic: it is damaged, or is being replaced.
    """
    batches: list[tuple[int, str]] = []
    for segment in live_segments(directory):
        data, at = segment.read_bytes(), 0
        while at < len(data):
            header = read_header(data, at)
            batches.append((header.base_offset, sha256(data[at : at + header.size]).hexdigest()))
            at += header.size
    return [batch for batch in batches if batch[0] >= LOG_START]


def contents(data: Path) -> dict[Path, bytes]:
    """Return the files of a log directory that a trial may damage."""
    paths = [data / name for name in OF_DIRECTORY]
    for partition in range(PARTITIONS):
        paths += (data / f"{TOPIC}-{partition}").glob("*")
    found = {}
    for path in paths:
        try:
            found[path] = path.read_bytes()
        except FileNotFoundError:
            continue  # removed by the running node meanwhile
    return found


def damage(path: Path, kind: str, old: dict[Path, bytes], chance: random.Random) -> None:
    """Damage a file in place."""
    data = path.read_bytes()
    place = chance.randrange(max(1, len(data)))
    match kind:
        case "flip" if data:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)])
                             + data[place + 1 :])  # fmt: skip
        case "cut":
            path.write_bytes(data[:place])
        case "empty" | "flip":
            path.write_bytes(b"")
        case "remove":
            path.unlink()
        case "garbage":
            path.write_bytes(chance.randbytes(1 + chance.randrange(300)))
        case "stale":
            path.write_bytes(old.get(path, b""))
        case "swap":
            others = [other for other in sorted(path.parent.glob(f"*{path.suffix}"))
                      if other != path and other.is_file() and path.suffix]  # fmt: skip
            other = chance.choice(others) if others else None
            path.write_bytes(other.read_bytes() if other else data[::-1])
            if other is not None:
                other.write_bytes(data)


# -- the load ----------------------------------------------------------------------


@dataclass(slots=True)
class Ledger:
    """What was sent and acknowledged. A transaction whose end is unknown is in neither list."""

    delivered: dict[tuple[int, int], bytes] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)

    def on_delivery(self, error: object, message: Message) -> None:
        if error is None:
            self.delivered[message.partition(), message.offset()] = message.value()


class Writer:
    """Writes transactions in a thread until it is paused."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self.ledger = Ledger()
        self._bootstrap, self._chance = bootstrap, chance
        self._number = 0
        self._is_paused, self._idle, self._ended = False, threading.Event(), threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(SECONDS_MAX)

    def pause(self) -> None:
        """Wait until the current transaction has ended, and begin no other."""
        self._wake.clear()
        self._idle.clear()
        self._is_paused = True
        assert self._idle.wait(SECONDS_MAX), "the writer does not end its transaction"

    def resume(self) -> None:
        self._is_paused = False
        self._wake.set()

    def _run(self) -> None:
        producer = self._connect()
        while not self._ended.wait(0.02):
            if self._is_paused:
                self._idle.set()
                self._wake.wait(SECONDS_MAX)
                continue
            try:
                self._write(producer)
            except KafkaException:
                producer = self._connect()

    def _connect(self) -> Producer:
        """Begin with a new producer, which ends the transaction of the one before."""
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "writer"}
        while True:
            producer = Producer({**settings, "linger.ms": 0, "log_level": 0})
            with suppress(KafkaException):
                producer.init_transactions(SECONDS_MAX)
                return producer
            if self._ended.is_set():
                return producer

    def _write(self, producer: Producer) -> None:
        values = [b"%d-%d" % (self._number, partition) for partition in range(PARTITIONS)]
        self._number += 1
        self.ledger.sent.update(values)
        producer.begin_transaction()
        for partition, value in enumerate(values):
            producer.produce(TOPIC, value, partition=partition, on_delivery=self.ledger.on_delivery)
        assert producer.flush(SECONDS_MAX) == 0
        if self._chance.random() < 0.3:
            producer.abort_transaction(SECONDS_MAX)
            self.ledger.aborted.update(values)
        else:
            producer.commit_transaction(SECONDS_MAX)
            self.ledger.committed.update(values)


# -- the run -----------------------------------------------------------------------


class DamageRun:
    """Trials on one cluster."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.writer = Writer(cluster.bootstrap, random.Random(seed + 1))
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.trial: Trial | None = None
        self.done: list[Trial] = []

    def run(self, trials: list[Trial]) -> None:
        """Run all trials; those whose file does not exist yet are run after the others."""
        self._prepare()
        with self.writer:
            self._wait(self._has_segments, "segments")
            self._delete_first()
            waiting = list(trials)
            for _ in range(2):
                waiting = [trial for trial in waiting if not self._run_one(trial)]
        assert not waiting, f"no such file: {', '.join(map(str, waiting))}"

    def _prepare(self) -> None:
        topic = NewTopic(TOPIC, PARTITIONS, len(NODES), config=TOPIC_CONFIG)
        self._wait(lambda: self._creates(topic), "the topic")

    def _creates(self, topic: NewTopic) -> bool:
        try:
            self.admin.create_topics([topic])[TOPIC].result(60)
        except KafkaException as error:
            return "exists" in str(error).lower()
        return True

    def _delete_first(self) -> None:
        starts = [TopicPartition(TOPIC, number, LOG_START) for number in range(PARTITIONS)]
        for deleted in self.admin.delete_records(starts).values():
            deleted.result(60)

    def _run_one(self, trial: Trial) -> bool:
        self.trial = trial
        chance, cluster = self.chance, self.cluster
        victim, partition = chance.choice(NODES), chance.randrange(PARTITIONS)
        data = cluster.data(victim)
        old = contents(data)
        count = len(self.writer.ledger.committed)
        self._wait(lambda: len(self.writer.ledger.committed) >= count + 12, "writes")
        self._wait(self._has_segments, "segments")
        if trial.state == "stopped":
            cluster.stop(victim)
        elif trial.state == "killed":
            cluster.kill(victim)
        path = choose_file(data, partition, trial.file)
        if path is not None:
            damage(path, trial.kind, old, chance)
        if trial.state == "running" and not trial.file.endswith(READ_AGAIN):
            cluster.kill(victim)
        if victim not in cluster.running:
            cluster.start(victim)
        if path is None:
            return False
        self._elect(victim, partition)
        self._check(victim)
        self.done.append(trial)
        print(f"{len(self.done)}: {trial}, node {victim}, {path.name}", flush=True)
        return True

    def _elect(self, victim: int, partition: int) -> None:
        """Sometimes kill the leader, unless it is the damaged node: one fault at a time."""
        leader = self.leaders().get(partition, -1)
        if self.chance.random() < 0.4 and leader not in (-1, victim):
            self.cluster.kill(leader)
            self.cluster.start(leader)

    # -- checks ------------------------------------------------------------------

    def _check(self, victim: int) -> None:
        self._wait(self._are_in_sync, "all replicas in sync")
        self.writer.pause()
        self._wait(self._are_equal, "equal replicas")
        self._lead(victim)
        records = {level: self._read(level) for level in ("read_uncommitted", "read_committed")}
        self._compare(**records)
        assert self._are_equal(), f"replicas differ after {self.trial}"
        self.writer.resume()

    def _compare(
        self, read_uncommitted: dict[tuple[int, int], bytes],
        read_committed: dict[tuple[int, int], bytes],
    ) -> None:  # fmt: skip
        ledger = self.writer.ledger
        kept = {at: value for at, value in ledger.delivered.items() if at[1] >= LOG_START}
        wrong = [at for at, value in kept.items() if read_uncommitted.get(at) != value]
        assert not wrong, f"{len(wrong)} records lost, first {min(wrong)}, after {self.trial}"
        assert set(read_uncommitted.values()) <= ledger.sent, f"unknown records: {self.trial}"
        visible = list(read_committed.values())
        assert len(visible) == len(set(visible)), f"doubled records after {self.trial}"
        shown = set(visible) & ledger.aborted
        assert not shown, f"{len(shown)} aborted records are visible after {self.trial}"
        lost = {value for value in kept.values() if value in ledger.committed} - set(visible)
        assert not lost, f"{len(lost)} committed records are not visible after {self.trial}"
        assert len(kept) > PARTITIONS, "nothing was read"

    def _read(self, isolation: str) -> dict[tuple[int, int], bytes]:
        settings = {"bootstrap.servers": self.cluster.bootstrap, "group.id": "check"}
        consumer = Consumer(
            {**settings, "isolation.level": isolation, "enable.partition.eof": True, "log_level": 0}
        )
        numbers = range(PARTITIONS)
        consumer.assign([TopicPartition(TOPIC, number, LOG_START) for number in numbers])
        records: dict[tuple[int, int], bytes] = {}
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{isolation} does not reach the end after {self.trial}"
            if message.error() is None:
                records[message.partition(), message.offset()] = message.value()
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
        consumer.close()
        return records

    def _lead(self, victim: int) -> None:
        """Let every node lead the partition it is preferred for, the damaged one among them."""

        def leads() -> bool:
            wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            self.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(60)
            return victim in self.leaders().values()

        self._wait(leads, f"node {victim} as a leader")

    def leaders(self) -> dict[int, int]:
        try:
            topic = self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
        except KafkaException:
            return {}
        return {number: each.leader for number, each in topic.partitions.items()}

    def _are_in_sync(self) -> bool:
        try:
            topic = self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
        except KafkaException:
            return False
        partitions = topic.partitions.values()
        return len(partitions) == PARTITIONS and all(
            sorted(each.isrs) == list(NODES) and each.leader > 0 for each in partitions
        )

    def _are_equal(self) -> bool:
        return all(
            self._batches(NODES[0], number) == self._batches(node, number)
            for node in NODES[1:]
            for number in range(PARTITIONS)
        )

    def _batches(self, node: int, number: int) -> list[tuple[int, str]]:
        try:
            return batches_of(self.cluster.data(node) / f"{TOPIC}-{number}")
        except (OSError, CorruptBatch, UnsupportedMagic):
            return [(-1, str(node))]

    def _has_segments(self) -> bool:
        return self._are_in_sync() and all(
            len(list((self.cluster.data(node) / f"{TOPIC}-{number}").glob("*.log"))) >= SEGMENTS_MIN
            for node in NODES
            for number in range(PARTITIONS)
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(self.cluster.output(node)[-2000:] for node in NODES)
                raise AssertionError(f"no {what} after {self.trial}\n{logs}")
            time.sleep(0.1)
