"""Kills parts of a running stream at random moments, and checks that no row is lost or doubled.

    make kills FLOW=delta KILLS=25 SEED=7

Kills the driver with all of its processes, a Python worker, the process that plans the stream, an
executor (a process of its own with the master ``local-cluster``), or the broker. A driver that has
ended for any reason is started again, with other options than before. While this happens a producer
writes numbers, some of them unreadable; at the end the result must have each number once, and the
dead-letter topic each unreadable record once. Every kill is a line of a journal: its number, kind,
moment, and the micro-batch before it.

Only processes that were alive when SIGKILL was sent to them count as kills. A stream without a
committed micro-batch for `LIMIT_S` has stalled, and the run fails. The last lines of the journal
say which times without a commit were the longest, and what filled them (`commit_gaps`).
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster, run_node

try:
    from commit_gaps import Event, describe, gaps, parse_phases
except ImportError:  # as a module of the package: python -m tests.pipeline.kills
    from tests.pipeline.commit_gaps import Event, describe, gaps, parse_phases

HERE = Path(__file__).parent
PARTITIONS = 3
POISON_EVERY = 17
READ_S = 600.0
LIMIT_S = 300.0
"""The longest time without a committed micro-batch; a driver takes 80 s to start at load 10."""
KINDS = ("driver", "worker", "executor", "planner", "broker")
WEIGHTS = (1, 2, 2, 1, 2)
"""Of random kills: a driver takes longest to start again, after its own kill or its planner's."""
LOCAL = "local[2,8]"
CLUSTER = "local-cluster[2,1,768]"
"""Two executors with one core and 768 MiB each, as processes of their own."""
WORKER = b"pyspark.daemon\0pyspark.worker\0"
PLANNER = b"python_streaming_source_runner"
EXECUTOR = b"CoarseGrainedExecutorBackend"
# Every Spark partition is a transaction of its own: few hundreds in a batch, not thousands.
OPTIONS: tuple[dict[str, str], ...] = (
    {"maxOffsetsPerTrigger": "1000"},
    {"maxBytesPerPartition": "2000", "maxOffsetsPerTrigger": "400"},
    {"minPartitions": "5"},
    {"maxRecordsPerPartition": "40", "maxOffsetsPerTrigger": "400"},
)
PAUSE_S = 0.1
"""Between two records."""
BACKLOG_MAX = 600
"""The producer waits when so many records are not in a committed batch: a busy machine is slow."""


@dataclass
class Outcome:
    """What happened and what was found."""

    flow: str
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    produced: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    dead_lost: int = 0
    dead_doubled: int = 0
    seconds: float = 0.0
    longest_gap_s: float = 0.0

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.dead_lost or self.dead_doubled)


