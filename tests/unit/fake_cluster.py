"""Brokers in memory on the simulated network, for the client: scripted, with logs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ottla.client.cluster import ClientOptions, ClientPorts, Cluster
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request, parse_request_header, response_frame
from ottla.protocol.messages import request_class
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import BatchHeader, batches
from ottla.protocol.records.reader import read_records
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.runtime.ports import Address
from record_tools import patch_offset
from simulation.clock import SimClock
from simulation.loop import run_simulated
from simulation.network import SimNetwork
from simulation.random import SimRandom

SERVED = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 13),
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.INIT_PRODUCER_ID: (0, 6),
}


@dataclass
class FakeCluster:
    """What the brokers share. ``leaders`` says who leads; ``script`` may answer before they do."""

    nodes: int = 2
    topics: dict[str, int] = field(default_factory=lambda: {"t": 2})
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    logs: dict[TopicPartition, bytearray] = field(default_factory=dict)
    served: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(SERVED))
    seen: list[tuple[int, Message]] = field(default_factory=list)
    script: list[Callable[[int, Message], Message | str | None]] = field(default_factory=list)
    produce_errors: list[int] = field(default_factory=list)
    next_producer_id: int = 100
    log_start: int = 0

    def leader(self, partition: TopicPartition) -> int:
        return self.leaders.get(partition, 1 + partition.partition % self.nodes)

    def end(self, partition: TopicPartition) -> int:
        found = list(batches(bytes(self.logs.get(partition, b""))))
        return found[-1][1].next_offset if found else self.log_start

    def values(self, partition: TopicPartition) -> list[bytes]:
        data = bytes(self.logs.get(partition, b""))
        return [record.value or b"" for at, _ in batches(data) for record in read_records(data, at)]

    def headers(self, partition: TopicPartition) -> list[BatchHeader]:
        return [header for _, header in batches(bytes(self.logs.get(partition, b"")))]

    def append(self, partition: TopicPartition, batch: bytearray) -> int:
        base = self.end(partition)
        patch_offset(batch, 0, Offset(base), LeaderEpoch(0))
        self.logs.setdefault(partition, bytearray()).extend(batch)
        return base

    def asked(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.seen if isinstance(message, kind)]

    # -- answers ---------------------------------------------------------------

    def answer(self, node: int, request: Message, version: int) -> Message | None:
        match request:
            case MetadataRequest():
                return self.metadata(request)
            case ProduceRequest():
                return self.produce(node, request, version)
            case FetchRequest():
                return self.fetch(node, request, version)
            case ListOffsetsRequest():
                return self.list_offsets(node, request)
            case _:
                self.next_producer_id += 1
                return InitProducerIdResponse(producer_id=self.next_producer_id)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics)
        if request.topics is not None:
            names = [each.name or "" for each in request.topics]
        for name in names:
            if name not in self.topics and request.allow_auto_topic_creation:
                self.topics[name] = 1
        brokers = [MetadataResponseBroker(n, f"b{n}", 9092) for n in range(1, self.nodes + 1)]
        return MetadataResponse(brokers=brokers, topics=[self.topic(name) for name in names])

    def topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = [
            MetadataResponsePartition(0, n, self.leader(TopicPartition(name, n)), 3)
            for n in range(self.topics[name])
        ]
        return MetadataResponseTopic(0, name, topic_id(name), False, partitions)

    def name_of(self, name: str, wanted: Uuid) -> str:
        return name or next(each for each in self.topics if topic_id(each) == wanted)

    def produce(self, node: int, request: ProduceRequest, version: int) -> ProduceResponse | None:
        reply = ProduceResponse()
        for topic in request.topic_data:
            name = self.name_of(topic.name, topic.topic_id)
            response = TopicProduceResponse(topic.name, topic.topic_id)
            for each in topic.partition_data:
                partition = TopicPartition(name, each.index)
                answer = PartitionProduceResponse(each.index)
                if self.leader(partition) != node:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif self.produce_errors:
                    answer.error_code = self.produce_errors.pop(0)
                if not answer.error_code:
                    answer.base_offset = self.append(partition, bytearray(each.records or b""))
                response.partition_responses.append(answer)
            reply.responses.append(response)
        return reply if request.acks else None

    def fetch(self, node: int, request: FetchRequest, version: int) -> FetchResponse:
        reply = FetchResponse()
        for topic in request.topics:
            name = self.name_of(topic.topic, topic.topic_id)
            response = FetchableTopicResponse(topic.topic, topic.topic_id)
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition)
                response.partitions.append(self.fetched(node, partition, each.fetch_offset))
            reply.responses.append(response)
        return reply

    def fetched(self, node: int, partition: TopicPartition, offset: int) -> PartitionData:
        end = self.end(partition)
        data = PartitionData(partition.partition, 0, end, end)
        if self.leader(partition) != node:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.log_start <= offset <= end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            log = bytes(self.logs.get(partition, b""))
            start = next((at for at, h in batches(log) if h.next_offset > offset), len(log))
            data.records = log[start:]
        return data

    def list_offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        reply = ListOffsetsResponse()
        for topic in request.topics:
            response = ListOffsetsTopicResponse(topic.name)
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                answer = ListOffsetsPartitionResponse(each.partition_index)
                if self.leader(partition) != node:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif each.timestamp in (-1, -2):
                    answer.offset = self.end(partition) if each.timestamp == -1 else self.log_start
                response.partitions.append(answer)
            reply.topics.append(response)
        return reply


class FakeBroker(asyncio.Protocol):
    """One connection to one broker."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.received = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            size = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < size:
                return
            frame = bytes(self.received[4:size])
            del self.received[:size]
            request = parse_request_header(frame)
            assert isinstance(request, Request)
            self.serve(request, frame)

    def serve(self, request: Request, frame: bytes) -> None:
        if request.key is ApiKey.API_VERSIONS:
            keys = [ApiVersion(key, *versions) for key, versions in self.cluster.served.items()]
            self.reply(request, ApiVersionsResponse(api_keys=keys))
            return
        message = decode(request_class(request.key), request.version, request.body)
        self.cluster.seen.append((self.node, message))
        for rule in list(self.cluster.script):
            scripted = rule(self.node, message)
            if scripted == "hang up":
                self.transport.abort()
            elif isinstance(scripted, Message):
                self.reply(request, scripted)
            if scripted is not None:
                return
        answer = self.cluster.answer(self.node, message, request.version)
        if answer is not None:
            self.reply(request, answer)

    def reply(self, request: Request, message: Message) -> None:
        version, correlation_id = request.version, request.correlation_id
        self.transport.write(bytes(response_frame(request.key, version, correlation_id, message)))


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\1"))


def with_cluster(
    fake: FakeCluster,
    scenario: Callable[[Cluster], Awaitable[None]],
    options: ClientOptions | None = None,
    silent: Sequence[int] = (),
    cut_off: Sequence[int] = (),
) -> None:
    """Run a scenario with a client that knows all brokers' addresses. Simulated time.

    ``silent`` brokers refuse connections; the network loses what is sent to those ``cut_off``.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimNetwork(loop, seed=1)
        for node in range(1, fake.nodes + 1):
            if node not in silent:
                await network.port_of(f"b{node}").listen(
                    Address(f"b{node}", 9092), lambda node=node: FakeBroker(fake, node)
                )
        for node in cut_off:
            network.cut("client", f"b{node}")
        ports = ClientPorts(network.port_of("client"), SimClock(loop), SimRandom(1))
        bootstrap = [Address(f"b{node}", 9092) for node in range(1, fake.nodes + 1)]
        async with await Cluster.open(ports, bootstrap, options) as cluster:
            await scenario(cluster)

    run_simulated(main())
