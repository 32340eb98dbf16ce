"""Measure fail-over with real processes: kill -9 of one of three nodes under load, many times.

Each cluster has three combined nodes with default settings and one topic of twelve partitions with
three replicas. One writer per partition writes with acks=all all the time, and a consumer group
of librdkafka reads. Killed are, in turn, a leader that is not the active controller, and the active
controller, which leads partitions as well. Measured from the kill:

    writes    until every partition that the victim led has acknowledged a write
    changes   until a change of metadata is acknowledged, if the controller was killed
    records   until the group has read a record of every partition that was written after the kill

Before the next kill the node is restarted, all replicas are in sync and preferred leaders lead.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.broker.brokers import Missing, fetch_jars
from benchmarks.cluster import NODES, PRODUCE_VERSION, QUORUM, Three, running, three_of
from benchmarks.report import Row, render
from ottla.client.connection import Connection, Options
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Offset
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

AREA: Final = "failover"
TOPIC: Final = "written"
PARTITIONS: Final = 12
WRITE_S: Final = 0.02
LOOK_S: Final = 0.01
SETTLE_S_MAX: Final = 120.0
LEADER, CONTROLLER = "a leader", "the controller that leads, too"
OPTIONS: Final = Options(connect_timeout_ms=2_000)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many kills of each kind."""

    kills: int
    kafka_kills: int


FULL = Effort(30, 5)
QUICK = Effort(3, 1)


@dataclass(slots=True)
class FailOver:
    """Seconds from one kill; None for what does not apply."""

    writes: float
    changes: float | None = None
    records: float | None = None


