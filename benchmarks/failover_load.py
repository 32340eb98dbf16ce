"""Writers and readers of a cluster whose nodes are killed, and the history that they leave.

One writer per partition writes with acks=all all the time, one record after the other, and never
repeats one. A consumer group of librdkafka reads. Both note what they do as events of
`ottla.testing.history`; at the end `read_all` reads every partition from its start.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, monotonic_ns, time
from typing import TYPE_CHECKING, Final

from benchmarks.broker.three import NODES, Three
from benchmarks.requests import PRODUCE_VERSION
from ottla.client.connection import Connection, Options
from ottla.protocol.faults import Fault
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
from ottla.testing.history.events import AnyEvent, Assign, Phase, Poll, Send
from ottla.testing.history.events import Final as ReadToTheEnd

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka import Message as Consumed

TOPIC: Final = "written"
PARTITIONS: Final = 12
WRITE_S: Final = 0.02
LOOK_S: Final = 0.01
VALUE_BYTES: Final = 100
READ_S_MAX: Final = 120.0
OPTIONS: Final = Options(connect_timeout_ms=2_000)


class Load:
    """Writers of every partition, and the leaders as the nodes that answer report them."""

    def __init__(self, three: Three) -> None:
        self.three = three
        self.partitions: dict[int, MetadataResponsePartition] = {}
        self.written_at = dict.fromkeys(range(PARTITIONS), 0.0)
        self.read_at = dict.fromkeys(range(PARTITIONS), 0.0)
        self.is_read = False
        self.events: list[AnyEvent] = []
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
        number = 0
        while True:
            known = self.partitions.get(partition)
            if known is not None and known.leader_id in NODES:
                number += 1
                await self._write_one(partition, known.leader_id, number)
            await asyncio.sleep(WRITE_S)

    async def _write_one(self, partition: int, leader: int, number: int) -> None:
        began = monotonic()
        value = f"{began!r}/{partition}/{number}"
        now = Millis(int(time() * 1000))  # an old record would be deleted within the run
        record = Record(Offset(0), now, None, value.ljust(VALUE_BYTES).encode())
        batch = build_batch([record])
        rows = [PartitionProduceData(partition, memoryview(batch))]
        data = TopicProduceData(name=TOPIC, partition_data=rows)
        self._note_send(partition, value, Phase.INVOKE)
        reply = await self.ask(leader, ProduceRequest(None, -1, 5_000, [data]), PRODUCE_VERSION)
        row = None
        if reply is not None:
            row = reply.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        if row is None or row.error_code:
            self._note_send(partition, value, Phase.INFO)
            return
        self._note_send(partition, value, Phase.OK, row.base_offset)
        self.written_at[partition] = began

    def _note_send(
        self, partition: int, value: str, phase: Phase, offset: int | None = None
    ) -> None:
        self.events.append(
            Send(
                time=monotonic_ns(),
                process=f"writer-{partition}",
                phase=phase,
                partition=f"{TOPIC}-{partition}",
                value=value,
                offset=offset,
                idempotent=False,
            )
        )

    def led_by(self, node: int) -> list[int]:
        """Return the partitions that a node leads."""
        return [each for each, known in self.partitions.items() if known.leader_id == node]

    def is_whole(self) -> bool:
        """Say whether all are in sync, preferred leaders lead, and writes and reads continue."""
        recently = monotonic() - 1.0
        return len(self.partitions) == PARTITIONS and all(
            len(known.isr_nodes) == len(NODES)
            and known.leader_id == known.replica_nodes[0]
            and self.written_at[each] > recently
            and (not self.is_read or self.read_at[each] > recently)
            for each, known in self.partitions.items()
        )


# -- readers -----------------------------------------------------------------------------


@contextmanager
def reading(load: Load) -> Iterator[None]:
    """Read with a consumer group of librdkafka, in a thread."""
    from confluent_kafka import Consumer

    stop = threading.Event()

    def assigned(_: "Consumer", given: "list[TopicPartition]") -> None:
        load.events += [_assign("group", each.partition) for each in given]

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": load.three.bootstrap,
                "group.id": "failover",
                "auto.offset.reset": "latest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe([TOPIC], on_assign=assigned)
        try:
            while not stop.is_set():
                for partition, records in _take(consumer).items():
                    load.events.append(_poll("group", partition, records))
                    # A value begins with the time at which it was written.
                    load.read_at[partition] = float(records[-1][1].split("/")[0])
        finally:
            consumer.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    load.is_read = True
    try:
        yield
    finally:
        load.is_read = False
        stop.set()
        thread.join(30)


def read_all(load: Load) -> None:
    """Read every partition from its start to its end, as events of the load.

    Raises TimeoutError.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": load.three.bootstrap, "group.id": "audit"})
    try:
        places = [TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)]
        load.events += [_assign("audit", each.partition, position=0) for each in places]
        asked_at = monotonic_ns()
        left = {
            each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in places
        }
        consumer.assign(places)
        deadline = monotonic() + READ_S_MAX
        while left:
            if monotonic() > deadline:
                raise TimeoutError(f"not read to the end: {left}")
            for partition, records in _take(consumer).items():
                load.events.append(_poll("audit", partition, records))
                if records[-1][0] >= left.get(partition, 0) - 1:
                    left.pop(partition, None)
        load.events += [
            ReadToTheEnd(time=asked_at, process="audit", partition=f"{TOPIC}-{each}")
            for each in range(PARTITIONS)
        ]
    finally:
        consumer.close()


def _take(consumer: "Consumer") -> dict[int, list[tuple[int, str]]]:
    """Return the records that arrive next, as offset and value by partition."""
    found: dict[int, list[tuple[int, str]]] = {}
    messages: list[Consumed] = consumer.consume(1000, timeout=0.05)
    for message in messages:
        if message.error() is None:
            value = (message.value() or b"").decode().rstrip()
            found.setdefault(int(message.partition() or 0), []).append(
                (int(message.offset() or 0), value)
            )
    return found


def _assign(process: str, partition: int, position: int | None = None) -> Assign:
    return Assign(
        time=monotonic_ns(),
        process=process,
        partition=f"{TOPIC}-{partition}",
        position=position,
    )


def _poll(process: str, partition: int, records: list[tuple[int, str]]) -> Poll:
    return Poll(
        time=monotonic_ns(),
        process=process,
        partition=f"{TOPIC}-{partition}",
        records=tuple(records),
    )
