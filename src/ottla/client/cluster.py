"""A cluster from a client's view: its brokers, the leaders, and a connection per broker.

    async with await Cluster.open(ports, [Address("localhost", 9092)]) as cluster:
        leader = await cluster.leader_of(TopicPartition("greetings", 0))
        reply = await cluster.send_to(leader.node_id, request, FetchResponse)

Metadata is used until a broker contradicts it: a caller that gets NOT_LEADER_OR_FOLLOWER or a
similar error calls `forget` and retries. There is no refresh in the background.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Final, TypeVar

import msgspec

from ottla.client.backoff import Backoff
from ottla.client.bootstrap import open_first, reason_of
from ottla.client.connection import TIMEOUT_MS, Connection, ConnectionLost, Options, send_over
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, is_retriable, name_of_code
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, NodeId, TopicPartition, Uuid
from ottla.runtime.ports import Address, Clock, Network, Random
from ottla.security.sasl.credentials import LoginFailed

Reply = TypeVar("Reply", bound=Message)

FIND_TIMEOUT_MS: Final = 10_000
"""How long a request to any broker looks for one that answers, over all addresses."""

ATTEMPTS_MAX: Final = 8
"""Metadata requests before a partition counts as leaderless: about 5 s."""


class Refused(Exception):
    """A broker answered with an error. ``code`` is Kafka's."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        self.code = code
        self.subject = subject
        self.message = message or ""
        detail = f": {self.message}" if self.message else ""
        super().__init__(f"{subject}: {name_of_code(code)}{detail}")


class NoBroker(ConnectionError):
    """No known broker address responds."""