class Load:
    """Writers of every partition, and the leaders as the nodes that answer report them."""

    def __init__(self, three: Three) -> None:
        self.three = three
        self.partitions: dict[int, MetadataResponsePartition] = {}
        self.written_at = dict.fromkeys(range(PARTITIONS), 0.0)
        self.read_at = dict.fromkeys(range(PARTITIONS), 0.0)
        self._lines: dict[int, Connection] = {}
        self._opening = {node: asyncio.Lock() for node in NODES}

    async def run(self) -> None:
        """Write and look until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                for partition in range(PARTITIONS):
                    tasks.create_task(self._write(partition))
        finally:
            for line in self._lines.values():
                await line.close()

    async def ask(self, node: int, request: Message, version: int | None = None) -> Message | None:
        """Return the reply of a node, None if there is none within seconds."""
        try:
            async with self._opening[node]:
                line = self._lines.get(node)
                if line is None or not line.is_open:
                    address = Address("127.0.0.1", self.three.nodes[node].port)
                    line = await Connection.open(TcpNetwork(), address, options=OPTIONS)
                    self._lines[node] = line
            reply: Message = await line.send(request, version=version, timeout_ms=6_000)
        except (OSError, Fault):
            return None
        return reply

    async def _look(self) -> None:
        """Ask the nodes for the leaders, in turn."""
        request = MetadataRequest([MetadataRequestTopic(name=TOPIC)], False)
        while True:
            for node in NODES:
                reply = await self.ask(node, request)
                if reply is not None and reply.topics[0].partitions:  # type: ignore[attr-defined]
                    found = reply.topics[0].partitions  # type: ignore[attr-defined]
                    self.partitions = {each.partition_index: each for each in found}
                await asyncio.sleep(LOOK_S)

    async def _write(self, partition: int) -> None:
        while True:
            began = monotonic()
            value = str(began).ljust(100).encode()
            batch = build_batch([Record(Offset(0), Millis(1_700_000_000_000), None, value)])
            rows = [PartitionProduceData(partition, memoryview(batch))]
            data = TopicProduceData(name=TOPIC, partition_data=rows)
            known = self.partitions.get(partition)
            if known is not None and known.leader_id in NODES:
                request = ProduceRequest(None, -1, 5_000, [data])
                reply = await self.ask(known.leader_id, request, PRODUCE_VERSION)
                if reply is not None:
                    row = reply.responses[0].partition_responses[0]  # type: ignore[attr-defined]
                    if not row.error_code:
                        self.written_at[partition] = began
            await asyncio.sleep(WRITE_S)

    def led_by(self, node: int) -> list[int]:
        """Return the partitions that a node leads."""
        return [each for each, known in self.partitions.items() if known.leader_id == node]

    def is_whole(self) -> bool:
        """Say whether all replicas are in sync, preferred leaders lead and writes continue."""
        recently = monotonic() - 1.0
        return len(self.partitions) == PARTITIONS and all(
            len(known.isr_nodes) == len(NODES)
            and known.leader_id == known.replica_nodes[0]
            and self.written_at[each] > recently
            for each, known in self.partitions.items()
        )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition. Raises TimeoutError."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while not condition():  # noqa: ASYNC110 - conditions change in many places
            await asyncio.sleep(LOOK_S)


async def kill_once(
    load: Load, kind: str, *, is_read: bool = True, is_restarted: bool = True
) -> FailOver:
    """Kill a node, and return what took how long."""
    three = load.three
    await make_whole(load)
    reply = await load.ask(1, QUORUM)
    controller = int(reply.topics[0].partitions[0].leader_id)  # type: ignore[union-attr]
    others = [node for node in NODES if node != controller]
    victim = controller if kind == CONTROLLER else others[0]
    led = load.led_by(victim)
    assert led, f"node {victim} leads nothing"
    process = three.nodes[victim].process
    assert process is not None
    began = monotonic()
    process.kill()
    async with asyncio.TaskGroup() as tasks:
        alive = next(node for node in NODES if node != victim)
        changing = tasks.create_task(_change(load, alive, began))
        await until(lambda: all(load.written_at[each] > began for each in led))
        found = FailOver(monotonic() - began)
        if is_read:
            await until(lambda: all(load.read_at[each] > began for each in led))
            found.records = monotonic() - began
        changed_s = await changing
    found.changes = changed_s if kind == CONTROLLER else None
    await asyncio.to_thread(process.wait)
    if is_restarted:
        await asyncio.to_thread(three.nodes[victim].start)
    return found


async def _change(load: Load, node: int, began: float) -> float:
    """Change the metadata through a node that lives; return the seconds since the kill."""
    number = int(began * 1000)
    while True:
        topic = CreatableTopic(f"changed-{number}", 1, 2)
        reply = await load.ask(node, CreateTopicsRequest([topic], 1_000))
        # TOPIC_ALREADY_EXISTS answers a request that was sent again.
        if reply is not None and reply.topics[0].error_code in (0, 36):  # type: ignore[attr-defined]
            return monotonic() - began
        await asyncio.sleep(LOOK_S)


async def make_whole(load: Load) -> None:
    """Wait until all replicas are in sync, and have the preferred replicas elected."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while not load.is_whole():
            if all(len(known.isr_nodes) == len(NODES) for known in load.partitions.values()):
                await load.ask(1, ElectLeadersRequest(0, None, 5_000))
            await asyncio.sleep(0.2)


@contextmanager
def reading(load: Load) -> Iterator[None]:
    """Read with a consumer group of librdkafka, in a thread."""
    from confluent_kafka import Consumer

    stop = threading.Event()

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": load.three.bootstrap,
                "group.id": "failover",
                "auto.offset.reset": "latest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe([TOPIC])
        try:
            while not stop.is_set():
                for message in consumer.consume(100, timeout=0.05):
                    if message.error() is None:
                        # The value is the time at which the record was written.
                        load.read_at[int(message.partition() or 0)] = float(message.value() or 0)
        finally:
            consumer.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


