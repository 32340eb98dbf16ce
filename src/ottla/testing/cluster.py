"""A cluster for a test: on free ports, in its own directory, with faults on demand.

    with run_cluster(3, processes=True) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(2)                 # as in a power loss
        cluster.partition(1, 3)         # no traffic between them; clients reach both
        cluster.heal()
        cluster.start(2)

Node ids count from 1. All methods block until they are done, and may be called from any thread
except the nodes' own.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ottla.config.loading import load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.protocol.uuids import uuid_text
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.security.private_files import PRIVATE, write_file
from ottla.testing.access import PLAINTEXT, ClusterAccess, access_named
from ottla.testing.hosts import Host, NeedsProcesses, ProcessHost, Site, ThreadHost
from ottla.testing.layout import (
    CONTROLLERS,
    NODES_MAX,
    REGISTRY,
    ClusterPlan,
    NodePlan,
    initial_controllers,
    listeners_of,
    pairs_between,
    settings_text,
    voters_of,
)
from ottla.testing.links import Links
from ottla.testing.loop_thread import LoopThread
from ottla.testing.ports import HeldPort
from ottla.testing.settings import check_known, settings_texts, tiering_settings

OPEN_S_MAX = 30.0

Nodes = int | Iterable[int]


class Wires(Protocol):
    """The links between the nodes. A pair is the sender and the receiver."""

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Block the given pairs."""
        ...

    def heal(self) -> None:
        """Unblock all pairs."""
        ...


@dataclass(slots=True)
class _Relays:
    """Relays on loopback, and the thread of their event loop; a single node has none."""

    thread: LoopThread
    links: Links

    async def _do(self, work: Callable[[], None]) -> None:
        work()

    def _change(self, work: Callable[[], None]) -> None:
        """Change the links on their own loop; return when it is done."""
        self.thread.run(self._do(work), OPEN_S_MAX)

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._change(lambda: self.links.gates.cut(pairs))

    def heal(self) -> None:
        self._change(self.links.gates.heal)

    def close(self) -> None:
        self._change(self.links.close)
        self.thread.close()


