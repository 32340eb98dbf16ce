"""Each node in its own network namespace, joined by a bridge, with links that can lose packets.

    node-1 10.213.n.1 --veth--+
    node-2 10.213.n.2 --veth--+-- bridge 10.213.n.254, where clients are
    node-3 10.213.n.3 --veth--+

To cut one direction, the sender gets a wrong hardware address for the receiver: its packets are
lost silently, and the kernel retransmits until it gives up; the other direction stays open. A link
can be unplugged, and slowed. Needs permission to create namespaces, and `ip`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ottla.protocol.uuids import uuid_text
from ottla.runtime.randomness import SystemRandom
from ottla.testing.access import PLAINTEXT, ClusterAccess
from ottla.testing.cluster import Cluster, begin_all, format_sites
from ottla.testing.hosts import Host, ProcessHost, Site
from ottla.testing.layout import CLIENTS, CONTROLLERS, ClusterPlan, NodePlan, voters_of

PORTS = {CLIENTS: 9092, CONTROLLERS: 9093}
NOWHERE = "02:00:00:00:ff:ff"
SLOW = ("tbf", "rate", "400kbit", "burst", "16kb", "latency", "500ms")
# An address outside of this machine's own bridge, and not the loopback: plaintext is intended.
INSECURE = {"ottla.allow.insecure.controller.listener": "true"}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, check=False, timeout=20, text=True)


def _must(*command: str) -> None:
    done = _run(*command)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Net:
    """The networks of one cluster. ``tag`` separates them from those of other runs."""

    tag: str
    subnet: str
    nodes: tuple[int, ...]
    is_slowable: bool

    def host(self, node_id: int) -> str:
        return f"{self.subnet}.{node_id}"

    def namespace(self, node_id: int) -> str:
        return f"{self.tag}-{node_id}"

    def port(self, node_id: int) -> str:
        """Return the bridge's end of a node's link."""
        return f"{self.tag}v{node_id}"

    def command(self, node_id: int) -> tuple[str, ...]:
        """Return the command prefix that starts a process in a node's network."""
        return ("ip", "netns", "exec", self.namespace(node_id))

    # -- what can be done to it ----------------------------------------------------

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Drop everything that the first of each pair sends to the second."""
        for speaker, hearer in pairs:
            self._point(speaker, hearer, NOWHERE)

    def heal(self) -> None:
        for speaker in self.nodes:
            self.plug(speaker)
            self._quicken(speaker)
            for hearer in self.nodes:
                if speaker != hearer:
                    self._point(speaker, hearer, _hardware(hearer))

    def unplug(self, node_id: int) -> None:
        """Unplug a node's link: no node and no client reaches it."""
        _must("ip", "link", "set", self.port(node_id), "down")

    def plug(self, node_id: int) -> None:
        _must("ip", "link", "set", self.port(node_id), "up")

    def slow(self, node_id: int) -> None:
        """Limit the bandwidth to a node."""
        _must("tc", "qdisc", "replace", "dev", self.port(node_id), "root", *SLOW)

    def _quicken(self, node_id: int) -> None:
        if self.is_slowable:
            _run("tc", "qdisc", "del", "dev", self.port(node_id), "root")

    def _point(self, speaker: int, hearer: int, hardware: str) -> None:
        _must(
            *("ip", "-n", self.namespace(speaker), "neigh", "replace", self.host(hearer)),
            *("lladdr", hardware, "nud", "permanent", "dev", "eth0"),
        )


def _hardware(node_id: int) -> str:
    return f"02:00:00:00:00:{node_id:02x}"


def missing() -> str | None:
    """Return why nodes cannot have their own networks here; None if they can."""
    if shutil.which("ip") is None:
        return "there is no ip command"
    name = f"nt{os.getpid()}"
    made = _run("ip", "netns", "add", name)
    _run("ip", "netns", "del", name)
    return None if made.returncode == 0 else "no network namespace may be made"


@contextmanager
def networks(nodes: int) -> Iterator[Net]:
    """Create the networks and remove them at the end. Raises OSError."""
    tag = f"n{os.getpid() % 10_000}"
    ids = tuple(range(1, nodes + 1))
    with ExitStack() as stack:
        number = _free_subnet()
        bridge = f"{tag}br"
        _must("ip", "link", "add", "name", bridge, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", bridge)
        net = Net(tag, f"10.213.{number}", ids, shutil.which("tc") is not None)
        _must("ip", "addr", "add", f"{net.subnet}.254/24", "dev", bridge)
        _must("ip", "link", "set", bridge, "up")
        for node_id in ids:
            _join(net, node_id, bridge, stack)
        net.heal()
        yield net


def _free_subnet() -> int:
    taken = _run("ip", "-o", "addr").stdout
    return next(number for number in range(1, 255) if f" 10.213.{number}." not in taken)


def _join(net: Net, node_id: int, bridge: str, stack: ExitStack) -> None:
    name, port = net.namespace(node_id), net.port(node_id)
    _must("ip", "netns", "add", name)
    stack.callback(_run, "ip", "netns", "del", name)
    _must("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    _must("ip", "link", "set", port, "master", bridge)
    _must("ip", "-n", name, "link", "set", "eth0", "address", _hardware(node_id))
    _must("ip", "-n", name, "addr", "add", f"{net.host(node_id)}/24", "dev", "eth0")
    _must("ip", "-n", name, "link", "set", "eth0", "up")
    _must("ip", "-n", name, "link", "set", "lo", "up")
    _must("ip", "link", "set", port, "up")


@contextmanager
def run_apart(
    net: Net,
    config: Mapping[str, object],
    directory: Path,
    environment: Callable[[int], Mapping[str, str]],
    access: ClusterAccess = PLAINTEXT,
) -> Iterator[Cluster]:
    """Run a cluster of processes, each in its own network. Raises NodeFailed."""
    voters = voters_of(len(net.nodes))
    texts = {key: str(value) for key, value in config.items()}
    plan = ClusterPlan(
        cluster_id=uuid_text(SystemRandom().uuid()),
        nodes={
            each: NodePlan(each, each <= voters, _ports(each <= voters), net.host(each))
            for each in net.nodes
        },
        config={**INSECURE, **texts, **access.config},
    )
    sites = {
        each: Site(
            each,
            directory / f"node-{each}",
            {},
            environment=environment(each),
            command=net.command(each),
        )
        for each in net.nodes
    }
    format_sites(plan, sites, access.scram)
    hosts: dict[int, Host] = {each: ProcessHost(site) for each, site in sites.items()}
    with ExitStack() as stack:
        yield begin_all(Cluster(plan, sites, hosts, net, access), hosts, stack)


def _ports(is_controller: bool) -> dict[str, int]:
    return {name: port for name, port in PORTS.items() if is_controller or name == CLIENTS}
