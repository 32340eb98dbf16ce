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

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, cast

import msgspec

from ottla.client import lookups, requests
from ottla.client.backoff import Backoff
from ottla.client.blocking.wire import Wire
from ottla.client.client_security import BadClientSecurity, connection_options
from ottla.client.connection import Options
from ottla.client.failures import (
    CONTROLLER_MOVED,
    COORDINATOR_MOVED_OR_LOADING,
    LEADER_MOVED,
    ConnectionLost,
    NoBroker,
    Refused,
)
from ottla.client.lookups import Lookup, Result, Step
from ottla.client.metadata import ClusterMetadata, KnownTopic, Leader
from ottla.config.addresses import parse_host_port
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId, TopicPartition, Uuid
from ottla.runtime.blocking import pause, process_id
from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.credentials import LoginFailed

API_TIMEOUT_MS: Final = 60_000
"""Kafka's ``default.api.timeout.ms``: how long a call is retried."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""Kafka's ``request.timeout.ms``: how long to wait for one reply."""
FETCH_BYTES_MAX: Final = 8 << 20
"""Our ``fetch.max.bytes``: the most bytes one fetch requests."""
_DOUBTS_MAX: Final = 2  # metadata of a new topic may lag; a misspelt one never appears
_IDLE_FETCH_WIRES_MAX: Final = 4  # per node; further connections are closed after use

_COORDINATOR_MOVED: Final = COORDINATOR_MOVED_OR_LOADING | {ErrorCode.UNSTABLE_OFFSET_COMMIT}

Build: TypeAlias = Message | Callable[[], Message]
"""A request, or a function that builds one for each attempt because ids may change."""


class ClientSettings(msgspec.Struct, frozen=True):
    """Connection settings. ``properties`` are Kafka's, without the prefix ``kafka.``."""

    bootstrap: tuple[str, ...]
    client_id: str
    properties: dict[str, str]

    def __repr__(self) -> str:
        # Properties may contain passwords and may be printed in errors: names only.
        return f"ClientSettings({','.join(self.bootstrap)}, {sorted(self.properties)})"


_clients: dict[tuple[object, ...], "BrokerClient"] = {}
_clients_lock = threading.Lock()


