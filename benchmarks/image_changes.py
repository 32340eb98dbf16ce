"""How long an image that changes many partitions blocks the event loop of a broker.

    python -m benchmarks.image_changes [--partitions N ...]

A broker follows N partitions with real logs. Then their leader is fenced (this broker leads all of
them), and then all are led by another broker again. The longest time between two turns of the event
loop is printed, for the whole and for its steps: the decision of the active controller, decoding
and replaying the records of the batch, and applying the image to the partitions.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple, cast

from benchmarks.produce import CLUSTER, NOW
from benchmarks.report import Row, render
from ottla.controller.brokers import decide_fence
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision_settings import DecisionSettings
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import DEFAULT_VERSION
from ottla.metadata.replay import apply
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.node.controller.image_loader import Followers, ImageLoader
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord, RegisterBrokerRecord
from ottla.protocol.internal.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import NodeId, Offset, Uuid
from ottla.raft.applier import Applier
from ottla.raft.metadata_log import MetadataLog
from ottla.replication.fetching.fetcher_loop import BrokerConnection, Fetchers
from ottla.replication.host import Host, HostPorts, HostSettings
from ottla.replication.replicas import Replicas
from ottla.runtime.clock import SystemClock
from ottla.runtime.collector import settle
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Committer
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirPorts, format_directory, open_directories

AREA: Final = "image_changes"
HERE, OTHER = NodeId(1), 2
TOPICS: Final = 10
HOLD_MS_MAX: Final = 20.0
STEPS: Final = (
    "the controller fences the leader",
    "a broker leads after a fail-over",
    "a broker follows after an election in one batch",
)


def _topic_id(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([100 + number]))


def _registration(number: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=number,
        incarnation_id=_topic_id(number),
        broker_epoch=number * 10,
        rack=None,
        fenced=False,
    )


def _records(count: int) -> list[Versioned]:
    """Return the records that create the partitions, all led by another broker."""
    found = []
    for number in range(TOPICS):
        found.append(Versioned(TopicRecord(f"topic-{number}", _topic_id(number)), 0))
        for index in range(count // TOPICS):
            record = PartitionRecord(
                partition_id=index,
                topic_id=_topic_id(number),
                replicas=[OTHER, HERE],
                isr=[OTHER, HERE],
                leader=OTHER,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DIRECTORY_UNASSIGNED] * 2,
            )
            found.append(Versioned(record, 1))
    return found


def _elections(count: int) -> list[Versioned]:
    """Return the records that make the other broker the leader of all partitions again."""
    return [
        Versioned(
            PartitionChangeRecord(
                partition_id=index, topic_id=_topic_id(number), isr=[OTHER, HERE], leader=OTHER
            ),
            1,
        )
        for number in range(TOPICS)
        for index in range(count // TOPICS)
    ]


class LoopWatch:
    """Measures the longest time between two turns of the event loop."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._last = perf_counter()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(0)
            now = perf_counter()
            self.longest_ms = max(self.longest_ms, (now - self._last) * 1000)
            self._last = now

    def restart(self) -> None:
        """Forget what was measured."""
        self.longest_ms, self._last = 0.0, perf_counter()


class CommittedLog:
    """A metadata log of which everything is committed, as far as `Applier` reads it."""

    def __init__(self) -> None:
        self.end = Offset(0)
        self._batches: list[tuple[Offset, bytes]] = []

    def append(self, records: Sequence[Versioned]) -> None:
        """Append a batch."""
        values = [
            Record(Offset(self.end + at), NOW, None, encode_framed(record))
            for at, record in enumerate(records)
        ]
        self._batches.append((self.end, bytes(build_batch(values, base_offset=self.end))))
        self.end = Offset(self.end + len(records))

    def read(self, offset: Offset, bytes_max: int, upto: Offset) -> bytes:
        """Return batches from an offset on, at least one."""
        found = b""
        for base, batch in self._batches:
            if base >= offset and (not found or len(found) + len(batch) <= bytes_max):
                found += batch
        return found

    def latest_snapshot(self) -> None:
        """Return None: there is no snapshot."""

    def start_offset(self) -> Offset:
        """Return the first offset."""
        return Offset(0)


