"""Plan the ports and settings of a local cluster from its number of nodes and first port.

    DATA/node-1/server.properties     written at every start
    DATA/node-1/data/                 the log directory, formatted at the first
    DATA/node-1/node.log              the node's output
    DATA/security/                    with --secure: certificates and passwords
    DATA/up.json, running.json, ...   about the cluster as a whole, see `ottla.cli.up.files`

Every node is broker and controller. Client ports are P, P+1, ...; controllers use free ports
above those, and the metrics listeners the next ones. Schema registries, if the extra ``registry``
is installed, use free ports from 8081 on with the default client port, and otherwise the next ones
above; the first node serves the console, if the extra ``console`` is installed, on a free port from
9080 on, or above likewise: clusters that are started together with ports of their own do not
compete for 8081 and 9080. The voters are fixed by configuration, so ports may differ from one start
to the next.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ottla.config.addresses import PORT_MAX

HOST: Final = "127.0.0.1"
PORT_DEFAULT: Final = 9092
PLAIN_LISTENER: Final = "PLAINTEXT"
SECURE_LISTENER: Final = "SECURE"
CONTROLLERS: Final = "CONTROLLER"
REGISTRY_PORT: Final = 8081
"""The first port of schema registries: the one that clients expect."""
CONSOLE_PORT: Final = 9080
"""The first port that is tried for the console."""
NODES_MAX: Final = 9
"""More voters make a quorum slower, not safer."""


class BadPlan(ValueError):
    """The cluster is not possible; the message says why."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node. ``directory`` is DATA/node-N. ``metrics_port`` None: no metrics listener;
    ``registry_port`` None: no schema registry; ``console_port`` None: no console.
    ``is_secure``: the registry is served by HTTPS.
    """

    node_id: int
    port: int
    controller_port: int
    directory: str
    metrics_port: int | None = None
    host: str = HOST
    advertised_host: str = HOST
    registry_port: int | None = None
    console_port: int | None = None
    is_secure: bool = False

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{_bracketed(self.advertised_host)}:{self.port}"

    @property
    def bind_address(self) -> str:
        """Address that the listener is bound to."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics are; None without a metrics listener."""
        return None if self.metrics_port is None else f"http://{HOST}:{self.metrics_port}/metrics"

    @property
    def registry_url(self) -> str | None:
        """Where its schema registry is; None without one."""
        scheme = "https" if self.is_secure else "http"
        return None if self.registry_port is None else f"{scheme}://{HOST}:{self.registry_port}"

    @property
    def console_url(self) -> str | None:
        """Where its console is; None without one."""
        return None if self.console_port is None else f"http://{HOST}:{self.console_port}"

    @property
    def data(self) -> str:
        """The node's log directory."""
        return f"{self.directory}/data"

    @property
    def settings_file(self) -> str:
        """Its server.properties."""
        return f"{self.directory}/server.properties"

    @property
    def log_file(self) -> str:
        """The file for its output."""
        return f"{self.directory}/node.log"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def plan_nodes(
    count: int,
    port: int,
    data: str,
    is_free: Callable[[int], bool],
    hosts: tuple[str, str] = (HOST, HOST),
    *,
    has_registry: bool = False,
    has_console: bool = False,
    is_secure: bool = False,
) -> tuple[PlannedNode, ...]:
    """Assign ports to every node. ``is_free`` says whether a port can be bound now.

    ``hosts`` are the host that listeners of clients bind to, and the one in the metadata.
    With ``has_registry``, nodes serve a schema registry on free ports from `REGISTRY_PORT` on, or
    above the other ports if ``port`` is not the default, by HTTPS if ``is_secure``. With
    ``has_console`` the first serves the console, likewise from `CONSOLE_PORT` on.

    Raises:
        BadPlan: a number is out of range, or a client port is in use.
    """
    if not 1 <= count <= NODES_MAX:
        raise BadPlan(f"--nodes {count}: must be 1 to {NODES_MAX}")
    if not 1 <= port <= PORT_MAX - 2 * count:
        raise BadPlan(f"--port {port}: must be 1 to {PORT_MAX - 2 * count}")
    ports = range(port, port + count)
    busy = next((number for number in ports if not is_free(number)), None)
    if busy is not None:
        raise BadPlan(f"port {busy} is in use; stop its listener, or use another port with --port")
    above = (each for each in range(port + count, PORT_MAX + 1) if is_free(each))
    free = list(islice(above, 2 * count))
    if len(free) < count:
        raise BadPlan(f"no free ports above {port + count - 1} for controllers; use a lower --port")
    pages = [*free[count:], *[None] * count]
    taken_ports = {*ports, *free}
    above_ports = None if port == PORT_DEFAULT else port + count
    registries: list[int | None] = [None] * count
    if has_registry:
        registries = [
            *islice(_free_from(above_ports or REGISTRY_PORT, taken_ports, is_free), count),
            *registries,
        ]
    taken_ports |= {each for each in registries if each is not None}
    consoles = _free_from(above_ports or CONSOLE_PORT, taken_ports, is_free)
    console_port = next(consoles, None) if has_console else None
    return tuple(
        PlannedNode(
            at + 1,
            port + at,
            free[at],
            f"{data}/node-{at + 1}",
            pages[at],
            *hosts,
            registry_port=registries[at],
            console_port=console_port if at == 0 else None,
            is_secure=is_secure,
        )
        for at in range(count)
    )


