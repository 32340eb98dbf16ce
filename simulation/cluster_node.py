"""One simulated machine of a cluster: the whole node, composed as in production, on simulated
ports.

Every machine is a broker; the first ones are also controllers. Timeouts are short, so that within
seconds sessions expire, replicas leave and rejoin the ISR, and controllers change.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from ottla.config.loading import Loaded, load
from ottla.node.broker.replica_manager import AllDirectoriesFailed
from ottla.node.directories.format_plan import FormatOptions, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, ShutdownTimeout, StartFailed, start_node
from ottla.node.ports import NodePorts
from ottla.protocol.faults import StorageFailed
from simulation.simulation import Ports

CLUSTER: Final = "sim"
BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
META: Final = "/meta"
"""The log directory that has the metadata log, too: when it fails the node ends."""

DATA: Final = "/data"
"""A log directory without the metadata log: when it fails the node goes on."""

# Controlled shutdown may get no answer from a controller.
PATIENCE_S: Final = 2.0

TIMES: Final = """
broker.heartbeat.interval.ms=150
broker.session.timeout.ms=700
controller.quorum.election.timeout.ms=150
controller.quorum.election.backoff.max.ms=100
controller.quorum.fetch.timeout.ms=450
controller.quorum.request.timeout.ms=450
ottla.controller.heartbeat.interval.ms=50
metadata.max.idle.interval.ms=250
replica.lag.time.max.ms=600
replica.fetch.wait.max.ms=250
replica.fetch.backoff.ms=50
replica.socket.timeout.ms=700
replica.high.watermark.checkpoint.interval.ms=400
leader.imbalance.check.interval.seconds=1
"""
STATIC: Final = """
controller.listener.names=CONTROLLER
ottla.allow.insecure.controller.listener=true
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.cleaner.enable=false
log.scrub.enable=false
log.roll.ms=1500
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a simulated cluster.

    ``is_durable``: every append is synced before it is acknowledged, on leaders and followers.
    Without it, as by default, only replication preserves a record across a power loss. ``more`` are
    further settings, as lines.
    """

    nodes: int
    voters: int
    replicas: int
    min_insync: int
    is_durable: bool
    more: str = ""

    def settings(self, node_id: int) -> Loaded:
        """Return the settings of one node."""
        voters = ",".join(f"{i}@{name_of(i)}:{CONTROLLER_PORT}" for i in range(1, self.voters + 1))
        name, roles = name_of(node_id), "broker"
        listeners = [f"PLAINTEXT://{name}:{BROKER_PORT}"]
        if node_id <= self.voters:
            listeners.append(f"CONTROLLER://{name}:{CONTROLLER_PORT}")
            roles = "broker,controller"
        return load(
            f"{STATIC}{TIMES}{self.more}process.roles={roles}\nnode.id={node_id}\n"
            f"controller.quorum.voters={voters}\nlisteners={','.join(listeners)}\n"
            f"log.dirs={META},{DATA}\nmetadata.log.dir={META}\n"
            f"default.replication.factor={self.replicas}\nmin.insync.replicas={self.min_insync}\n"
            + ("log.flush.interval.messages=1\n" if self.is_durable else "")
        )


def name_of(node_id: int) -> str:
    """Return the host name of a node."""
    return f"n{node_id}"


@dataclass
class Machine:
    """One machine as seen from outside. ``node`` is None while it is not up."""

    node_id: int
    shape: Shape
    node: Node | None = None
    stopping: asyncio.Event | None = None
    starts: int = 0

    @property
    def name(self) -> str:
        """The name of its host."""
        return name_of(self.node_id)

    def stop(self) -> None:
        """Shut down in order; called in the context of its process."""
        if self.stopping is not None:
            self.stopping.set()

    async def run(self, ports: Ports) -> None:
        """Run the node until its disk fails, it is stopped, or it is switched off."""
        self.starts += 1
        self.node, self.stopping = None, asyncio.Event()
        loaded = self.shape.settings(self.node_id)
        try:
            if not ports.disk.exists(f"{META}/meta.properties"):
                plan = plan_format(loaded, FormatOptions(cluster_id=CLUSTER), ports.random)
                format_node(ports.disk, ports.random, ports.clock.now(), plan)
            self.node = await start_node(loaded, node_ports(ports))
            async with asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(self._end_in_order(self.node, self.stopping))
                await self.node.wait_stopped()
                ending.cancel()
        except* (OSError, StorageFailed, StartFailed, AllDirectoriesFailed):
            pass  # the process ends, as it must when its disk fails
        finally:
            self.node = None

    async def _end_in_order(self, node: Node, stopping: asyncio.Event) -> None:
        await stopping.wait()
        try:
            await node.controlled_shutdown(PATIENCE_S)
        except ShutdownTimeout:
            await node.shutdown()  # without the controller's answer, as an operator would


def node_ports(ports: Ports) -> NodePorts:
    """Return a host's ports in the form that a node takes."""
    return NodePorts(
        disk=ports.disk,
        clock=ports.clock,
        random=ports.random,
        network=ports.network,
        committer=ports.committer,
    )