class Bench:
    """A broker with partitions in real files, and the metadata log it follows."""

    def __init__(self, folder: Path) -> None:
        ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
        format_directory(ports, str(folder), node_id=HERE, cluster_id=CLUSTER)
        directories = open_directories(ports, [str(folder)], node_id=HERE).online
        host_ports = HostPorts(ports.clock, ports.disk, ports.random, _no_committer)
        self.host = Host(HostSettings(node_id=HERE, static={}), directories, host_ports, lambda: 10)
        self.fetchers = Fetchers(self.host, _no_connection)
        self.replicas = Replicas(self.host, self.fetchers)
        self.loader = ImageLoader()
        self.loader.install(Followers(publishers=[self.replicas]))
        self.log = CommittedLog()
        self.applier = Applier(cast("MetadataLog", self.log), self.loader)
        self.watch = LoopWatch()
        self.led = 0
        self.host.partitions.on_led(self._led)
        self.host.partitions.on_unled(self._unled)

    async def commit(
        self, batches: Sequence[Sequence[Versioned]], is_done: Callable[[], bool]
    ) -> float:
        """Commit batches; return the longest block in ms until ``is_done``."""
        for batch in batches:
            self.log.append(batch)
        self.watch.restart()
        self.applier.advance(self.log.end)
        while not is_done():  # noqa: ASYNC110 - counts turns of the loop
            await asyncio.sleep(0)
        for _ in range(2):  # the turn that completed it counts, too
            await asyncio.sleep(0)
        return self.watch.longest_ms

    def _led(self, *_: object) -> None:
        self.led += 1

    def _unled(self, *_: object) -> None:
        self.led -= 1


async def _no_connection(broker: int) -> BrokerConnection:
    raise ConnectionRefusedError(f"broker {broker} does not run")


def _no_committer(path: str) -> Committer:
    raise AssertionError("nothing is synced here")


class Found(NamedTuple):
    """The longest blocks of the event loop, in ms."""

    decide: float
    fence: float
    elect: float


def fence(image: Image) -> tuple[list[list[Versioned]], float]:
    """Return the batches that fence the leader, and the ms of the longest slice of the decision.

    A slice is decided, replayed and encoded before the loop runs, as in the active controller.
    """
    epoch = image.cluster.brokers[OTHER].epoch
    settings = DecisionSettings(ConfigContext(node_id=HERE))
    batches, longest = [], 0.0
    began = perf_counter()
    decision = decide_fence(image, OTHER, epoch, settings)
    while True:
        image, _ = apply(image, [record.message for record in decision.records])
        for record in decision.records:
            encode_framed(record)
        batches.append(decision.records)
        longest = max(longest, perf_counter() - began)
        if decision.then is None:
            return batches, longest * 1000
        began = perf_counter()
        decision = decision.then(image)


async def measure(count: int, folder: Path) -> Found:
    """Fence the leader of so many partitions, then elect it again."""
    bench = Bench(folder)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(bench.replicas.run(lambda: None)),
            tasks.create_task(bench.applier.run()),
            tasks.create_task(bench.watch.run()),
        ]
        level = FeatureLevelRecord("metadata.version", DEFAULT_VERSION)
        brokers = [Versioned(_registration(each), 3) for each in (HERE, OTHER)]
        created = [Versioned(level, 0), *brokers, *_records(count)]
        await bench.commit([created], lambda: len(bench.host.partitions) == count)
        settle()  # as a node does once it serves
        fencing, decide_ms = fence(bench.loader.image)
        fence_ms = await bench.commit(fencing, lambda: bench.led == count)
        elect_ms = await bench.commit([_elections(count)], lambda: bench.led == 0)
        for task in running:
            task.cancel()
    return Found(decide_ms, fence_ms, elect_ms)


def run(counts: Sequence[int] = (1_000, 10_000)) -> list[Row]:
    """Return the rows of each number of partitions."""
    rows = []
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
            found = asyncio.run(measure(count, Path(name)))
        for what, ms in zip(STEPS, found, strict=True):
            rows.append(
                Row(
                    AREA,
                    f"{what}, {count:,} partitions, longest block of the event loop",
                    f"{ms:.1f} ms",
                    f"limit, {HOLD_MS_MAX:.0f} ms",
                    ms / HOLD_MS_MAX,
                    "reported",
                    True,
                )
            )
    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000])
    arguments = parser.parse_args()
    rows = run(arguments.partitions)
    print(render(rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
