"""A cluster of Apache Kafka and Ottla nodes; any node may be replaced in place by the other kind.

    with run_mixed({1: KAFKA, 2: KAFKA, 3: OTTLA}, directory) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.replace(1, OTTLA)              # controlled shutdown, same directories and settings
        cluster.replace(2, OTTLA, kill=True)   # kill -9 instead
        cluster.wait_whole()

It is an `ottla.testing.Cluster`, without links that can be cut unless each node has its own
network (``net``).
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.free_ports import free_ports
from tests.mixed.hosts import MixedHost, ask, format_command, java
from tests.mixed.kinds import TARGET, Kind

from ottla.client.connection import Options
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.uuids import uuid_text
from ottla.runtime.randomness import SystemRandom
from ottla.testing.access import PLAINTEXT, ClusterAccess
from ottla.testing.cluster import Cluster, Wires
from ottla.testing.hosts import Site
from ottla.testing.layout import CLIENTS, CONTROLLERS, HOST, ClusterPlan, NodePlan

T = TypeVar("T")

FORMAT_S_MAX = 120.0
WHOLE_S_MAX = 120.0
BROKER, CONTROLLER, COMBINED = "broker", "controller", "broker,controller"
QUORUM = DescribeQuorumRequest(
    topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)
# As a small cluster is configured, with timeouts that a busy machine can keep.
SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    # A fetch may return only the marker of a transaction. librdkafka does not acknowledge that,
    # so its lock has to expire five times, on either kind of broker, while records go on.
    "group.share.partition.max.record.locks": "4000",
    "group.share.max.partition.max.record.locks": "10000",  # Kafka 4.3 wants it as well
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "replica.lag.time.max.ms": "10000",
}


class NoWires:
    """Links that cannot be cut: nodes of both kinds on one loopback."""

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        raise NotImplementedError("nodes without networks of their own cannot be cut off")

    def heal(self) -> None:
        """Do nothing: nothing is ever cut."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a mixed cluster is laid out.

    ``roles`` of a node are `COMBINED` unless given. ``is_static``: ``controller.quorum.voters``
    instead of voters in the log. ``joiners`` are controllers that are not voters at first.
    ``release`` is the metadata.version to format with (as ``--release-version``); by default that
    of the first node's kind. ``config`` are settings of all nodes, ``own`` of one.
    """

    roles: Mapping[int, str] = field(default_factory=dict)
    is_static: bool = False
    joiners: frozenset[int] = frozenset()
    release: str | None = None
    features: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    access: ClusterAccess = PLAINTEXT

    def role(self, node_id: int) -> str:
        return self.roles.get(node_id, COMBINED)

    def is_broker(self, node_id: int) -> bool:
        return BROKER in self.role(node_id)

    def is_controller(self, node_id: int) -> bool:
        return CONTROLLER in self.role(node_id)


class MixedCluster(Cluster):
    """A running cluster of both kinds, created by `run_mixed`."""

    def __init__(
        self,
        plan: ClusterPlan,
        hosts: Mapping[int, MixedHost],
        wires: Wires,
        shape: Shape,
    ) -> None:
        sites = {node_id: host.site for node_id, host in hosts.items()}
        super().__init__(plan, sites, hosts, wires, shape.access)
        self.shape, self.hosts, self.nodes = shape, hosts, plan.nodes
        self.killed: Counter[Kind] = Counter()
        """How many nodes of each kind were killed."""

    @property
    def kinds(self) -> dict[int, Kind]:
        """What every node runs."""
        return {node_id: host.kind for node_id, host in self.hosts.items()}

    @property
    def brokers(self) -> list[int]:
        return [each for each in self.nodes if self.shape.is_broker(each)]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes[each].address for each in self.brokers)

    def controller_address(self, node_id: int) -> str:
        return self.nodes[node_id].controller_address

    def process_id(self, node_id: int) -> int | None:
        return self.hosts[node_id].process_id

    def settings(self, node_id: int) -> Path:
        """Return the ``server.properties`` of a node."""
        return self.hosts[node_id].site.settings

    def begin(self, *node_ids: int) -> None:
        """Start nodes without waiting for them."""
        for node_id in node_ids:
            self.hosts[node_id].begin([node_id])

    def kill(self, *node_ids: int) -> None:
        """Kill nodes, as kill -9 does."""
        self.killed.update(self.kinds[each] for each in node_ids)
        super().kill(*node_ids)

    def replace(self, node_id: int, kind: Kind, *, kill: bool = False) -> None:
        """Stop or kill a node and start the other kind in its place. Raises NodeFailed."""
        (self.kill if kill else self.stop)(node_id)
        self.hosts[node_id].kind = kind
        self.start(node_id)

    # -- its state, asked by the protocol --------------------------------------------

    def metadata(self, node_id: int) -> MetadataResponse | None:
        """Return all topics as one broker knows them; None when it does not answer."""
        reply = ask(self.address(node_id), MetadataRequest(topics=None), self._options)
        assert reply is None or isinstance(reply, MetadataResponse)
        return reply

    @property
    def _options(self) -> Options | None:
        return None if self.access is PLAINTEXT else self.access.options

    def is_whole(self) -> bool:
        """Return whether every running broker says that every replica is in sync."""
        running = [each for each in self.brokers if each in self.running]
        for node_id in running:
            reply = self.metadata(node_id)
            if reply is None or {int(each.node_id) for each in reply.brokers} < set(running):
                return False
            for topic in reply.topics:
                for each in topic.partitions:
                    if each.leader_id < 0 or set(each.isr_nodes) != set(each.replica_nodes):
                        return False
        return True

    def wait_whole(self) -> None:
        """Wait until every replica of every topic is in sync. Raises TimeoutError."""
        wait_until(self.is_whole, WHOLE_S_MAX, "all replicas in sync")

    def quorum(self) -> DescribeQuorumResponse | None:
        """Return the state of the metadata quorum, from the first broker that knows it."""
        for node_id in self.brokers:
            if node_id in self.running:
                reply = ask(self.address(node_id), QUORUM, self._options)
                if isinstance(reply, DescribeQuorumResponse) and reply.error_code == 0:
                    return reply
        return None

    def leader(self) -> int | None:
        """Return the active controller; None while none is known."""
        reply = self.quorum()
        leader = -1 if reply is None else int(reply.topics[0].partitions[0].leader_id)
        return leader if leader > 0 else None

    def wait_leader(self, *, other_than: int | None = None) -> int:
        """Wait for an active controller. Raises TimeoutError."""

        def found() -> int | None:
            leader = self.leader()
            return None if leader == other_than else leader

        leader = wait_until(found, WHOLE_S_MAX, "an active controller")
        assert leader is not None
        return leader

    def tool(self, name: str, *arguments: str, version: str = TARGET) -> str:
        """Run a tool of Apache Kafka by its class; return its output, fail on a bad exit."""
        return run_tool(name, *arguments, version=version)


def run_tool(name: str, *arguments: str, version: str = TARGET, stdin: str | None = None) -> str:
    """Run a class of Apache Kafka; return its output, fail on a bad exit."""
    done = subprocess.run(
        java(version, name, *arguments),
        capture_output=True,
        text=True,
        input=stdin,
        timeout=FORMAT_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Repeat until the condition is true. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return found


@contextmanager
def run_mixed(
    kinds: Mapping[int, Kind],
    directory: Path,
    shape: Shape | None = None,
    *,
    absent: frozenset[int] = frozenset(),
) -> Iterator[MixedCluster]:
    """Format a cluster, each node by the tool of its own kind, run it, and end it.

    Nodes of ``absent`` are formatted and not started.

    Raises:
        Missing: no Java, or no jars. NodeFailed: a node did not start.
    """
    shape = shape or Shape()
    with ExitStack() as stack:
        cluster = lay_out(kinds, directory, shape)
        format_all(cluster)
        started = {each: host for each, host in cluster.hosts.items() if each not in absent}
        stack.callback(lambda: [host.discard() for host in cluster.hosts.values()])
        expected = [each for each in cluster.brokers if each not in absent]
        for host in started.values():
            host.begin(expected)
        for host in started.values():
            host.wait_ready()
        yield cluster


def lay_out(
    kinds: Mapping[int, Kind],
    directory: Path,
    shape: Shape,
    *,
    hosts: Mapping[int, str] | None = None,
    commands: Mapping[int, tuple[str, ...]] | None = None,
    wires: Wires | None = None,
) -> MixedCluster:
    """Write the ``server.properties`` of every node; nothing is formatted or started yet.

    ``hosts`` are addresses other than loopback ones, ``commands`` prefixes of the nodes' processes.
    """
    hosts = hosts or own_addresses(kinds)
    ports = iter(free_ports(2 * len(kinds)))
    nodes = {
        node_id: NodePlan(
            node_id,
            shape.is_controller(node_id),
            {name: next(ports) for name in (CLIENTS, CONTROLLERS) if _has(shape, node_id, name)},
            hosts.get(node_id, HOST),
        )
        for node_id in kinds
    }
    config = {**SETTINGS, **shape.config, **shape.access.config}
    plan = ClusterPlan(cluster_id=uuid_text(SystemRandom().uuid()), nodes=nodes, config=config)
    made = {}
    for node_id, node in nodes.items():
        root = directory / f"node-{node_id}"
        root.mkdir(parents=True, exist_ok=True)
        site = Site(node_id, root, {}, command=(commands or {}).get(node_id, ()))
        site.settings.write_text(_settings(plan, shape, node_id, root))
        made[node_id] = MixedHost(
            site,
            kinds[node_id],
            node.address if shape.is_broker(node_id) else None,
            node.controller_address if node.is_controller else None,
            None if shape.access is PLAINTEXT else shape.access.options,
        )
    return MixedCluster(plan, made, wires or NoWires(), shape)


def own_addresses(node_ids: Iterable[int]) -> dict[int, str]:
    """Return a loopback address of its own for each node, where the system has them.

    While a node is replaced nothing listens on its port for seconds; on an address that all tests
    share, another run would take the port for free.
    """
    if sys.platform != "linux":
        return {}
    high, low = divmod(os.getpid(), 254)
    return {each: f"127.{1 + high % 254}.{1 + low}.{each}" for each in node_ids}


def _has(shape: Shape, node_id: int, listener: str) -> bool:
    return shape.is_broker(node_id) if listener == CLIENTS else shape.is_controller(node_id)


def _settings(plan: ClusterPlan, shape: Shape, node_id: int, root: Path) -> str:
    node = plan.nodes[node_id]
    voters = [each for each in plan.controllers if each.node_id not in shape.joiners]
    settings = {
        "process.roles": shape.role(node_id),
        "node.id": str(node_id),
        "listeners": ",".join(f"{name}://{node.host}:{at}" for name, at in node.ports.items()),
        "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{CONTROLLERS}:PLAINTEXT",
        "controller.listener.names": CONTROLLERS,
    }
    if shape.is_broker(node_id):
        settings["inter.broker.listener.name"] = CLIENTS
    if shape.is_static:
        texts = [f"{each.node_id}@{each.controller_address}" for each in voters]
        settings["controller.quorum.voters"] = ",".join(texts)
    else:
        # All controllers: voters may be replaced by those that join later.
        texts = [each.controller_address for each in plan.controllers]
        settings["controller.quorum.bootstrap.servers"] = ",".join(texts)
    settings |= plan.config | shape.own.get(node_id, {})
    names = settings.get("log.dirs", "data").split(",")
    settings["log.dirs"] = ",".join(str(root / each.strip()) for each in names)
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def format_all(cluster: MixedCluster) -> None:
    """Format the directories of every node, each by the tool of its own kind, all at once."""
    ids = {each: uuid_text(SystemRandom().uuid()) for each in cluster.nodes}
    running = []
    for node_id, host in cluster.hosts.items():
        options = _format_options(cluster, node_id, ids)
        command = format_command(host.kind, host.site.settings, cluster.cluster_id, options)
        out = (host.site.root / "format.log").open("wb")
        running.append((command, subprocess.Popen(command, stdout=out, stderr=out)))
        out.close()
    for (command, process), host in zip(running, cluster.hosts.values(), strict=True):
        code = process.wait(FORMAT_S_MAX)
        assert code == 0, f"{command}: {(host.site.root / 'format.log').read_text()}"


def _format_options(cluster: MixedCluster, node_id: int, ids: Mapping[int, str]) -> list[str]:
    shape = cluster.shape
    options = [] if shape.release is None else ["--release-version", shape.release]
    for feature in shape.features:
        options += ["--feature", feature]
    for user in shape.access.scram:
        options += ["--add-scram", user]
    if shape.is_static:
        return options
    if node_id in shape.joiners or not shape.is_controller(node_id):
        return [*options, "--no-initial-controllers"]
    voters = [
        f"{each.node_id}@{each.controller_address}:{ids[each.node_id]}"
        for each in cluster.nodes.values()
        if each.is_controller and each.node_id not in shape.joiners
    ]
    return [*options, "--initial-controllers", ",".join(voters)]
