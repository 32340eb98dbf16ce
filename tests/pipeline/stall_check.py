"""A second check of streams under kills, which shares no code with `kills`.

    python -m tests.pipeline.stall_check --flow parquet --kills 20 --seed 1

The broker is ``ottla up``, a table job ``ottla pipeline table``, each a process group of its own.
Killed are the driver with its processes, the broker, both at once, or the broker is paused for some
seconds. After each fault a micro-batch must be committed within the limit: a stall is a failure,
with the threads of the JVM in the log. Faults and true kills (a process that was alive and got
SIGKILL) are counted apart: a pause is no kill, and ``both`` is two. The result is read without
Spark: topics with librdkafka, tables from their files and logs.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

FAULTS = ("driver", "broker", "both", "pause")
PARTITIONS = 4
LIMIT_S = 180.0
"""The longest time for a micro-batch; a driver needs 80 s to start if the load is 10 on 2 cores."""
BAD_EVERY = 13
COMMAND = "from ottla.cli.app import app; app()"
COPY = """
import pathlib, sys
from ottla.spark.spark_home import use_installed_pyspark
bootstrap, root = sys.argv[1], pathlib.Path(sys.argv[2])
use_installed_pyspark(root / "home")
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
read = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
read = read.option("subscribe", "in").option("startingOffsets", "earliest").load()
write = read.selectExpr("value").writeStream.format("ottla").option("topic", "out")
write = write.option("kafka.bootstrap.servers", bootstrap).option("delivery", "exactly-once")
write.option("checkpointLocation", str(root / "checkpoint")).start().awaitTermination()
"""


class Parts:
    """The processes of one run."""

    def __init__(self, flow: str, root: Path, python: str) -> None:
        self.flow, self.root, self.python = flow, root, python
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.kills: Counter[str] = Counter()
        self.broker = self.start_broker()
        self.driver: subprocess.Popen[bytes] | None = None

    def _spawn(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def start_broker(self) -> subprocess.Popen[bytes]:
        data, port = str(self.root / "data"), str(self.port)
        return self._spawn("broker", [sys.executable, "-c", COMMAND, "up", "-d", data, "-p", port])

    def start_driver(self) -> None:
        if self.flow == "topic":
            words = [self.python, "-c", COPY, self.bootstrap, str(self.root)]
        else:
            job = str(self.root / "job.json")
            words = [self.python, "-c", COMMAND, "pipeline", "table", job, "--verbose"]
            words += ["--master", "local[2]", "--set", "spark.driver.memory=1g"]
        self.driver = self._spawn("driver", words)

    def write_job(self) -> None:
        table: dict[str, object] = {"format": self.flow, "path": str(self.root / "table")}
        if self.flow == "iceberg":
            table = {"format": "iceberg", "name": "lake.t.numbers"}
            table["warehouse"] = str(self.root / "lake")
        job = {
            "topic": "in",
            "bootstrap": self.bootstrap,
            "value": {"format": "json", "schema": "n bigint"},
            "table": {**table, "compact_files": 6},
            "checkpoint": str(self.root / "checkpoint"),
            "dead_letters": "bad",
            "trigger": "500 milliseconds",
        }
        (self.root / "job.json").write_text(json.dumps(job))

    def kill(self, process: subprocess.Popen[bytes] | None, what: str = "") -> None:
        """Kill a process with all that it has started, at once, and wait until they are gone.

        ``what`` counts it as a kill, if it was alive.
        """
        if process is None:
            return
        if what and process.poll() is None:
            self.kills[what] += 1
        victims = descendants(process.pid)
        for each in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()
        while any(is_alive(each) for each in victims):
            time.sleep(0.01)

    def inject(self, fault: str, pause_s: float) -> None:
        if fault in ("driver", "both"):
            self.kill(self.driver, "driver")
        if fault in ("broker", "both"):
            self.kill(self.broker, "broker")
            self.broker = self.start_broker()
        if fault == "pause":
            paused = descendants(self.broker.pid)
            for each in paused:
                os.kill(each, signal.SIGSTOP)
            time.sleep(pause_s)
            for each in paused:
                os.kill(each, signal.SIGCONT)

    def last_commit(self) -> int:
        commits = (self.root / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(each.name) for each in commits if each.name.isdigit()), default=-1)

    def dump_threads(self) -> None:
        """Let the JVM and Python of the driver write their threads to the log."""
        assert self.driver is not None
        for each in descendants(self.driver.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{each}/comm").read_text().strip() == "java":
                    os.kill(each, signal.SIGQUIT)


def descendants(root: int) -> list[int]:
    """Return a process and all that it and its children have started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for each in found:
        found += children.get(each, [])
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Feed(threading.Thread):
    """Produces numbers until it is stopped; every so often one is unreadable."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        super().__init__()
        self.bootstrap, self.rate = bootstrap, rate
        self.sent = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "message.timeout.ms": 900_000, "log_level": 0})
        while not self.stopped.wait(1 / self.rate):
            text = f"bad {self.sent}" if self.sent % BAD_EVERY == 5 else f'{{"n": {self.sent}}}'
            producer.produce("in", text, partition=self.sent % PARTITIONS)
            producer.poll(0)
            self.sent += 1
        assert producer.flush(900) == 0


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + 120
    while True:
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("in", "out", "bad")])
        errors = [future.exception(30) for future in made.values()]
        if all(each is None or "EXISTS" in str(each) for each in errors):
            return
        assert time.monotonic() < deadline, errors


def topic_numbers(bootstrap: str, topic: str) -> list[int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    numbers, ended = [], set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, f"{topic} cannot be read"
        if message.error():
            ended.add(message.partition())
        else:
            numbers.append(int(message.value().decode().strip('{"n: }').removeprefix("bad ")))
    consumer.close()
    return numbers


def parquet_files(table: Path) -> list[Path]:
    return [
        file
        for file in table.glob("**/*.parquet")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(table).parts)
    ]


def delta_files(table: Path) -> list[Path]:
    """Apply every commit of the log."""
    files: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("[0-9]*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.discard(action["remove"]["path"])
    return [table / name for name in files]


def iceberg_files(table: Path) -> list[Path]:
    """Follow the current snapshot of a catalog in a directory."""
    version = (table / "metadata" / "version-hint.text").read_text().strip()
    metadata = json.loads((table / "metadata" / f"v{version}.metadata.json").read_text())
    current = metadata["current-snapshot-id"]
    (snapshot,) = [each for each in metadata["snapshots"] if each["snapshot-id"] == current]
    files = []
    for manifest in _avro(snapshot["manifest-list"]):
        for entry in _avro(manifest["manifest_path"]):
            if entry["status"] != 2:  # deleted
                files.append(_local(entry["data_file"]["file_path"]))
    return files


def _avro(path: str) -> list[dict]:
    with _local(path).open("rb") as opened:
        return list(fastavro.reader(opened))


def _local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


def result(parts: Parts) -> list[int]:
    """Return every number in the result, without Spark."""
    match parts.flow:
        case "topic":
            return topic_numbers(parts.bootstrap, "out")
        case "parquet":
            files = parquet_files(parts.root / "table")
        case "delta":
            files = delta_files(parts.root / "table")
        case _:
            files = iceberg_files(parts.root / "lake" / "t" / "numbers")
    letters = topic_numbers(parts.bootstrap, "bad")
    rows = [n for file in files for n in pq.ParquetFile(file).read(["n"])["n"].to_pylist()]
    assert all(number % BAD_EVERY == 5 for number in letters)
    return rows + letters


def wait_for_commit(parts: Parts, above: int, limit_s: float) -> float:
    """Wait for a micro-batch above a number, and return how long it took."""
    began = time.monotonic()
    starts = 0
    while parts.last_commit() <= above:
        if parts.driver is None or parts.driver.poll() is not None:
            assert starts < 6, f"the driver does not stay up: {_tail(parts)}"
            parts.start_driver()
            starts += 1
        if time.monotonic() - began > limit_s:
            parts.dump_threads()
            time.sleep(3)
            log = Path(tempfile.gettempdir()) / f"stall-{parts.flow}-{parts.port}.log"
            log.write_bytes((parts.root / "driver.log").read_bytes())
            raise AssertionError(f"no micro-batch in {limit_s} s after {above}; see {log}")
        time.sleep(0.1)
    return time.monotonic() - began


def _tail(parts: Parts) -> str:
    return (parts.root / "driver.log").read_text(errors="replace")[-3000:]


def run(flow: str, kills: int, seed: int, python: str, limit_s: float, seconds: float) -> bool:
    """Run one stream under faults until so many kills; return whether its result is exact."""
    chance = random.Random(seed)
    began, kinds, longest = time.monotonic(), Counter[str](), 0.0
    with tempfile.TemporaryDirectory(prefix="stall-") as place:
        parts = Parts(flow, Path(place), python)
        feed = Feed(parts.bootstrap, rate=40)
        try:
            create_topics(parts.bootstrap)
            parts.write_job()
            feed.start()
            while parts.kills.total() < kills and time.monotonic() - began < seconds:
                last = parts.last_commit()
                took = wait_for_commit(parts, last, limit_s)
                longest = max(longest, took)
                time.sleep(chance.random() * 2)
                fault = chance.choice(FAULTS)
                parts.inject(fault, 1 + 5 * chance.random())
                kinds[fault] += 1
                print(f"{kinds.total()}: {fault}, after {took:.1f} s, batch {last + 1}", flush=True)
            feed.stopped.set()
            feed.join()
            missing = set(range(feed.sent))
            while missing:
                # Records may be in a micro-batch that is committed before they are looked for.
                with contextlib.suppress(AssertionError):
                    wait_for_commit(parts, parts.last_commit(), 15)
                missing = set(range(feed.sent)) - set(result(parts))
                assert time.monotonic() - began < seconds + 3 * limit_s, f"{len(missing)} missing"
            numbers = Counter(result(parts))
        finally:
            feed.stopped.set()
            parts.kill(parts.driver)
            parts.kill(parts.broker)
    doubled = sum(count > 1 for count in numbers.values())
    is_exact = not doubled and numbers.keys() == set(range(feed.sent))
    print(
        f"{flow} seed {seed}: {'exact' if is_exact else 'NOT EXACT'}: "
        f"faults {dict(kinds)}, kills {dict(parts.kills)}, "
        f"{feed.sent} records, {doubled} doubled, longest wait for a micro-batch {longest:.0f} s, "
        f"{time.monotonic() - began:.0f} s in all"
    )
    assert kinds.total(), "nothing was injected"
    return is_exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flow", choices=["topic", "parquet", "delta", "iceberg"], required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="stop killing after this time")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="longest time for a micro-batch"
    )
    parser.add_argument("--python", default=sys.executable, help="with a Spark for the flow")
    chosen = parser.parse_args()
    sys.exit(
        not run(chosen.flow, chosen.kills, chosen.seed, chosen.python, chosen.limit, chosen.seconds)
    )


if __name__ == "__main__":
    main()