class ClientPorts(msgspec.Struct, frozen=True):
    """The ports that a client needs."""

    network: Network
    clock: Clock
    random: Random


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a client."""

    client_id: str = "ottla"
    connection: Options = msgspec.field(default_factory=Options)
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    timeout_ms: int = TIMEOUT_MS
    find_timeout_ms: int = FIND_TIMEOUT_MS


class Leader(msgspec.Struct, frozen=True):
    """The leader of a partition. Requests carry ``epoch``, so that a stale leader is detected."""

    node_id: NodeId
    epoch: int


class KnownTopic(msgspec.Struct, frozen=True):
    """A topic from metadata; leaderless partitions have no entry in ``leaders``."""

    name: str
    topic_id: Uuid
    partitions: tuple[int, ...]
    leaders: dict[int, Leader]


class Cluster:
    """Connections and metadata. Create one with `open`; close it, or use ``async with``."""

    def __init__(
        self, ports: ClientPorts, bootstrap: Sequence[Address], options: ClientOptions
    ) -> None:
        self.ports = ports
        self.options = options
        self._bootstrap = tuple(bootstrap)
        self._addresses: dict[NodeId, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._topics: dict[str, KnownTopic] = {}
        self._ids: dict[str, Uuid] = {}
        self.last_api: ApiKey | None = None
        """The API of the last request, for messages about its error."""

    @classmethod
    async def open(
        cls,
        ports: ClientPorts,
        bootstrap: Sequence[Address],
        options: ClientOptions | None = None,
    ) -> "Cluster":
        """Connect to one of the addresses and load the list of brokers.

        Raises:
            NoBroker: none of them responds. UnsupportedVersion: one is not a Kafka broker.
        """
        cluster = cls(ports, bootstrap, options or ClientOptions())
        try:
            await cluster.metadata([])
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Closing twice is fine."""
        open_now, self._connections = self._connections, {}
        for connection in open_now.values():
            await connection.close()

    # -- metadata ----------------------------------------------------------

    @property
    def nodes(self) -> dict[NodeId, Address]:
        """The brokers, as the last metadata said."""
        return dict(self._addresses)

    async def metadata(
        self, topics: Sequence[str] | None, *, may_create: bool = False
    ) -> MetadataResponse:
        """Request and store metadata of the cluster and some topics; None means all topics.

        Raises:
            NoBroker: no broker responds.
        """
        wanted = None if topics is None else [MetadataRequestTopic(ZERO_UUID, t) for t in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        response = await self.send_any(request, MetadataResponse)
        self._addresses = {
            NodeId(each.node_id): Address(each.host, each.port) for each in response.brokers
        }
        for topic in response.topics:
            if topic.name is not None:
                self._learn(topic.name, topic)
        return response

    def _learn(self, name: str, topic: MetadataResponseTopic) -> None:
        if topic.error_code != ErrorCode.NONE:
            self._topics.pop(name, None)
            return
        self._ids[name] = topic.topic_id
        self._topics[name] = KnownTopic(
            name,
            topic.topic_id,
            tuple(sorted(each.partition_index for each in topic.partitions)),
            {
                each.partition_index: Leader(NodeId(each.leader_id), each.leader_epoch)
                for each in topic.partitions
                if each.leader_id >= 0 and each.leader_id in self._addresses
            },
        )

    def known_id(self, topic: str) -> Uuid:
        """Return the last known id of a topic, also after `forget`; zero if unknown."""
        return self._ids.get(topic, ZERO_UUID)

    def forget(self, topic: str) -> None:
        """Drop the metadata of a topic: a broker has contradicted it."""
        self._topics.pop(topic, None)

    async def topic(self, name: str, *, may_create: bool = False) -> KnownTopic:
        """Return the metadata of a topic; request it until the topic exists.

        Raises:
            Refused: the topic does not exist, or not within `ATTEMPTS_MAX`.
            NoBroker: no broker responds.
        """
        attempt = 0
        while (known := self._topics.get(name)) is None:
            response = await self.metadata([name], may_create=may_create)
            code = response.topics[0].error_code if response.topics else 0
            if name in self._topics:
                continue
            is_final = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not may_create
            if is_final or not is_retriable(code) or attempt >= ATTEMPTS_MAX:
                raise Refused(code, name)
            await self.pause(attempt)
            attempt += 1
        return known

    async def leader_of(
        self, partition: TopicPartition, *, attempts_max: int = ATTEMPTS_MAX
    ) -> Leader:
        """Return the leader of a partition; wait for an election unless ``attempts_max`` is 1.

        Raises:
            Refused: no such topic or partition, or no leader within ``attempts_max``.
            NoBroker: no broker responds.
        """
        for attempt in range(attempts_max):
            topic = await self.topic(partition.topic)
            leader = topic.leaders.get(partition.partition)
            if leader is not None:
                return leader
            self.forget(partition.topic)
            if partition.partition not in topic.partitions:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
            if attempt + 1 < attempts_max:
                await self.pause(attempt)
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))

    async def pause(self, attempt: int) -> None:
        """Wait before a retry; the first has ``attempt`` 0."""
        fraction = self.ports.random.fraction()
        await asyncio.sleep(self.options.backoff.wait_ms(attempt, fraction) / 1000)

    # -- requests --------------------------------------------------------------

    async def send_to(
        self, node_id: NodeId, request: Message, reply: type[Reply], *, timeout_ms: int = 0
    ) -> Reply:
        """Send a request to one broker. ``timeout_ms`` 0 takes that of the options.

        Raises:
            NoBroker: the broker is unknown, or cannot be connected to.
            ConnectionLost, RequestTimedOut: no reply; whether it was served is unknown.
            UnsupportedVersion: the broker does not serve the request.
        """
        self.last_api = _api_of(request)
        connect = partial(self.connection, node_id)
        response = await send_over(connect, request, timeout_ms or self.options.timeout_ms)
        assert isinstance(response, reply)
        return response

    async def send_any(
        self, request: Message, reply: type[Reply], *, may_repeat: bool = True
    ) -> Reply:
        """Send a request to any broker; if one does not respond, to the next.

        Unless ``may_repeat``, a request is not sent again once it was sent.

        Raises:
            NoBroker: no broker responds. UnsupportedVersion: the request is not served.
            LoginFailed: a broker refused the credentials.
            ConnectionLost, RequestTimedOut: as `send_to`, if the request may not be repeated.
        """
        self.last_api = _api_of(request)
        loop = asyncio.get_running_loop()
        began = loop.time()
        found_by = began + self.options.find_timeout_ms / 1000
        failures: dict[Address, str] = {}
        while (address := await self._any_broker(failures, found_by)) is not None:
            left_ms = int((began - loop.time()) * 1000) + self.options.timeout_ms
            if left_ms <= 0:
                break
            try:
                response = await send_over(partial(self._open, address), request, left_ms)
            except LoginFailed:
                raise
            except (OSError, RequestTimedOut) as error:
                if not may_repeat and isinstance(error, ConnectionLost | RequestTimedOut):
                    raise
                failures[address] = reason_of(error)
                continue
            assert isinstance(response, reply)
            return response
        reasons = "; ".join(f"{address}: {reason}" for address, reason in failures.items())
        raise NoBroker(f"no broker responds: {reasons}")

    async def _any_broker(self, failures: dict[Address, str], found_by: float) -> Address | None:
        """Connect to a broker that has not failed; prefer one with an open connection.

        None if none answers by ``found_by``, in the loop's time; ``failures`` has the reasons.
        """
        addresses = dict.fromkeys((*self._addresses.values(), *self._bootstrap))
        left = [address for address in addresses if address not in failures]
        for address in left:
            connection = self._connections.get(address)
            if connection is not None and connection.is_open:
                return address
        limit_s = found_by - asyncio.get_running_loop().time()
        if limit_s <= 0:
            return None
        opened = await open_first(left, self._open, failures, limit_s)
        return None if opened is None else opened.address

    async def connection(self, node_id: NodeId) -> Connection:
        """Return the connection to a broker; open it if necessary.

        Raises:
            NoBroker: the broker is unknown or unreachable.
            UnsupportedVersion: as `Connection.open`.
        """
        address = self._addresses.get(node_id)
        if address is None:
            raise NoBroker(f"broker {node_id} is not known")
        try:
            return await self._open(address)
        except LoginFailed:
            raise
        except (OSError, RequestTimedOut) as error:
            raise NoBroker(f"broker {node_id} at {address}: {reason_of(error)}") from error

    async def _open(self, address: Address) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.open(
                    self.ports.network,
                    address,
                    client_id=self.options.client_id,
                    options=self.options.connection,
                )
                self._connections[address] = connection
        return connection


def _api_of(request: Message) -> ApiKey:
    assert request.SCHEMA.api_key is not None, "only a request has an api key"
    return ApiKey(request.SCHEMA.api_key)