def _free_from(first: int, taken: set[int], is_free: Callable[[int], bool]) -> Iterator[int]:
    candidates = range(first, PORT_MAX + 1)
    return (each for each in candidates if each not in taken and is_free(each))


def settings_of(
    node: PlannedNode,
    nodes: Sequence[PlannedNode],
    security: Mapping[str, str] | None = None,
    own: Mapping[str, str] | None = None,
) -> str:
    """Return a node's server.properties.

    ``security`` has the settings of a secure cluster, ``own`` those of the user, which count more.
    """
    clients = PLAIN_LISTENER if security is None else SECURE_LISTENER
    replicas = min(3, len(nodes))
    in_sync = max(1, replicas - 1)
    voters = ",".join(f"{each.node_id}@{HOST}:{each.controller_port}" for each in nodes)
    lines = {
        "process.roles": "broker,controller",
        "node.id": node.node_id,
        "listeners": (
            f"{clients}://{node.bind_address},{CONTROLLERS}://{HOST}:{node.controller_port}"
        ),
        "advertised.listeners": f"{clients}://{node.address}",
        "controller.listener.names": CONTROLLERS,
        "controller.quorum.voters": voters,
        "log.dirs": _escaped(node.data),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "rlmm.config.remote.log.metadata.topic.replication.factor": replicas,
        # All nodes stop together: there is no broker to move leaderships to.
        "controlled.shutdown.enable": "false",
        # The first consumer of a local cluster should not wait for others to join.
        "group.initial.rebalance.delay.ms": 0,
    }
    if node.metrics_port is not None:
        lines["ottla.metrics.listener"] = f"{HOST}:{node.metrics_port}"
    if node.registry_url is not None:
        lines["schema.registry.listeners"] = node.registry_url
    if node.console_url is not None:
        lines["console.listeners"] = node.console_url
    for more in (security or {}, own or {}):
        lines |= {key: _in_properties(value) for key, value in more.items()}
    head = "# Written by `ottla up` at every start; changes here are lost.\n"
    return head + "".join(f"{key}={value}\n" for key, value in lines.items())


def _in_properties(value: str) -> str:
    return value.replace("\\", "\\\\")


def _escaped(path: str) -> str:
    """Return a path as a value of Java properties; a comma would end it."""
    if "," in path:
        raise BadPlan(f"--data {path}: must not contain a comma")
    return path.replace("\\", "\\\\")