async def _kill_often(load: Load, kills: int) -> dict[str, list[FailOver]]:
    found: dict[str, list[FailOver]] = {LEADER: [], CONTROLLER: []}
    async with asyncio.TaskGroup() as tasks:
        running_load = tasks.create_task(load.run())
        with reading(load):
            await until(lambda: all(load.read_at.values()))
            for number in range(kills):
                for kind, taken in found.items():
                    taken.append(await kill_once(load, kind))
                    text = f"{AREA}: {load.three.name}, {kind} {number}: {taken[-1]}"
                    print(text, file=sys.stderr, flush=True)
        running_load.cancel()
    return found


def create(three: Three) -> None:
    """Create the topic that is written."""
    configs = [CreatableTopicConfig("min.insync.replicas", "2")]
    topic = CreatableTopic(TOPIC, PARTITIONS, len(NODES), configs=configs)
    three.ask(1, CreateTopicsRequest([topic], 30_000))


def measured(name: str, kills: int) -> dict[str, list[FailOver]]:
    """Run a cluster of one kind and kill its nodes."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        three = three_of(name, Path(folder))
        with running(three):
            create(three)
            return asyncio.run(_kill_often(Load(three), kills))


# -- the report --------------------------------------------------------------------------


@dataclass(slots=True)
class Both:
    """The seconds of one figure, for both brokers."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def row(self, what: str, share: float, p50_max: float, p95_max: float) -> Row:
        """Return the row: medians compared, and ours within absolute limits."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        tail = percentile(self.ours, 0.95)
        is_met = ours <= p50_max and tail <= p95_max and ours <= share * theirs
        return Row(
            AREA,
            what,
            f"{ours:.2f} s (p95 {tail:.2f}, max {max(self.ours):.2f}, {len(self.ours)} kills)",
            f"Kafka, {theirs:.1f} s ({len(self.theirs)} kills)",
            ours / theirs,
            f"p50 at most {p50_max} s, p95 {p95_max} s, {share}x",
            is_met,
        )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the values are, rounded up."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run(effort: Effort = FULL) -> list[Row]:
    """Return the rows; none, with the reason on stderr, if Java is missing."""
    try:
        fetch_jars()
    except Missing as error:
        print(f"{AREA}: not measured, {error}", file=sys.stderr)
        return []
    ours, theirs = measured("Ottla", effort.kills), measured("Kafka", effort.kafka_kills)
    rows = []
    for kind in (LEADER, CONTROLLER):
        writes = Both([each.writes for each in ours[kind]], [each.writes for each in theirs[kind]])
        rows.append(writes.row(f"kill of {kind} to writes to all partitions", 0.15, 0.6, 1.0))
        records = Both(_some(ours[kind], "records"), _some(theirs[kind], "records"))
        rows.append(records.row(f"kill of {kind} to records of a group", 1.0, 2.0, 2.0))
    changes = Both(_some(ours[CONTROLLER], "changes"), _some(theirs[CONTROLLER], "changes"))
    rows.append(changes.row("kill of the controller to a change of metadata", 1.0, 0.6, 1.0))
    return rows


def _some(found: Sequence[FailOver], name: str) -> list[float]:
    return [value for each in found if (value := getattr(each, name)) is not None]


def main() -> int:
    """Measure and print; ``--only Ottla`` prints percentiles without Kafka's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer kills")
    parser.add_argument("--only", choices=("Ottla", "Kafka"), help="one broker")
    parser.add_argument("--kills", type=int, default=None, help="how many of each kind")
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else FULL
    if arguments.kills is not None:
        effort = Effort(arguments.kills, arguments.kills)
    if arguments.only is None:
        rows = run(effort)
        print(render(rows))
        return 0 if all(row.met for row in rows) else 1
    for kind, found in measured(arguments.only, effort.kills).items():
        for name in ("writes", "changes", "records"):
            if values := _some(found, name):
                print(
                    f"{arguments.only}, kill of {kind}, {name}: p50 {statistics.median(values):.3f}"
                    f" p95 {percentile(values, 0.95):.3f} max {max(values):.3f} n {len(values)}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