def client_for(settings: ClientSettings) -> "BrokerClient":
    """Return this process's client for ``settings``; create it if necessary.

    A forked worker gets its own client: two processes on one connection would mix up replies.

    Raises:
        BadClientSecurity: security settings cannot be used.
        BadAddress: an address is malformed.
    """
    properties = tuple(sorted(settings.properties.items()))
    key = (process_id(), settings.bootstrap, settings.client_id, properties)
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

    def __init__(self, settings: ClientSettings) -> None:
        properties = settings.properties
        self._options = _connection_options(properties)
        self._metadata = ClusterMetadata(
            [_parse_address(each) for each in settings.bootstrap], _DOUBTS_MAX
        )
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
        self._coordinators: dict[tuple[str, int], NodeId] = {}
        self._adds_partitions: bool | None = None  # as the newest connection says
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

    def topics(self, names: Sequence[str] | None) -> dict[str, KnownTopic]:
        """Request the topics ``names`` (None: all); the result omits unknown ones.

        Raises:
            NoBroker: no broker answers. Refused: a topic may not be read, or its name is invalid.
        """
        topics: dict[str, KnownTopic] = {}
        for row in self._load_metadata(names).topics:
            topic = None if row.name is None else self._metadata.topic(row.name)
            if topic is not None:
                topics[topic.name] = topic
            elif row.name is not None and row.error_code not in LEADER_MOVED:
                raise Refused(row.error_code, row.name)
        return topics

    def topic(self, name: str) -> KnownTopic:
        """Return one topic from the cache, or request it a few times.

        Raises:
            Refused: it does not exist, or may not be read. NoBroker: no broker answers.
        """
        return self._look_up(lookups.find_topic(self._metadata, name))

    def forget(self, topic: str) -> None:
        """Drop the cached metadata of a topic, because a node contradicted it."""
        self._metadata.forget(topic)

    def node_hosts(self) -> dict[int, str]:
        """Return the hosts of all brokers, by id, as the cluster advertises them.

        Raises:
            NoBroker, LoginFailed
        """
        self._refresh_nodes()
        return {int(node): place.host for node, place in sorted(self._metadata.nodes.items())}

    def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader of a partition; wait for an election.

        Raises:
            Refused: no such topic or partition, or no leader in time. NoBroker: no broker answers.
        """
        return self._look_up(lookups.find_leader(self._metadata, partition))

    def _load_metadata(self, names: Sequence[str] | None) -> MetadataResponse:
        reply = self.call(requests.metadata(names))
        assert isinstance(reply, MetadataResponse)
        self._metadata.learn(reply)
        return reply

    def _look_up(self, lookup: Lookup[Result]) -> Result:
        """Carry out the steps of a look-up, and return its result."""
        deadline = self._clock.monotonic() + self._api_timeout_ms
        try:
            step = next(lookup)
            while True:
                step = lookup.send(self._carry_out(step, deadline))
        except StopIteration as done:
            return cast("Result", done.value)

    def _carry_out(self, step: Step, deadline: int) -> object:
        match step:
            case lookups.Ask(request):
                return self.call(request)
            case lookups.AskEach(by_node):
                return [self._ask_one(node, request) for node, request in by_node.items()]
            case lookups.Pause(attempt):
                if self._clock.monotonic() >= deadline:
                    return False
                self._wait(attempt)
                return True

    def _ask_one(self, node: NodeId, request: Message) -> Message | Exception:
        try:
            return self._exchange(self._address(node), request)
        except LoginFailed:
            raise
        except (OSError, RequestTimedOut) as error:
            return Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node}", str(error))

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
            if node is not None and node not in self._metadata.nodes:
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

        return self._call_found(find, lambda: self.forget(partition.topic), request, LEADER_MOVED)

    def call_coordinator(self, key: str, kind: int, request: Build) -> Message:
        """Send a request to the coordinator of a group (``kind`` 0) or transactional id (1).

        Retries and returns the last reply as `call_leader` does.

        Raises:
            Refused: the key has no coordinator. NoBroker: no broker answers.
        """

        def find() -> NodeId:
            node = self._coordinators.get((key, kind))
            if node is None:
                node = self._look_up(lookups.find_coordinator(self._metadata, kind, key))
                self._coordinators[key, kind] = node
            return node

        def forget() -> None:
            self._coordinators.pop((key, kind), None)

        return self._call_found(find, forget, request, _COORDINATOR_MOVED)

    def call_controller(self, request: Build) -> Message:
        """Send a request to the broker that forwards to the controller. Raises as `call`."""

        def find() -> NodeId:
            if self._metadata.controller not in self._metadata.nodes:
                self._refresh_nodes()
            return self._metadata.controller

        return self._call_found(find, self._refresh_nodes, request, CONTROLLER_MOVED)

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

    def adds_partitions(self) -> bool:
        """Return whether producing to a partition adds it to the transaction (KIP-890).

        This is a feature of the whole cluster, so the newest connection to any node tells it.

        Raises:
            NoBroker: no broker answers.
        """
        if self._adds_partitions is None:
            self._refresh_nodes()
        return bool(self._adds_partitions)

    # -- offsets ---------------------------------------------------------------

    def list_offsets(
        self, asked: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """Return an offset for each timestamp in ms (-1 the end, -2 the start); -1: no such record.

        ``committed``: the end is the last stable offset, not the high watermark.

        Raises:
            Refused: a partition does not exist or may not be read. NoBroker: no broker answers.
        """
        return self._look_up(lookups.find_offsets(self._metadata, asked, committed=committed))

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
        known = self.topics(topics)
        partitions = {name: topic.partitions for name, topic in known.items()}
        leaders = {name: topic.leaders for name, topic in known.items()}
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
        return requests.read_committed_offsets(reply, f"group {group}", names)

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
        wire = Wire.open(
            address, self._client_id, timeout_ms=self.request_timeout_ms, options=self._options
        )
        self._adds_partitions = wire.adds_partitions
        return wire

    def _candidates(self, node: int | None) -> list[Address]:
        if node is None:
            return list(self._metadata.addresses())
        address = self._metadata.nodes.get(NodeId(node))
        return [] if address is None else [address]

    def _address(self, node: NodeId) -> Address:
        if node not in self._metadata.nodes:
            self._refresh_nodes()
        try:
            return self._metadata.nodes[node]
        except KeyError:
            raise NoBroker(f"broker {node} is unknown") from None

    def _refresh_nodes(self) -> None:
        self._load_metadata([])

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
