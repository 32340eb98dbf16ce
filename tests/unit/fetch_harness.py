"""What tests of the reading APIs share: a broker's partitions, an image around them, a Fetch."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from itertools import count

from immutables import Map
from msgspec.structs import replace
from partition_fixtures import Machine, registration

from ottla.api.fetch.handler import FetchHandlers
from ottla.api.fetch.reading import ReadSources
from ottla.api.fetch.sessions import Sessions
from ottla.api.surface.routes import Caller
from ottla.config.generated import TopicConfig
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration, Cluster, Endpoint
from ottla.metadata.topics import PartitionRegistration, Topics
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import Request
from ottla.protocol.messages import fetch
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.types import TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address
from ottla.storage.log.log_config import LogConfig

CALLER = Caller("User:ANONYMOUS", "test", Address("127.0.0.1", 1), "CLIENT")
RACKS = {0: "a", 1: "b", 2: "b"}


def id_of(topic: str) -> Uuid:
    return Uuid(topic.encode().rjust(16, b"t"))


def broker(node_id: int, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        id=node_id,
        epoch=100 + node_id,
        incarnation_id=Uuid(bytes(16)),
        listeners=Map({"CLIENT": Endpoint(f"host{node_id}", 9092, 0)}),
        features=Map(),
        rack=RACKS[node_id],
        fenced=fenced,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


@dataclass
class Broker:
    """Broker 0 of three, with its partitions on a simulated disk."""

    sources: dict = field(default_factory=dict)
    slots: int = 10
    bytes_max: int = 1 << 20

    def __post_init__(self) -> None:
        self.machine = Machine()
        self.clock = self.machine.clock
        self.image = Image(cluster=Cluster(Map({each: broker(each) for each in RACKS})))
        self.partitions = Partitions(lambda: self.image)
        ids = count(1)
        self.sessions = Sessions(self.slots, lambda: next(ids))
        self.handlers = FetchHandlers(
            ReadSources(self.partitions, lambda: self.image, **self.sources),
            self.sessions,
            self.clock,
            self.bytes_max,
        )

    def know(self, topic: str, index: int, at: PartitionRegistration) -> None:
        """Put a partition into the image."""
        topics: Topics = self.image.topics
        if topics.named(topic) is None:
            topics = topics.with_topic(topic, id_of(topic))
        known = topics.named(topic)
        assert known is not None
        self.image = replace(self.image, topics=topics.with_partition(known, index, at))

    def host(
        self,
        topic: str = "orders",
        index: int = 0,
        config: TopicConfig | None = None,
        log_config: LogConfig | None = None,
        **how,
    ) -> Partition:
        """Put a partition into the image and host it, as its leader by default."""
        at = registration(**how)
        self.know(topic, index, at)
        name = TopicPartition(topic, index)
        log = self.machine.directory.create_log(name, id_of(topic), log_config or LogConfig()).log
        partition = Partition(
            name,
            id_of(topic),
            self.machine.directory,
            log,
            config or TopicConfig(),
            self.machine.fake_host,
        )
        self.machine.fake_host.hosted.append(partition)
        self.partitions.add(partition)
        partition.apply(at)
        return partition

    # -- fetching ----------------------------------------------------------------

    def ask(self, request: fetch.FetchRequest, version: int = 12) -> object:
        """Hand a request to the handler; return its reply, chunks or a future."""
        body = memoryview(bytearray(encode(request, version)))
        header = Request(ApiKey.FETCH, version, 1, "test", body)
        return self.handlers.on_fetch(CALLER, header, body)

    def get(self, request: fetch.FetchRequest, version: int = 12) -> fetch.FetchResponse:
        """Fetch what is answered at once."""
        reply = self.ask(request, version)
        assert isinstance(reply, list), "it waits"
        return response_of(reply, version)

    async def wait(self, reply: object, version: int = 12) -> fetch.FetchResponse:
        """Wait for a reply that was not given at once."""
        assert isinstance(reply, Pending)
        assert isinstance(reply, Awaitable)
        return response_of(await reply, version)


def response_of(chunks: list, version: int) -> fetch.FetchResponse:
    data = b"".join(
        bytes(chunk)
        if isinstance(chunk, bytes | bytearray | memoryview)
        else chunk.file.pread(chunk.length, chunk.position)
        for chunk in chunks
    )
    return decode(fetch.FetchResponse, version, data)


def part(index: int = 0, offset: int = 0, bytes_max: int = 1 << 20, **more) -> fetch.FetchPartition:
    return fetch.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=bytes_max, **more
    )


def want(*parts: fetch.FetchPartition, topic: str = "orders", **more) -> fetch.FetchRequest:
    """A request that does not wait, for partitions of one topic."""
    more = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0} | more
    return fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic=topic, topic_id=id_of(topic), partitions=list(parts))],
        **more,
    )


def rows(response: fetch.FetchResponse) -> list[fetch.PartitionData]:
    return [row for topic in response.responses for row in topic.partitions]


def only(response: fetch.FetchResponse) -> fetch.PartitionData:
    (row,) = rows(response)
    return row


def records_in(row: fetch.PartitionData) -> list[Record]:
    """The records of the whole batches of a row, as a consumer takes them."""
    data = bytes(row.records or b"")
    found: list[Record] = []
    for start, header in batches(data):
        found += read_records(data[start : start + header.size])
    return found


def values_of(row: fetch.PartitionData) -> list[bytes | None]:
    return [record.value for record in records_in(row)]


def count_calls(owner: object, name: str, calls: list[str]) -> None:
    """Add the name of a method to ``calls`` whenever it is called."""
    method = getattr(owner, name)

    def counted(*args: object, **named: object) -> object:
        calls.append(name)
        return method(*args, **named)

    setattr(owner, name, counted)
