"""The blocking client of Spark's drivers and workers: metadata, requests and connections.

    client = client_for(ClientSettings(("localhost:9092",), "job", {}))
    ends = client.list_offsets({TopicPartition("orders", 0): LATEST}, committed=True)

There is one client per process and settings; it is kept for the next task of the same worker.
Metadata is cached until a node contradicts it. Transient failures (a leader that moved, a broker
that restarts, a coordinator that loads) are retried with growing pauses for
``default.api.timeout.ms``; then the last failure is raised or, if it is a reply, returned.

Threads may share a client: each request uses its connection exclusively. Fetches are sent ahead of
their use and therefore borrow a connection of their own (`lend`).
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeAlias

import msgspec

from ottla.client.backoff import Backoff
from ottla.client.client_security import BadClientSecurity, connection_options
from ottla.client.cluster import Leader, NoBroker, Refused
from ottla.client.connection import ConnectionLost, Options
from ottla.config.addresses import parse_host_port
from ottla.pipeline import requests
from ottla.pipeline.wire import Wire
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId, TopicPartition, Uuid
from ottla.runtime.blocking import pause
from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.credentials import LoginFailed

LATEST: Final = -1
EARLIEST: Final = -2
API_TIMEOUT_MS: Final = 60_000
"""Kafka's ``default.api.timeout.ms``: how long a call is retried."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""Kafka's ``request.timeout.ms``: how long to wait for one reply."""
FETCH_BYTES_MAX: Final = 8 << 20
"""Our ``fetch.max.bytes``: the most bytes one fetch requests."""
_UNKNOWN_TOPIC_ATTEMPTS: Final = 3  # metadata of a new topic may lag; a misspelt one never appears
_IDLE_FETCH_WIRES_MAX: Final = 4  # per node; further connections are closed after use

MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a node that does not lead the partition, or not yet."""
_COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
_CONTROLLER_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER})

Build: TypeAlias = Message | Callable[[], Message]
"""A request, or a function that builds one for each attempt because ids may change."""


