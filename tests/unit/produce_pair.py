"""Two brokers that get the same requests: one with the Produce fast path, one without."""

import asyncio
import struct
from dataclasses import dataclass, field

from controller_images import image_of
from msgspec.structs import replace
from partition_fixtures import NOW, TOPIC_ID, Machine, registration

from ottla.api.produce.handler import ProduceHandler
from ottla.api.security.access_decisions import ALLOW_ALL, ProduceAccess
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.replies import Result
from ottla.api.surface.routes import Caller, Routes
from ottla.config.generated import TopicConfig
from ottla.observability.request_meter import RequestMeter
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.batch import Compression, patch_crc
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import NO_PRODUCER, Producer, build_batch
from ottla.protocol.types import Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address
from ottla.server.api_versions import ApiVersions
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.server.fair_scheduler import FairScheduler
from ottla.server.listener_context import ConnectionLimits, ListenerContext
from ottla.server.request_memory import RequestMemory
from ottla.storage.log.log_config import LogConfig

TOPIC = "orders"
INTERNAL = TopicPartition("__consumer_offsets", 0)
IMAGE = image_of(
    TopicRecord(name=TOPIC, topic_id=TOPIC_ID),
    *(
        PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=[0], isr=[0], leader=0)
        for index in (0, 1)
    ),
)


class Transport:
    """Takes what is written, and remembers whether it was closed."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.is_reading = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def frozen_scheduler() -> FairScheduler:
    """A scheduler with a stopped clock: no request is queued because the machine is slow."""
    return FairScheduler(lambda: 0.0, asyncio.get_running_loop().call_soon)


def receive(connection: Connection, transport: Transport, data: bytes, step: int) -> None:
    while data and not transport.is_closed:
        room = connection.get_buffer(-1)
        piece = data[: min(step, len(room))]
        room[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        data = data[len(piece) :]


class Line:
    """One more connection."""

    def __init__(self, context: ListenerContext) -> None:
        self.transport = Transport()
        self.connection = Connection(context, Address("127.0.0.1", 2), lambda *_: None)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def receive(self, data: bytes, step: int) -> None:
        receive(self.connection, self.transport, data, step)


@dataclass
class Broker:
    """Hosts orders-0, orders-1 and an internal topic; with or without the fast path."""

    has_fast_path: bool
    config: TopicConfig
    log_config: LogConfig
    replicas: tuple[int, ...] = (0,)
    access: ProduceAccess = ALLOW_ALL
    transport: Transport = field(default_factory=Transport)
    taken: int = 0

    def __post_init__(self) -> None:
        self.machine = Machine()
        partitions = Partitions(lambda: IMAGE)
        self.hosted = []
        for name in (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), INTERNAL):
            partition = self.machine.host(name, self.config, self.log_config)
            partition.apply(registration(replicas=self.replicas))
            if name is INTERNAL:
                partition.topic_id = Uuid(b"another topic id")
            partitions.add(partition)
            self.hosted.append(partition)
        self.topics, self.requests = TopicMeter(), RequestMeter()
        clock = self.machine.clock
        handler = ProduceHandler(
            partitions, lambda: IMAGE, clock, events=self.topics, access=self.access
        )
        self.handler = handler
        (route,) = bind_routes(Listener.BROKER, handlers_of(produce=handler))
        self.fast_path = route.fast_path
        routes = Routes(
            Listener.BROKER,
            (replace(route, fast_path=self._serve if self.has_fast_path else None),),
        )
        dispatcher = Dispatcher("CLIENT", routes, ApiVersions(routes), self.requests)
        self.context = ListenerContext(
            dispatcher,
            RequestMemory(),
            ConnectionLimits(frame_bytes_max=100_000),
            clock,
            self.requests,
            asyncio.get_running_loop(),
            scheduler=frozen_scheduler(),
        )
        self.connection = Connection(self.context, Address("127.0.0.1", 1), lambda *_: None)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def neighbour(self) -> "Line":
        """Another connection to the same broker."""
        return Line(self.context)

    def _serve(
        self, caller: Caller, client: bytes, data: bytearray, start: int, end: int
    ) -> bytearray | Pending[Result] | None:
        reply = self.fast_path(caller, client, data, start, end)
        self.taken += reply is not None
        return reply

    def receive(self, data: bytes, step: int) -> None:
        """Receive ``data`` in pieces of ``step`` bytes, unless the connection is closed."""
        receive(self.connection, self.transport, data, step)

    def outcome(self) -> dict[str, object]:
        """Everything that can be observed of the requests served."""
        return {
            "replies": bytes(self.transport.written),
            "closed": self.transport.is_closed,
            "logs": [_contents(partition.log) for partition in self.hosted],
            "high watermarks": [partition.log.high_watermark for partition in self.hosted],
            "producers": [each.log.producers.map_end_offset for each in self.hosted],
            "sequences": [list(each.log.producers.entries()) for each in self.hosted],
            "topics": list(self.topics.collect()),
            "requests": [
                (family.name, [each.value for each in family.samples if each.suffix != "_sum"])
                for family in self.requests.collect()
            ][:2],
            "failed": self.machine.fake_host.failed,
        }


def _contents(log) -> list[tuple[int, bytes]]:
    return [(segment.base_offset, segment.file.pread(segment.size, 0)) for segment in log.segments]


def batch(
    *values: bytes,
    key: bytes | None = b"k",
    timestamp: int = NOW,
    codec: Compression = Compression.NONE,
    producer: Producer = NO_PRODUCER,
) -> bytearray:
    """A producer's batch of one record for each value, a millisecond apart."""
    records = [Record(Offset(at), timestamp + at, key, v) for at, v in enumerate(values)]
    return build_batch(records, compression=codec, producer=producer)


def broken(data: bytearray, form: str, at: int, number: int) -> bytearray:
    """A batch with a number written over some of its bytes, and a CRC to match."""
    copy = bytearray(data)
    struct.pack_into(form, copy, at, number)
    patch_crc(copy, 0, len(copy))
    return copy


def frame(
    *batches: bytes | None,
    version: int = 9,
    acks: int = 1,
    client: str | None = "c",
    number: int = 1,
    **more: object,
) -> bytes:
    """A Produce for partitions 0, 1 and so on of one topic, with its length."""
    data = [
        PartitionProduceData(index, None if each is None else bytes(each))
        for index, each in enumerate(batches)
    ]
    fields = {"transactional_id": None, "timeout_ms": 30_000, **more}
    topics = [TopicProduceData(str(fields.pop("topic", TOPIC)), TOPIC_ID, data)]
    message = ProduceRequest(acks=acks, topic_data=topics, **fields)  # type: ignore[arg-type]
    return bytes(request_frame(RequestHeader(ApiKey.PRODUCE, version, number, client), message))
