"""The latency of a producer while its broker copies other topics to remote storage.

Three processes: the node (``ottla server``), the producer, and this one, which starts the copies
and waits for them. A round measures three times: nothing is copied; a process that has nothing to
do with the node uploads the segments, which shows what the machine itself costs; the node copies.

    python -m benchmarks.copy_latency
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.bare_store import BareDirectory
from benchmarks.report import Row, render, spread
from ottla.runtime.randomness import SystemRandom
from ottla.testing import run_node
from ottla.tiering.store_settings import DIRECTORY

AREA = "tiering"
ROUNDS = 5
MIB = 1 << 20
RATE = 1000
QUIET_S = 4.0
WAIT_S_MAX = 120.0
RATIO_MAX = 1.2


class Load(NamedTuple):
    """What is copied: the sealed segments of a topic; its last segment stays on the disk."""

    segments: int
    segment_bytes: int

    def __str__(self) -> str:
        size = self.segment_bytes // MIB
        return f"{self.segments} segment{'s' * (self.segments > 1)} of {size} MiB"


LOADS = (
    Load(1, 1023 * MIB),  # as large as Kafka's segments are by default
    Load(15, 32 * MIB),  # small ones: each costs some commits of the disk's journal
)


# -- the producer, a process of its own --------------------------------------------------


def produce(bootstrap: str) -> None:
    """Send `RATE` records per second; for each line of standard input print the latencies since.

    A line is a JSON list of milliseconds. The end of standard input ends the process.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    taken: list[float] = []
    asked: list[str] = []

    def note(began: float, error: object, message: object) -> None:
        taken.append((time.perf_counter() - began) * 1000)

    def watch() -> None:
        for line in sys.stdin:
            asked.append(line)
        asked.append("")

    threading.Thread(target=watch, daemon=True).start()
    due = time.perf_counter()
    while True:
        began = time.perf_counter()
        producer.produce("hot", b"x" * 200, on_delivery=partial(note, began))
        due = max(due + 1 / RATE, time.perf_counter() - 1)
        producer.poll(0)
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)  # returns after the first delivery, too
        if asked:
            if not asked.pop(0):
                return
            print(json.dumps(taken), flush=True)
            taken.clear()


class ProducerProcess:
    """The process of `produce`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        command = [sys.executable, "-m", "benchmarks.copy_latency", "produce", bootstrap]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def take(self) -> list[float]:
        """Return the latencies since the last call, in milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("take\n")
        self._process.stdin.flush()
        found: list[float] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(30)


# -- the copies --------------------------------------------------------------------------


def upload(source: str, target: str) -> None:
    """Upload all segments below a directory to another one, as a store without a broker."""
    objects = BareDirectory(target)

    segments = sorted(Path(source).glob("*.log"))[:-1]

    async def all_segments() -> None:
        for path in segments:
            await objects.put_file(path.name, str(path))

    asyncio.run(all_segments())
    os._exit(0)  # threads of obstore may outlive the interpreter


