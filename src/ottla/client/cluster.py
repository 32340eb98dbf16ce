"""A cluster from a client's view: its brokers, the leaders, and a connection per broker.

    async with await Cluster.open(ports, [Address("localhost", 9092)]) as cluster:
        leader = await cluster.leader_of(TopicPartition("greetings", 0))
        reply = await cluster.send_to(leader.node_id, request, FetchResponse)

A caller that gets NOT_LEADER_OR_FOLLOWER or a similar error calls `forget` and retries. The rules
of metadata and look-ups are in `metadata` and `lookups`, which the blocking client shares.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, TypeVar, cast

import msgspec

from ottla.client import lookups, requests
from ottla.client.backoff import Backoff
from ottla.client.bootstrap import open_first, reason_of
from ottla.client.connection import TIMEOUT_MS, Connection, Options, send_over
from ottla.client.failures import ConnectionLost
from ottla.client.failures import NoBroker as NoBroker
from ottla.client.failures import Refused as Refused
from ottla.client.lookups import Lookup, Result, Step
from ottla.client.metadata import ClusterMetadata, Leader
from ottla.client.metadata import KnownTopic as KnownTopic
from ottla.client.negotiation import api_of
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId, TopicPartition, Uuid
from ottla.runtime.ports import Address, Clock, Network, Random
from ottla.security.sasl.credentials import LoginFailed

Reply = TypeVar("Reply", bound=Message)

FIND_TIMEOUT_MS: Final = 10_000
"""How long a request to any broker looks for one that answers, over all addresses."""

KNOWN_TIMEOUT_S: Final = 5.0
"""How long a client waits for the brokers to apply the creation of a topic."""

ATTEMPTS_MAX: Final = 8
"""Metadata requests before a partition counts as leaderless: about 5 s."""


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


class Cluster:
    """Connections and metadata. Create one with `open`; close it, or use ``async with``."""

    def __init__(
        self, ports: ClientPorts, bootstrap: Sequence[Address], options: ClientOptions
    ) -> None:
        self.ports = ports
        self.options = options
        self._metadata = ClusterMetadata(bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
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
        return dict(self._metadata.nodes)

    async def metadata(
        self, topics: Sequence[str] | None, *, may_create: bool = False
    ) -> MetadataResponse:
        """Request and store metadata of the cluster and some topics; None means all topics.

        Raises:
            NoBroker: no broker responds.
        """
        request = requests.metadata(topics, may_create=may_create)
        response = await self.send_any(request, MetadataResponse)
        self._metadata.learn(response)
        return response

    def known_id(self, topic: str) -> Uuid:
        """Return the last known id of a topic, also after `forget`; zero if unknown."""
        return self._metadata.topic_id(topic)

    def forget(self, topic: str) -> None:
        """Drop the metadata of a topic: a broker has contradicted it."""
        self._metadata.forget(topic)

    async def topic(self, name: str, *, may_create: bool = False) -> KnownTopic:
        """Return the metadata of a topic; request it until the topic exists.

        Raises:
            Refused: the topic does not exist, or not within `ATTEMPTS_MAX`.
            NoBroker: no broker responds.
        """
        topic = self._metadata.topic(name)
        if topic is None:
            topic = await self._look_up(
                lookups.find_topic(self._metadata, name, may_create=may_create)
            )
        return topic

    async def wait_until_known(self, topic: str) -> bool:
        """Wait until every broker that replies knows a topic; False if that takes too long."""
        try:
            async with asyncio.timeout(KNOWN_TIMEOUT_S):
                return await self._look_up(lookups.wait_until_known(self._metadata, topic))
        except TimeoutError:
            return False

    async def leader_of(
        self, partition: TopicPartition, *, attempts_max: int = ATTEMPTS_MAX
    ) -> Leader:
        """Return the leader of a partition; wait for an election unless ``attempts_max`` is 1.

        Raises:
            Refused: no such topic or partition, or no leader within ``attempts_max``.
            NoBroker: no broker responds.
        """
        topic = self._metadata.topic(partition.topic)
        leader = None if topic is None else topic.leaders.get(partition.partition)
        if leader is None:
            lookup = lookups.find_leader(self._metadata, partition, attempts_max=attempts_max)
            leader = await self._look_up(lookup)
        return leader

    async def coordinator_of(self, kind: int, key: str) -> NodeId:
        """Return the coordinator of a group (0) or a transactional id (1).

        Raises:
            Refused: there is none after all retries, or access is denied. NoBroker: no broker
                responds.
        """
        return await self._look_up(lookups.find_coordinator(self._metadata, kind, key))

    async def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], *, is_committed_only: bool
    ) -> dict[TopicPartition, int]:
        """Return the offset of each timestamp or special value; -1: no record is that late.

        Raises:
            Refused: the look-up failed for a partition. NoBroker, ConnectionLost,
                RequestTimedOut: its leader does not respond after all retries.
        """
        return await self._look_up(
            lookups.find_offsets(self._metadata, timestamps, committed=is_committed_only)
        )

    async def _look_up(self, lookup: Lookup[Result]) -> Result:
        """Carry out the steps of a look-up, and return its result."""
        try:
            step = next(lookup)
            while True:
                step = lookup.send(await self._carry_out(step))
        except StopIteration as done:
            return cast("Result", done.value)

    async def _carry_out(self, step: Step) -> object:
        match step:
            case lookups.Ask(request):
                return await self.send_any(request, Message)
            case lookups.AskEach(requests):
                return await self._send_each(requests)
            case lookups.Pause(attempt) if attempt + 1 < ATTEMPTS_MAX:
                await self.pause(attempt)
                return True
            case lookups.Pause():
                return False

    async def _send_each(self, requests: Mapping[NodeId, Message]) -> list[Message | Exception]:
        """Send each request to its broker, all of them together."""
        replies = await asyncio.gather(
            *(self.send_to(node_id, request, Message) for node_id, request in requests.items()),
            return_exceptions=True,
        )
        for reply in replies:
            is_expected = isinstance(reply, NoBroker | ConnectionLost | RequestTimedOut)
            if isinstance(reply, BaseException) and not is_expected:
                raise reply
        return cast("list[Message | Exception]", replies)

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
        self.last_api = api_of(request)
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
        self.last_api = api_of(request)
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
        left = [each for each in self._metadata.addresses() if each not in failures]
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
        address = self._metadata.nodes.get(node_id)
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