class Harness:
    """One stream, its producer and its broker."""

    def __init__(
        self,
        node: Cluster,
        root: Path,
        flow: str,
        seed: int,
        *,
        python: str = sys.executable,
        master: str = CLUSTER,
        journal: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.node = node
        self.root = root
        self.flow = flow
        self.random = random.Random(seed)
        self.python = python
        self.master = master
        self._journal = journal
        self.outcome = Outcome(flow)
        self.driver: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._producing = threading.Thread(target=self._produce)
        self._events: list[Event] = []
        self._steps: dict[Path, Event] = {}

    # -- the parts ---------------------------------------------------------------

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.node.bootstrap})
        topics = [NewTopic(each, PARTITIONS, 1) for each in ("numbers", "copy", "dead")]
        for created in admin.create_topics(topics).values():
            created.result(60)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 600_000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        while not self._stopped.wait(PAUSE_S):
            producer.poll(0)
            if self.outcome.produced - self._committed_records() >= BACKLOG_MAX:
                continue
            number = self.outcome.produced
            value = f"bad {number}" if number % POISON_EVERY == 3 else json.dumps({"n": number})
            producer.produce("numbers", value, partition=number % PARTITIONS)
            self.outcome.produced += 1
        assert producer.flush(600) == 0

    def start_driver(self) -> None:
        options = json.dumps(self.random.choice(OPTIONS))
        words = [self.flow, self.node.bootstrap, str(self.root), self.master, options]
        environment = {key: text for key, text in os.environ.items() if "SPARK" not in key}
        with (self.root / "driver.log").open("ab") as log:
            self.driver = subprocess.Popen(
                [self.python, str(HERE / "kills_driver.py"), *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        self._note("start")
        self.outcome.starts += 1
        self._journal(f"start {self.outcome.starts} with {options}")

    def ensure_driver(self) -> None:
        """Start the driver again if it has ended."""
        if self.driver is None or self.driver.poll() is not None:
            self.start_driver()

    def kill_driver(self) -> bool:
        """Kill the driver with its processes; False if it had ended before."""
        if self.driver is None:
            return False
        is_alive = self.driver.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait(60)
        return is_alive

    def _members(self, sign: bytes) -> list[int]:
        """Return the processes of the driver's group whose command line has ``sign``."""
        assert self.driver is not None
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                group = int((each / "stat").read_text().rpartition(")")[2].split()[3])
                if group == self.driver.pid and sign in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
            except (OSError, IndexError, ValueError):
                continue
        return sorted(found)

    # -- faults --------------------------------------------------------------------

    def kill(self, kind: str) -> bool:
        """Inject one fault; False if there is nothing to kill."""
        match kind:
            case "driver":
                if not self.kill_driver():
                    return False
                self._note("kill of driver")
                self.start_driver()
            case "broker":
                self.node.kill(1)
                self._note("kill of broker")
                self.node.start(1)
                self._note("broker")
            case "executor":
                if not self._kill_one(self._members(EXECUTOR)):
                    return False
            case "worker":
                daemons = self._members(WORKER)
                if not self._kill_one(daemons[1:] or daemons):
                    return False
            case "planner":
                if not self._kill_one(self._members(PLANNER)):
                    return False
        if kind not in ("driver", "broker"):
            self._note(f"kill of {kind}")
        self.outcome.kills[kind] += 1
        return True

    def _random_kind(self) -> str:
        return self.random.choices(KINDS, WEIGHTS)[0]

    def _kill_one(self, victims: list[int]) -> bool:
        if not victims:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(victims), signal.SIGKILL)
            return True
        return False

    # -- progress --------------------------------------------------------------------

    def commits(self) -> int:
        return len(list((self.root / "checkpoint" / "commits").glob("[0-9]*")))

    def last_batch(self) -> int:
        numbers = [int(each.name) for each in (self.root / "checkpoint" / "commits").glob("[0-9]*")]
        return max(numbers, default=-1)

    def _note(self, what: str) -> None:
        self._events.append(Event(time.time(), what))

    def _observe(self) -> None:
        """Remember when batches were planned and committed: Spark deletes the files of old ones."""
        for what, place in (("plan", "offsets"), ("commit", "commits")):
            for file in (self.root / "checkpoint" / place).glob("[0-9]*"):
                with suppress(FileNotFoundError):
                    self._steps.setdefault(file, Event(file.stat().st_mtime, what))

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition as long as the stream commits micro-batches."""
        batch, deadline = self.last_batch(), time.monotonic() + LIMIT_S
        while not condition():
            self.ensure_driver()
            self._observe()
            if self.last_batch() > batch:
                batch, deadline = self.last_batch(), time.monotonic() + LIMIT_S
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"waiting for {what}: no micro-batch after {batch} in {LIMIT_S} s\n"
                    f"{self._logs()}"
                )
            time.sleep(0.1)
        self._observe()

    def _describe_gaps(self) -> None:
        """Journal the longest times without a commit, and what filled all the time."""
        phases = parse_phases((self.root / "driver.log").read_text(errors="replace"))
        found = gaps([*self._events, *self._steps.values(), *phases])
        self.outcome.longest_gap_s = max((gap.seconds for gap in found), default=0.0)
        for line in describe(found):
            self._journal(line)

    def _logs(self) -> str:
        """Return the ends of the logs, and which steps of a batch were reached."""
        found = []
        for name in ("driver.log", "spark.log"):
            file = self.root / name
            if file.exists():
                found.append(f"{name}: {file.read_text(errors='replace')[-3000:]}")
        steps = sorted(str(each.name) for each in (self.root / "checkpoint").glob("*/[0-9]*"))
        return "\n".join([*found, f"checkpoint: {steps}, {self.outcome}"])

    def run(self, kills: int, order: tuple[str, ...] = (), seconds: float = 1e9) -> Outcome:
        """Kill until the number or the time is reached, then let the stream finish and compare.

        ``order`` has the kinds of the first kills; the others are random.
        """
        began = time.monotonic()
        self.prepare()
        self._producing.start()
        try:
            self.ensure_driver()
            while self.outcome.kills.total() < kills and time.monotonic() - began < seconds:
                # A batch must finish between two kills: otherwise nothing is tested.
                before = self.last_batch()
                self.wait_for(lambda before=before: self.last_batch() > before, "a batch")
                time.sleep(self.random.random() * 1.5)
                index = self.outcome.kills.total()
                kind = order[index] if index < len(order) else self._random_kind()
                if self.kill(kind):
                    since = time.monotonic() - began
                    self._journal(
                        f"kill {index + 1}: {kind} at {since:.1f} s, after batch {before}, "
                        f"{self.outcome.produced} records"
                    )
        finally:
            self._stopped.set()
            self._producing.join(600)
        self.wait_for(self._is_finished, "the end")
        self.kill_driver()
        self._describe_gaps()
        self._compare()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _is_finished(self) -> bool:
        """Return whether a committed batch ends at the end of the topic."""
        return self._committed_records() >= self.outcome.produced

    def _committed_records(self) -> int:
        """Return the number of records up to the end of the last committed batch."""
        last = self.last_batch()
        if last < 0:
            return 0
        text = (self.root / "checkpoint" / "offsets" / str(last)).read_text()
        ends = json.loads(text.splitlines()[2])["topics"]["numbers"]["end"]
        return int(sum(ends.values()))

    # -- the result ------------------------------------------------------------------

    def _compare(self) -> None:
        dead = {number for number in range(self.outcome.produced) if number % POISON_EVERY == 3}
        good = set(range(self.outcome.produced)) - dead
        if self.flow == "topic":
            values = self._values("copy")
            counts = Counter(_number(value) for value in values)
            self._count(counts, good | dead)
            return
        self._count(Counter(self._rows()), good)
        letters = Counter(_number(value) for value in self._values("dead"))
        self.outcome.dead_lost = len(dead - letters.keys())
        self.outcome.dead_doubled = sum(each > 1 for each in letters.values())

    def _count(self, counts: Counter[int], expected: set[int]) -> None:
        assert counts.keys() <= expected, f"unknown rows: {sorted(counts.keys() - expected)[:5]}"
        self.outcome.lost = sorted(expected - counts.keys())
        self.outcome.doubled = sorted(number for number, count in counts.items() if count > 1)

    def _rows(self) -> list[int]:
        words = [self.flow, self.node.bootstrap, str(self.root), "local[2]", "read"]
        environment = {key: text for key, text in os.environ.items() if "SPARK" not in key}
        done = subprocess.run(
            [self.python, str(HERE / "kills_driver.py"), *words],
            capture_output=True,
            text=True,
            timeout=READ_S,
            env=environment,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
        assert lines, done.stderr[-3000:]
        found: list[int] = json.loads(lines[0].removeprefix("ROWS "))
        return found

    def _values(self, topic: str) -> list[bytes]:
        """Read a topic with read_committed to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "group.id": "kills",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([ConfluentPartition(topic, each, 0) for each in range(PARTITIONS)])
        found: list[bytes] = []
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, f"{topic} did not answer"
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append(message.value())
        consumer.close()
        return found


def _number(value: bytes) -> int:
    text = value.decode()
    return int(text.removeprefix("bad ")) if text.startswith("bad ") else int(json.loads(text)["n"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill parts of a stream and compare its result.")
    parser.add_argument("--flow", choices=["topic", "parquet", "delta", "iceberg"], required=True)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop killing after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--master", default=CLUSTER)
    parser.add_argument("--python", help="with a Spark that fits the flow; default: made for it")
    asked = parser.parse_args()
    python = asked.python or sys.executable
    if asked.python is None and asked.flow in ("delta", "iceberg"):
        from tools.spark_environments import environment_python, requirements_of

        python = str(environment_python(asked.flow, requirements_of(asked.flow)))
    with TemporaryDirectory(prefix="kills-") as place:
        root = Path(place)
        with run_node(processes=True, directory=root / "node") as node:
            harness = Harness(
                node,
                root,
                asked.flow,
                asked.seed,
                python=python,
                master=asked.master,
                journal=lambda line: print(line, flush=True),
            )
            try:
                outcome = harness.run(asked.kills, seconds=asked.seconds)
            finally:
                harness.kill_driver()
    print(f"seed {asked.seed}: {'exact' if outcome.is_exact else 'NOT EXACT'}: {outcome}")
    sys.exit(not outcome.is_exact)


if __name__ == "__main__":
    main()