def fill(admin: AdminClient, bootstrap: str, topic: str, load: Load) -> None:
    """Write a topic that is tiered, but not copied yet."""
    config = {
        "remote.storage.enable": "true",
        "remote.log.copy.disable": "true",
        "segment.bytes": str(load.segment_bytes),
    }
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": MIB, "linger.ms": 5})
    value = SystemRandom().bytes(100_000)
    for _ in range((load.segments * load.segment_bytes + 2 * MIB) // len(value)):
        producer.produce(topic, value)
        producer.poll(0)
        if len(producer) > 300:
            producer.flush(30)
    producer.flush(60)


def begin_copies(admin: AdminClient, topic: str) -> None:
    """Let the node copy a topic."""
    entry = ConfigEntry(
        "remote.log.copy.disable", "false", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def wait_for(is_done: Callable[[], bool]) -> None:
    """Wait for a condition, without using much of a core."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Found(NamedTuple):
    """The p50 and p99 of a round in milliseconds, and its megabytes per second copied."""

    p50: float
    p99: float
    speed: float


def found(taken: list[float], copied: int, elapsed: float) -> Found:
    """Return the figures of a round."""
    ordered = sorted(taken)
    p99 = ordered[int(len(ordered) * 0.99)]
    return Found(statistics.median(ordered), p99, copied / 1e6 / elapsed)


def one_round(
    root: Path, number: int, admin: AdminClient, producer: ProducerProcess, load: Load
) -> dict[str, Found]:
    """Measure without copies, with the upload of another process, and with copies by the node."""
    topic = f"bulk-{number}"
    fill(admin, producer.bootstrap, topic, load)
    subprocess.run(["sync", "-f", str(root)], check=True)
    time.sleep(1)
    result = {}

    def measure(name: str, work: Callable[[], object]) -> None:
        producer.take()
        began = time.perf_counter()
        work()
        elapsed = time.perf_counter() - began
        result[name] = found(producer.take(), load.segments * load.segment_bytes, elapsed)
        subprocess.run(["sync", "-f", str(root)], check=True)
        time.sleep(0.5)

    measure("quiet", lambda: time.sleep(QUIET_S))
    log = next((root / "node").rglob(f"{topic}-0"))
    bare = [sys.executable, "-m", "benchmarks.copy_latency", "upload", str(log)]
    measure("bare", lambda: subprocess.run([*bare, str(root / f"bare-{number}")], check=True))
    store, wanted = root / "tier", (number + 1) * load.segments

    def copy() -> None:
        begin_copies(admin, topic)
        wait_for(lambda: sum(1 for _ in store.rglob("*.manifest")) >= wanted)

    measure("copy", copy)
    return result


def measured(root: Path, load: Load) -> list[dict[str, Found]]:
    """Run a node and a producer, and measure `ROUNDS` times."""
    config = {
        "remote.log.storage.system.enable": True,
        "remote.log.storage.manager.class.name": DIRECTORY,
        "rsm.config.directory": str(root / "tier"),
        "remote.log.metadata.manager.class.name": "memory",
    }
    with run_node(processes=True, config=config, directory=root / "node") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("hot", 1, 1)])["hot"].result(30)
        producer = ProducerProcess(node.bootstrap)
        try:
            time.sleep(2)
            return [one_round(root, n, admin, producer, load) for n in range(ROUNDS)]
        finally:
            producer.close()


def rows(taken: list[dict[str, Found]], load: Load) -> list[Row]:
    """Return the claims on the latency and on the speed meanwhile."""

    def median(name: str) -> Found:
        columns = zip(*(each[name] for each in taken), strict=True)
        return Found(*(statistics.median(column) for column in columns))

    quiet, bare, copy = median("quiet"), median("bare"), median("copy")
    ratios = [each["copy"].p99 / each["quiet"].p99 for each in taken]
    floors = [each["bare"].p99 / each["quiet"].p99 for each in taken]
    ratio, floor = statistics.median(ratios), statistics.median(floors)
    speed = statistics.median(each["copy"].speed / each["bare"].speed for each in taken)
    is_or_are = "are" if load.segments > 1 else "is"
    what = f"produce p99 at {RATE:,} per s while {load} {is_or_are}"
    reference = f"without, {quiet.p99:.2f} ms"
    return [
        Row(
            AREA,
            f"{what} copied",
            f"{copy.p99:.2f} ms ({spread(ratios)})",
            reference,
            ratio,
            f"at most {RATIO_MAX}",
            ratio <= RATIO_MAX,
        ),
        Row(
            AREA,
            f"{what} uploaded by another process",
            f"{bare.p99:.2f} ms ({spread(floors)})",
            reference,
            floor,
            "reported",
            True,
        ),
        Row(
            AREA,
            f"speed of the copy of {load} meanwhile",
            f"{copy.speed:.0f} MB/s",
            f"the other process, {bare.speed:.0f} MB/s",
            speed,
            ">= 0.5",
            speed >= 0.5,
        ),
    ]


def run() -> list[Row]:
    """Measure everything."""
    found: list[Row] = []
    for load in LOADS:
        with tempfile.TemporaryDirectory(prefix="ottla-tier-") as temporary:
            found += rows(measured(Path(temporary), load), load)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        produce(sys.argv[2])
    elif sys.argv[1:2] == ["upload"]:
        upload(*sys.argv[2:])
    else:
        print(render(run()))
