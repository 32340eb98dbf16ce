"""The settings of every node of a test cluster. Pure.

The first nodes are controllers and brokers, the others brokers only. Timeouts are short: a lost
leader is replaced in about a second, which suits tests and not production. The caller's settings
come last and so win.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

HOST: Final = "127.0.0.1"
CLIENTS: Final = "PLAINTEXT"
CONTROLLERS: Final = "CONTROLLER"
REGISTRY: Final = "SCHEMA_REGISTRY"
"""The name under which the port of a node's schema registry is held."""
NODES_MAX: Final = 16
VOTERS_MAX: Final = 3

QUICK: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "100",
    "ottla.controller.heartbeat.interval.ms": "150",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node. ``ports`` has one port for each of its listeners, by name."""

    node_id: int
    is_controller: bool
    ports: Mapping[str, int]
    host: str = HOST
    registry_port: int | None = None
    """The port of its schema registry; None without one."""

    @property
    def registry_url(self) -> str | None:
        """The address of its schema registry; None without one."""
        port = self.registry_port
        return None if port is None else f"http://{self.host}:{port}"

    @property
    def address(self) -> str:
        """Its address for clients."""
        return f"{self.host}:{self.ports[CLIENTS]}"

    @property
    def controller_address(self) -> str:
        """Its address as a controller."""
        return f"{self.host}:{self.ports[CONTROLLERS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """All nodes, by id from 1 on, and the settings that they share."""

    cluster_id: str
    nodes: Mapping[int, NodePlan]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def controllers(self) -> list[NodePlan]:
        """The nodes that vote."""
        return [node for node in self.nodes.values() if node.is_controller]


def voters_of(nodes: int) -> int:
    """Return how many of ``nodes`` are voters: an odd number, three at most."""
    return min(VOTERS_MAX, nodes if nodes % 2 else nodes - 1)


def listeners_of(node_id: int, voters: int) -> tuple[str, ...]:
    """Return the names of a node's listeners."""
    return (CLIENTS, CONTROLLERS) if node_id <= voters else (CLIENTS,)


def settings_text(plan: ClusterPlan, node: NodePlan, directory: str) -> str:
    """Return a node's ``server.properties``; later lines win over earlier ones."""
    brokers = len(plan.nodes)
    replicas = min(3, brokers)
    listeners = ",".join(f"{name}://{node.host}:{port}" for name, port in node.ports.items())
    quorum = ",".join(each.controller_address for each in plan.controllers)
    settings: dict[str, str] = {
        "process.roles": "broker,controller" if node.is_controller else "broker",
        "node.id": str(node.node_id),
        "listeners": listeners,
        "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{CONTROLLERS}:PLAINTEXT",
        "inter.broker.listener.name": CLIENTS,
        "controller.listener.names": CONTROLLERS,
        "controller.quorum.bootstrap.servers": quorum,
        "log.dirs": directory,
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(min(2, replicas)),
        **QUICK,
        **({} if node.registry_url is None else {"schema.registry.listeners": node.registry_url}),
        **plan.config,
    }
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    """Escape a value so that it keeps its newlines and backslashes in a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def initial_controllers(plan: ClusterPlan, directory_ids: Mapping[int, str]) -> str:
    """Return the first voters, as ``ottla format --initial-controllers`` takes them."""
    return ",".join(
        f"{node.node_id}@{node.controller_address}:{directory_ids[node.node_id]}"
        for node in plan.controllers
    )


def pairs_between(
    side: Sequence[int], other: Sequence[int], *, is_one_way: bool = False
) -> list[tuple[int, int]]:
    """Return the ordered pairs that a cut blocks: from one side to the other, and back.

    Raises:
        ValueError: a node is on both sides.
    """
    both = sorted(set(side) & set(other))
    if both:
        raise ValueError(f"nodes {both} cannot be cut off from themselves")
    there = [(here, far) for here in side for far in other]
    return there if is_one_way else there + [(far, here) for here, far in there]