class Cluster:
    """A running cluster, created by `run_cluster`, `run_node` or a fixture."""

    def __init__(
        self,
        plan: ClusterPlan,
        sites: Mapping[int, Site],
        hosts: Mapping[int, Host],
        wires: Wires,
        access: ClusterAccess = PLAINTEXT,
    ) -> None:
        self.access = access
        self._plan = plan
        self._sites = sites
        self._hosts = hosts
        self._wires = wires

    # -- where it is -------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, as ``bootstrap.servers`` takes them."""
        return ",".join(node.address for node in self._plan.nodes.values())

    @property
    def client_config(self) -> dict[str, str]:
        """Everything that a client needs to connect, by librdkafka's names; may hold a password."""
        return {"bootstrap.servers": self.bootstrap, **self.access.client_config}

    @property
    def java_config(self) -> dict[str, str]:
        """As `client_config`, by the names of Kafka's Java clients."""
        return {"bootstrap.servers": self.bootstrap, **self.access.java_config}

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all controllers, as ``--bootstrap-controller`` takes them."""
        return ",".join(each.controller_address for each in self._plan.controllers)

    @property
    def schema_registry_url(self) -> str:
        """The addresses of all schema registries, as ``schema.registry.url`` takes them.

        Raises:
            ValueError: the cluster has none: run it with ``schema_registry=True``.
        """
        urls = [node.registry_url for node in self._plan.nodes.values()]
        if None in urls:
            raise ValueError("the cluster has no schema registry: use schema_registry=True")
        return ",".join(url for url in urls if url is not None)

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._plan.cluster_id

    @property
    def node_ids(self) -> list[int]:
        """All nodes, running or not."""
        return list(self._plan.nodes)

    @property
    def running(self) -> list[int]:
        """The nodes that have been started and neither stopped nor killed."""
        return [node_id for node_id, host in self._hosts.items() if host.is_running]

    def address(self, node_id: int) -> str:
        """Return the address of one node for clients."""
        return self._plan.nodes[node_id].address

    def data(self, node_id: int) -> Path:
        """Return the log directory of one node, the first of several."""
        return self.directories(node_id)[0]

    def directories(self, node_id: int) -> list[Path]:
        """Return all log directories of one node; it has one unless ``log.dirs`` names others."""
        return _directories(self._plan, self._sites[node_id].root)

    def output(self, node_id: int) -> str:
        """Return the output of a node's process so far; empty for a thread."""
        log = self._sites[node_id].log
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def process_id(self, node_id: int) -> int | None:
        """Return the id of a node's process, None while it does not run.

        Raises:
            NeedsProcesses: the node is a thread.
        """
        host = self._hosts[node_id]
        if not isinstance(host, ProcessHost):
            raise NeedsProcesses("a node in a thread has no process of its own")
        return host.process_id

    # -- what can be done to it ----------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Start nodes again (all that do not run, if none is named); wait until they serve.

        Raises:
            NodeFailed: a node did not start.
        """
        wanted = node_ids or [each for each in self._hosts if each not in self.running]
        for node_id in wanted:
            self._hosts[node_id].begin([node_id])
        for node_id in wanted:
            self._hosts[node_id].wait_ready()

    def stop(self, *node_ids: int) -> None:
        """Stop nodes by controlled shutdown (all, if none is named). Raises NodeFailed."""
        for node_id in node_ids or self.running:
            self._hosts[node_id].stop()

    def restart(self, *node_ids: int) -> None:
        """Restart nodes one after the other, waiting for each. Raises NodeFailed."""
        for node_id in node_ids or self.running:
            self.stop(node_id)
            self.start(node_id)

    def kill(self, *node_ids: int) -> None:
        """End nodes at once, all at the same time, as in a power loss.

        Writes that have reached the kernel survive: the process is killed, not the machine.

        Raises:
            NeedsProcesses: the nodes are threads.
        """
        for node_id in node_ids:
            self._hosts[node_id].kill()

    def pause(self, *node_ids: int) -> None:
        """Pause nodes, as in a long pause of the machine: SIGSTOP, or a blocked event loop."""
        for node_id in node_ids:
            self._hosts[node_id].pause()

    def resume(self, *node_ids: int) -> None:
        """Resume paused nodes (all, if none is named)."""
        for node_id in node_ids or self._hosts:
            self._hosts[node_id].resume()

    def partition(self, side: Nodes, other: Nodes, *, one_way: bool = False) -> None:
        """Cut nodes off from others; with ``one_way``, only what ``side`` sends is blocked.

        Covers all traffic between nodes. Clients still reach every node. See
        `ottla.testing.links` for what happens to bytes in flight.
        """
        self._wires.cut(pairs_between(_ids(side), _ids(other), is_one_way=one_way))

    def isolate(self, node_id: int) -> None:
        """Cut one node off from all others."""
        self.partition(node_id, [each for each in self.node_ids if each != node_id])

    def heal(self) -> None:
        """Remove all cuts."""
        self._wires.heal()


def _ids(nodes: Nodes) -> list[int]:
    return [nodes] if isinstance(nodes, int) else list(nodes)


def _checked_voters(nodes: int, controllers: int | None) -> int:
    voters = voters_of(nodes) if controllers is None else controllers
    if not 1 <= voters <= nodes <= NODES_MAX:
        raise ValueError(f"{voters} controllers of {nodes} nodes, {NODES_MAX} at most")
    return voters


@contextmanager
def run_cluster(  # noqa: PLR0913 - one per option
    nodes: int = 3,
    *,
    processes: bool = False,
    config: Mapping[str, object] | None = None,
    directory: Path | None = None,
    controllers: int | None = None,
    environment: Callable[[int], Mapping[str, str]] | None = None,
    access: ClusterAccess | None = None,
    security: str = "plaintext",
    tiering: bool = False,
    schema_registry: bool = False,
) -> Iterator[Cluster]:
    """Run a cluster; at the end stop all nodes and delete their data.

    Args:
        nodes: how many, 16 at most; all are brokers.
        processes: whether each node is a process. In threads they start faster, and cannot
            be killed.
        config: additional settings of all nodes. Relative paths in ``log.dirs`` are below
            each node's own directory.
        directory: where their data goes and is kept; a temporary directory otherwise.
        controllers: how many nodes are voters as well; by default 3, or 1 of fewer than 3.
        environment: additional environment variables of a node's process, by node id.
        access: how nodes and clients authenticate; its settings win over ``config``.
        security: the same in a word, ``plaintext`` or ``sasl_ssl``; see `Cluster.client_config`.
        schema_registry: whether nodes serve one; see `Cluster.schema_registry_url`.
        tiering: whether topics with ``remote.storage.enable`` keep old segments in a directory.

    Raises:
        NodeFailed: a node did not start.
        ValueError: a cluster of this size is impossible, or a setting is unknown.
    """
    voters = _checked_voters(nodes, controllers)
    with ExitStack() as stack:
        root = directory or _temporary(stack)
        registry = (REGISTRY,) if schema_registry else ()
        numbers = range(1, nodes + 1)
        names = {number: (*listeners_of(number, voters), *registry) for number in numbers}
        held = {number: {name: _hold(stack) for name in names[number]} for number in numbers}
        tier = tiering_settings(root / "tier", nodes) if tiering else {}
        access = access or access_named(security, root / "security")
        plan = _plan(held, {**tier, **settings_texts(config), **access.config})
        wires = _open_wires(plan)
        stack.callback(wires.close)
        sites = {
            number: Site(
                number,
                root / f"node-{number}",
                ports,
                wires.links.relays_of(number),
                {} if environment is None else environment(number),
            )
            for number, ports in held.items()
        }
        format_sites(plan, sites, access.scram)
        host = ProcessHost if processes else ThreadHost
        hosts: dict[int, Host] = {number: host(site) for number, site in sites.items()}
        yield begin_all(Cluster(plan, sites, hosts, wires, access), hosts, stack)


def begin_all(cluster: Cluster, hosts: Mapping[int, Host], stack: ExitStack) -> Cluster:
    """Start every node of a cluster, and wait; ``stack`` ends them. Raises NodeFailed."""
    for host in hosts.values():
        stack.callback(host.discard)
    for host in hosts.values():
        host.begin(cluster.node_ids)
    for host in hosts.values():
        host.wait_ready()
    return cluster


@contextmanager
def run_node(
    *,
    processes: bool = False,
    config: Mapping[str, object] | None = None,
    directory: Path | None = None,
    security: str = "plaintext",
    tiering: bool = False,
    schema_registry: bool = False,
) -> Iterator[Cluster]:
    """Run a cluster of one node. Arguments and errors as of `run_cluster`."""
    with run_cluster(
        1,
        processes=processes,
        config=config,
        directory=directory,
        security=security,
        tiering=tiering,
        schema_registry=schema_registry,
    ) as cluster:
        yield cluster


def _temporary(stack: ExitStack) -> Path:
    root = Path(tempfile.mkdtemp(prefix="ottla-"))
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    return root


def _hold(stack: ExitStack) -> HeldPort:
    port = HeldPort()
    stack.callback(port.close)
    return port


def _plan(held: Mapping[int, Mapping[str, HeldPort]], config: Mapping[str, str]) -> ClusterPlan:
    nodes = {
        node_id: NodePlan(
            node_id,
            CONTROLLERS in ports,
            {name: port.number for name, port in ports.items() if name != REGISTRY},
            registry_port=ports[REGISTRY].number if REGISTRY in ports else None,
        )
        for node_id, ports in held.items()
    }
    return ClusterPlan(cluster_id=uuid_text(SystemRandom().uuid()), nodes=nodes, config=config)


def _open_wires(plan: ClusterPlan) -> _Relays:
    thread = LoopThread("ottla-links")
    try:
        return _Relays(thread, thread.run(Links.open(plan), OPEN_S_MAX))
    except BaseException:
        thread.close()
        raise


def _directories(plan: ClusterPlan, root: Path) -> list[Path]:
    """Return the log directories of the node at ``root``; relative paths are below it."""
    return [root / name.strip() for name in plan.config.get("log.dirs", "data").split(",")]


def format_sites(plan: ClusterPlan, sites: Mapping[int, Site], scram: tuple[str, ...] = ()) -> None:
    """Write every node's settings, and format its directories with the users of ``scram``."""
    random = SystemRandom()
    ids = {node.node_id: uuid_text(random.uuid()) for node in plan.controllers}
    voters = Quorum(initial_controllers=initial_controllers(plan, ids))
    observer = Quorum(has_no_initial_controllers=True)
    shared = {key: value for key, value in plan.config.items() if key != "log.dirs"}
    for node_id, site in sites.items():
        site.root.mkdir(parents=True, exist_ok=True)
        node = plan.nodes[node_id]
        directories = ",".join(map(str, _directories(plan, site.root)))
        text = settings_text(replace(plan, config=shared), node, directories)
        write_file(site.settings, text.encode(), PRIVATE)  # it may contain passwords
        options = FormatOptions(
            cluster_id=plan.cluster_id,
            quorum=voters if node.is_controller else observer,
            scram=scram,
        )
        loaded = load(text)
        check_known(loaded)
        made = plan_format(loaded, options, random)
        format_node(RealDisk(), random, SystemClock().now(), made)