class Settings(Protocol):
    """The part of ``options.ClientSettings`` that the client uses."""

    @property
    def bootstrap(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def client_id(self) -> str: ...  # noqa: D102
    @property
    def properties(self) -> Mapping[str, str]: ...  # noqa: D102


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic in the current metadata. A recreated topic has another ``topic_id``."""

    name: str
    topic_id: Uuid
    partitions: int
    internal: bool


class _Topic(msgspec.Struct, frozen=True):
    info: TopicInfo
    leaders: dict[int, Leader]


_clients: dict[tuple[object, ...], "BrokerClient"] = {}
_clients_lock = threading.Lock()


def client_for(settings: Settings) -> "BrokerClient":
    """Return this process's client for ``settings``; create it if necessary.

    A forked worker gets its own client: two processes on one connection would mix up replies.

    Raises:
        BadClientSecurity: security settings cannot be used.
        BadAddress: an address is malformed.
    """
    properties = tuple(sorted(settings.properties.items()))
    key = (os.getpid(), settings.bootstrap, settings.client_id, properties)
    with _clients_lock:
        client = _clients.get(key)
        if client is None or client.is_closed:
            client = _clients[key] = BrokerClient(settings)
        return client


class _Line:
    """The connection to one address for single requests, and the lock that serializes them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wire: Wire | None = None


class BrokerClient:
    """Blocking connections and metadata. Create one with `client_for`."""

    def __init__(self, settings: Settings) -> None:
        properties = settings.properties
        self._options = _connection_options(properties)
        self._bootstrap = tuple(_parse_address(each) for each in settings.bootstrap)
        self._client_id = settings.client_id
        self._api_timeout_ms = int(properties.get("default.api.timeout.ms", API_TIMEOUT_MS))
        self.request_timeout_ms = int(properties.get("request.timeout.ms", REQUEST_TIMEOUT_MS))
        self.fetch_bytes_max = int(properties.get("fetch.max.bytes", FETCH_BYTES_MAX))
        self._backoff = Backoff(
            int(properties.get("retry.backoff.ms", 100)),
            int(properties.get("retry.backoff.max.ms", 1000)),
        )
        self._clock = SystemClock()
        self._random = SystemRandom()
        self._lines: dict[Address, _Line] = {}
        self._lent: dict[Address, list[Wire]] = {}
        self._lock = threading.Lock()  # protects the two above
        self._addresses: dict[NodeId, Address] = {}
        self._controller = NodeId(-1)
        self._topics: dict[str, _Topic] = {}
        self._coordinators: dict[tuple[str, int], NodeId] = {}
        self.is_closed = False

    def close(self) -> None:
        """Close every connection; `client_for` then creates a new client. Idempotent."""
        self.is_closed = True
        with self._lock:
            lines, self._lines = self._lines, {}
            lent, self._lent = self._lent, {}
        for line in lines.values():
            if line.wire is not None:
                line.wire.close()
        for idle in lent.values():
            for wire in idle:
                wire.close()

    # -- topics and leaders ----------------------------------------------------

    def topics(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        """Request the topics ``names`` (None: all); the result omits unknown ones.

        Raises:
            NoBroker: no broker answers. Refused: a topic may not be read, or its name is invalid.
        """
        found: dict[str, TopicInfo] = {}
        for topic in self._metadata(names).topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise Refused(topic.error_code, topic.name)
            found[topic.name] = self._topics[topic.name].info
        return found

    def topic(self, name: str) -> TopicInfo:
        """Return one topic from the cache, or request it a few times.

        Raises:
            Refused: it does not exist, or may not be read. NoBroker: no broker answers.
        """
        return self._topic(name).info

    def forget(self, topic: str) -> None:
        """Drop the cached metadata of a topic, because a node contradicted it."""
        self._topics.pop(topic, None)

    def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader of a partition; wait for an election.

        Raises:
            Refused: no such topic or partition, or no leader in time. NoBroker: no broker answers.
        """
        for _ in self.attempts():
            topic = self._topic(partition.topic)
            leader = topic.leaders.get(partition.partition)
            if leader is not None:
                return leader
            self.forget(partition.topic)
            if partition.partition >= topic.info.partitions:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))

    def _topic(self, name: str) -> _Topic:
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for attempt in range(_UNKNOWN_TOPIC_ATTEMPTS):
            known = self._topics.get(name)
            if known is not None:
                return known
            if attempt:
                self._wait(attempt)
            code = next((each.error_code for each in self._metadata([name]).topics), code)
            if code and code not in MOVED:
                break
        if (known := self._topics.get(name)) is not None:
            return known
        raise Refused(code, name)

    def _metadata(self, names: Sequence[str] | None) -> MetadataResponse:
        reply = self.call(requests.metadata(names))
        assert isinstance(reply, MetadataResponse)
        self._addresses = {
            NodeId(each.node_id): Address(each.host, each.port) for each in reply.brokers
        }
        self._controller = NodeId(reply.controller_id)
        for topic in reply.topics:
            self._learn(topic)
        return reply

    def _learn(self, topic: MetadataResponseTopic) -> None:
        if topic.name is None:
            return
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            self.forget(topic.name)
            return
        self._topics[topic.name] = _Topic(
            TopicInfo(topic.name, topic.topic_id, len(topic.partitions), topic.is_internal),
            {
                each.partition_index: Leader(NodeId(each.leader_id), each.leader_epoch)
                for each in topic.partitions
                if each.leader_id >= 0 and each.leader_id in self._addresses
            },
        )

    # -- requests ---------------------------------------------------------------

    def call(self, request: Message, *, node: int | None = None) -> Message:
        """Send a request to ``node``, or to any node; retry while no broker answers.

        The request may be sent twice if a connection is lost before the reply.

        Raises:
            NoBroker: no broker answered in time. UnsupportedVersion: the node does not support it.
            LoginFailed: a node rejected the credentials.
        """
        failure = "no address is known"
        for _ in self.attempts():
            if node is not None and node not in self._addresses:
                self._refresh_nodes()  # a node that just started does not even list itself
            for address in self._candidates(node):
                try:
                    return self._exchange(address, request)
                except LoginFailed:
                    raise  # no other node would take the same credentials
                except (OSError, RequestTimedOut) as error:
                    failure = f"{address.host}:{address.port}: {error}"
            if node is not None:
                self._refresh_nodes()
        raise NoBroker(f"{'no broker' if node is None else f'broker {node}'} answers: {failure}")

    def call_leader(self, partition: TopicPartition, request: Build) -> Message:
        """Send a request to a partition's leader; retry with the new leader if it moved.

        If the reply is still an error after ``default.api.timeout.ms``, it is returned.

        Raises:
            Refused: no such partition, or no leader. NoBroker: no broker answers.
        """

        def find() -> NodeId:
            return self.leader(partition).node_id

        return self._call_found(find, lambda: self.forget(partition.topic), request, MOVED)

    def call_coordinator(self, key: str, kind: int, request: Build) -> Message:
        """Send a request to the coordinator of a group (``kind`` 0) or transactional id (1).

        Retries and returns the last reply as `call_leader` does.

        Raises:
            Refused: the key has no coordinator. NoBroker: no broker answers.
        """

        def find() -> NodeId:
            node = self._coordinators.get((key, kind))
            return self._find_coordinator(key, kind) if node is None else node

        def forget() -> None:
            self._coordinators.pop((key, kind), None)

        return self._call_found(find, forget, request, _COORDINATOR_MOVED)

    def call_controller(self, request: Build) -> Message:
        """Send a request to the broker that forwards to the controller. Raises as `call`."""

        def find() -> NodeId:
            if self._controller not in self._addresses:
                self._metadata([])
            return self._controller

        return self._call_found(find, self._refresh_nodes, request, _CONTROLLER_MOVED)

    def _call_found(
        self,
        find: Callable[[], NodeId],
        forget: Callable[[], None],
        request: Build,
        moved: frozenset[ErrorCode],
    ) -> Message:
        reply: Message | None = None
        lost: Exception = NoBroker("no time left for a request")
        for _ in self.attempts():
            node = find()
            message = request() if callable(request) else request
            try:
                reply = self._exchange(self._address(node), message)
            except LoginFailed:
                raise
            except (OSError, RequestTimedOut) as error:
                reply, lost = None, error
            if reply is not None and moved.isdisjoint(requests.error_codes(reply)):
                return reply
            forget()
        if reply is None:
            raise NoBroker(str(lost)) from lost
        return reply

    def _find_coordinator(self, key: str, kind: int) -> NodeId:
        code, message = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), ""
        for _ in self.attempts():
            reply = self.call(requests.find_coordinator(key, kind))
            found = requests.read_coordinator(reply)
            code, message = found.error_code, found.error_message or ""
            if code == ErrorCode.NONE:
                node = self._coordinators[key, kind] = NodeId(found.node_id)
                self._addresses[node] = Address(found.host, found.port)
                return node
            if code not in _COORDINATOR_MOVED:
                break
        raise Refused(code, key, message)

    def adds_partitions(self) -> bool:
        """Return whether producing to a partition adds it to the transaction (KIP-890).

        This is a feature of the whole cluster, so any node is asked.

        Raises:
            NoBroker: no broker answers.
        """
        failure: Exception | None = None
        for _ in self.attempts():
            for node in tuple(self._addresses):
                try:
                    with self.lend(node) as wire:
                        return wire.adds_partitions
                except (OSError, RequestTimedOut) as error:
                    failure = error
            self._refresh_nodes()
        raise NoBroker(f"no broker answers: {failure}")

    # -- offsets ---------------------------------------------------------------

    def list_offsets(
        self, asked: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """Return an offset for each timestamp in ms (-1 the end, -2 the start); -1: no such record.

        ``committed``: the end is the last stable offset, not the high watermark.

        Raises:
            Refused: a partition does not exist or may not be read. NoBroker: no broker answers.
        """
        found: dict[TopicPartition, int] = {}
        for _ in self.attempts():
            left = {each: time for each, time in asked.items() if each not in found}
            error = self._list_offsets_once(left, committed, found)
            if error is None:
                return found
            if error.code not in MOVED:
                raise error
            for each in left:
                self.forget(each.topic)
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(next(iter(left))))

    def _list_offsets_once(
        self,
        asked: Mapping[TopicPartition, int],
        committed: bool,
        found: dict[TopicPartition, int],
    ) -> Refused | None:
        by_leader: dict[NodeId, dict[TopicPartition, int]] = {}
        for partition, time in asked.items():
            by_leader.setdefault(self.leader(partition).node_id, {})[partition] = time
        failure: Refused | None = None
        for node, theirs in by_leader.items():
            request = requests.list_offsets(theirs, committed, self.request_timeout_ms)
            try:
                reply = self._exchange(self._address(node), request)
            except (OSError, RequestTimedOut) as error:
                failure = Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node}", str(error))
                continue
            failure = requests.read_offsets(reply, found) or failure
        return failure

    def epoch_end(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch at or below ``epoch`` in the leader's log, and its end.

        Raises:
            Refused: the partition does not exist or may not be read. NoBroker: no broker answers.
        """
        reply = self.call_leader(partition, requests.epoch_end(partition, epoch))
        return requests.read_epoch_end(reply, partition)

    def sizes(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the size in bytes of each partition on its leader; omit those without a leader.

        Raises:
            NoBroker: a leader does not answer. Refused: it rejects the request.
        """
        found: dict[TopicPartition, int] = {}
        partitions = {name: range(info.partitions) for name, info in self.topics(topics).items()}
        leaders = {name: self._topics[name].leaders for name in partitions}
        nodes = {each.node_id for theirs in leaders.values() for each in theirs.values()}
        for node in sorted(nodes):
            reply = self.call(requests.describe_log_dirs(partitions), node=node)
            for partition, size in requests.read_sizes(reply):
                leader = leaders[partition.topic].get(partition.partition)
                if leader is not None and leader.node_id == node:
                    found[partition] = size
        return found

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of ``group``, which has no members.

        Raises:
            Refused: the group has members, or may not be written. NoBroker: no broker answers.
        """

        def build() -> Message:
            return requests.offset_commit(group, offsets, self._ids(offsets))

        if offsets:
            requests.check_committed(self.call_coordinator(group, 0, build), group)

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets of ``group``; omit partitions without one.

        Raises:
            Refused: the group may not be read. NoBroker: no broker answers.
        """
        if not partitions:
            return {}

        def build() -> Message:
            return requests.offset_fetch(group, partitions, self._ids(partitions))

        reply = self.call_coordinator(group, 0, build)
        names = {topic_id: name for name, topic_id in self._ids(partitions).items()}
        return requests.read_committed_offsets(reply, group, names)

    def _ids(
        self, partitions: Mapping[TopicPartition, int] | Sequence[TopicPartition]
    ) -> dict[str, Uuid]:
        return {name: self.topic(name).topic_id for name in {each.topic for each in partitions}}

    # -- connections -----------------------------------------------------------

    @contextmanager
    def lend(self, node: int) -> Iterator[Wire]:
        """Lend a connection to a node for exclusive use; it is reused if it is returned idle.

        Raises:
            OSError, RequestTimedOut: the node does not answer.
        """
        address = self._address(NodeId(node))
        with self._lock:
            idle = self._lent.setdefault(address, [])
            wire = idle.pop() if idle else None
        if wire is None:
            wire = self._open(address)
        try:
            yield wire
        finally:
            with self._lock:
                keeps = wire.is_idle and len(idle) < _IDLE_FETCH_WIRES_MAX and not self.is_closed
                if keeps:
                    idle.append(wire)
            if not keeps:
                wire.close()

    def _exchange(self, address: Address, request: Message) -> Message:
        with self._lock:
            line = self._lines.setdefault(address, _Line())
        with line.lock:
            wire = line.wire
            is_kept = wire is not None and wire.is_open
            if wire is None or not is_kept:
                wire = line.wire = self._open(address)
            try:
                return wire.ask(request)
            except ConnectionLost:
                # The node may have closed an idle connection long ago: try a new one.
                if not is_kept:
                    raise
                wire = line.wire = self._open(address)
                return wire.ask(request)

    def _open(self, address: Address) -> Wire:
        return Wire.open(
            address,
            self._client_id,
            timeout_ms=self.request_timeout_ms,
            options=self._options,
        )

    def _candidates(self, node: int | None) -> list[Address]:
        if node is not None:
            known = self._addresses.get(NodeId(node))
            return [] if known is None else [known]
        return list(dict.fromkeys((*self._addresses.values(), *self._bootstrap)))

    def _address(self, node: NodeId) -> Address:
        if node not in self._addresses:
            self._metadata([])
        try:
            return self._addresses[node]
        except KeyError:
            raise NoBroker(f"broker {node} is unknown") from None

    def _refresh_nodes(self) -> None:
        self._metadata([])

    # -- retries ---------------------------------------------------------------

    def attempts(self) -> Iterator[int]:
        """Yield attempt numbers until the timeout, with a pause before each but the first."""
        deadline = self._clock.monotonic() + self._api_timeout_ms
        attempt = 0
        while True:
            yield attempt
            if self._clock.monotonic() >= deadline:
                return
            self._wait(attempt)
            attempt += 1

    def _wait(self, attempt: int) -> None:
        pause(self._backoff.wait_ms(attempt, self._random.fraction()))


def _parse_address(text: str) -> Address:
    found = parse_host_port(text.strip())
    return Address(found.host, found.port)


def _connection_options(properties: Mapping[str, str]) -> Options:
    try:
        return connection_options(properties, SystemRandom(), SystemClock())
    except BadClientSecurity as error:
        raise BadClientSecurity(f"options kafka.*: {error}") from error
