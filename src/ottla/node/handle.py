"""A running node, as whoever started it sees it.

    node = await Node.start({"node.id": "1", ...})      # or start_node(loaded)
    ...
    await node.controlled_shutdown(30)      # hand leaderships over, then stop; or just
    await node.shutdown()

Two nodes in one process do not know of each other.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping

import msgspec

from ottla.config.listeners import Listener
from ottla.config.loading import Loaded, load
from ottla.metadata.image import Image
from ottla.node.build import NodeParts, build_node
from ottla.node.connection_limits import check_limits, tcp_settings
from ottla.node.context import NodeContext
from ottla.node.coordinators import CoordinatorServices
from ottla.node.directories import all_directories
from ottla.node.dynamic_config import DynamicConfig
from ottla.node.listeners import SocketUnwanted, bind_listeners, handed_over
from ottla.node.ports import NodePorts, system_ports
from ottla.node.security import check_listeners
from ottla.node.services import services_of
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import NodeId, Offset
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.view import QuorumView
from ottla.raft.repair import NO_REPAIR, Repair
from ottla.replication.hosted_partitions import Partitions
from ottla.runtime.ports import Address
from ottla.runtime.supervisor import Running, start
from ottla.runtime.trusted_time import TrustedClock
from ottla.storage.log_dir import LogDirectory, LogDirPorts, open_directories

log = logging.getLogger(__name__)

# A broker that has no leader to register with by then gives up.
START_S_MAX = 120.0
# How often the progress of a learner is looked at, seconds.


class ShutdownTimeout(Exception):
    """No leave to stop was given in time; the node still runs."""


class StartFailed(Exception):
    """A node could not be started, or cannot do what was not set up; the text says why."""


class Node:
    """A node that runs. Made by `Node.start`."""

    @staticmethod
    async def start(
        config: Loaded | Mapping[str, str],
        *,
        controller_listener: socket.socket | None = None,
        client_listener: socket.socket | None = None,
    ) -> "Node":
        """Bring a node up from its settings, by Kafka's keys; return once it is.

        A socket that somebody else has bound serves the listener whose address it has, so that
        no other process can take the port in between; all other listeners are bound here. The
        node closes it.

        Raises:
            ConfigError, and as `start_node`. StartFailed: a socket that no listener is for.
        """
        loaded = config if isinstance(config, Loaded) else load(_properties(config))
        try:
            given = handed_over(loaded, controller_listener, client_listener)
        except SocketUnwanted as error:
            raise StartFailed(str(error)) from None
        ports = system_ports(tcp_settings(loaded), given)
        return await start_node(loaded, ports)

    def __init__(self, context: NodeContext, parts: NodeParts, running: Running) -> None:
        self._context = context
        self._parts = parts
        self._running = running
        self._closing: asyncio.Lock = asyncio.Lock()
        self._is_closed = False

    # -- what can be seen ------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node's id."""
        return self._context.node_id

    @property
    def listen_addr(self) -> Address | None:
        """Where clients reach it: the inter-broker listener, else the first; None if no broker."""
        clients = [each for each in self._context.loaded.listeners.all if not each.is_controller]
        wanted = self._context.loaded.listeners.inter_broker
        chosen = next((each for each in clients if each.name == wanted), next(iter(clients), None))
        return None if chosen is None else self._context.bound.address(chosen)

    @property
    def controller_addr(self) -> Address | None:
        """Where other controllers reach it; None if it is no controller."""
        return self._first_address(lambda listener: listener.is_controller)

    def _first_address(self, wanted: Callable[[Listener], bool]) -> Address | None:
        found = next(filter(wanted, self._context.loaded.listeners.all), None)
        return None if found is None else self._context.bound.address(found)

    @property
    def metrics_addr(self) -> Address | None:
        """Where /metrics is; None if ``ottla.metrics.listener`` is not set."""
        return None if self._parts.metrics is None else self._parts.metrics.address

    @property
    def image(self) -> Image:
        """The newest image that all of the node has seen."""
        return self._parts.watch.image

    def has_partition(self, topic: str, partition: int) -> bool:
        """Say whether this node is a replica of a partition."""
        found = self.image.topics.named(topic)
        at = None if found is None else found.partitions.get(partition)
        return at is not None and self.node_id in at.replicas

    def local_log_end_offset(self, topic: str, partition: int) -> Offset | None:
        """Return the end of this node's log of a partition; None if it is not hosted here."""
        partitions = self.partitions
        found = None if partitions is None else partitions.get(topic, partition)
        return None if found is None else found.log.log_end_offset

    @property
    def partitions(self) -> Partitions | None:
        """The partitions hosted here, for inspection; None if it is no broker."""
        broker = self._parts.broker
        return None if broker is None else broker.replica_manager.partitions

    @property
    def coordinators(self) -> CoordinatorServices | None:
        """The coordinators of this node, for inspection; None if it is no broker."""
        broker = self._parts.broker
        return None if broker is None else broker.coordinators.get()

    def describe_quorum(self) -> QuorumView:
        """Return the quorum as this node sees it."""
        return self._parts.quorum.driver.describe()

    @property
    def is_active_controller(self) -> bool:
        """Whether this node decides at the moment."""
        return self._parts.controller is not None and self._parts.controller.is_active()

    def request_snapshot(self) -> None:
        """Ask for a snapshot of the metadata; it is written later."""
        self._parts.snapshotter.request()

    @property
    def snapshot_written(self) -> LogPosition | None:
        """The snapshot that this run of the node wrote last."""
        return self._parts.snapshotter.written

    async def wait_image(self, condition: Callable[[Image], bool]) -> Image:
        """Return the first image that fulfils a condition."""
        return await self._parts.watch.wait_image(condition)

    # -- stopping --------------------------------------------------------------

    @property
    def should_shut_down(self) -> bool:
        """Whether the controller has given this broker leave to stop."""
        broker = self._parts.broker
        return broker is not None and broker.lifecycle.should_shut_down.is_set()

    async def wait_should_shut_down(self) -> None:
        """Return once the node wants to stop by itself: it was granted leave, or lost its disks.

        Whoever started the node then calls `shutdown`. Returns at once if it is so already, and
        never on a node that is no broker.
        """
        if self._parts.broker is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._parts.broker.lifecycle.should_shut_down.wait()

    async def controlled_shutdown(self, timeout_s: float) -> None:
        """Have all leaderships moved away, then stop. Asking twice is fine.

        Raises:
            ShutdownTimeout: no leave was given in time. The node runs on, and still wants to go.
        """
        broker = self._parts.broker
        if broker is not None:
            lifecycle = broker.lifecycle
            lifecycle.want_shutdown()
            try:
                async with asyncio.timeout(timeout_s):
                    await lifecycle.should_shut_down.wait()
            except TimeoutError:
                raise ShutdownTimeout(f"no leave to stop after {timeout_s} s") from None
        await self.shutdown()

    async def shutdown(self) -> None:
        """Stop everything in order; raise what failed on the way. Stopping twice is fine."""
        async with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                await self._running.stop()
            finally:
                broker = self._parts.broker
                epoch = -1 if broker is None else broker.lifecycle.epoch
                await _close(self._context, self._parts, epoch)

    async def wait_stopped(self) -> None:
        """Return when the node has stopped; raise what it failed of."""
        await self._running.wait_stopped()


def _properties(config: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in config.items())


async def start_node(
    loaded: Loaded,
    ports: NodePorts | None = None,
    *,
    start_s_max: float = START_S_MAX,
    repair: Repair = NO_REPAIR,
) -> Node:
    """Bring a node up; return once it is. ``repair`` is done to a damaged metadata log before.

    Raises:
        ConfigError, DirectoryInUse, MetaPropertiesRefused: nothing was opened.
        StartFailed: it did not come up in time. OSError, Fault: something it needs failed.
    """
    check_limits(loaded)
    for warning in check_listeners(loaded):
        log.warning("%s", warning)
    ports = ports or system_ports(tcp_settings(loaded))
    # Made here once: all that expires on this node goes by the same trusted time.
    ports = msgspec.structs.replace(ports, clock=TrustedClock.of(ports.clock))
    context = await _prepare(loaded, ports, repair)
    parts: NodeParts | None = None
    try:
        parts = build_node(context)
        try:
            async with asyncio.timeout(start_s_max) as limit:
                running = await start(services_of(parts))
        except TimeoutError:
            if not limit.expired():
                raise  # a connection's, not ours
            leader = parts.quorum.driver.describe().leader_id
            reason = "no leader elected" if leader is None else f"node {leader} leads"
            raise StartFailed(f"not up within {start_s_max} s: {reason}") from None
    except BaseException:
        await _close(context, parts, -1)
        raise
    log.info("node started node_id=%d cluster_id=%s", context.node_id, context.cluster_id)
    return Node(context, parts, running)


async def _prepare(loaded: Loaded, ports: NodePorts, repair: Repair) -> NodeContext:
    """Lock the directories and bind the listeners; on failure neither is held."""
    log_dir_ports = LogDirPorts(ports.disk, ports.clock, ports.random)
    paths = all_directories(loaded.broker)
    if not ports.disk.exists(paths[0]):
        raise StartFailed(f"{paths[0]}: there is no such directory; format it before starting")
    opened = open_directories(log_dir_ports, paths, node_id=NodeId(loaded.broker.node_id))
    try:
        for path, reason in opened.offline.items():
            if path == paths[0]:
                raise StartFailed(
                    f"{path}: the metadata log's directory cannot be used: {reason}. "
                    "Check the disk and the permissions, then start again."
                )
            log.error("log directory offline path=%s reason=%s", path, reason)
        bound = await bind_listeners(loaded, ports)
    except BaseException:
        _close_directories(opened.online, -1)
        raise
    return NodeContext(
        loaded=loaded,
        ports=ports,
        directories=opened.online,
        bound=bound,
        committer=ports.committer(paths[0]),
        dynamic=DynamicConfig(loaded),
        repair=repair,
        offline_paths=tuple(opened.offline),
    )


async def _close(context: NodeContext, parts: NodeParts | None, broker_epoch: int) -> None:
    if parts is not None:
        await parts.channel.close()
        _close_quorum(context, parts)
        if parts.broker is not None:
            await parts.broker.replica_manager.host.close()
    context.bound.close()
    await context.committer.close()
    _close_directories(context.directories, broker_epoch)


def _close_quorum(context: NodeContext, parts: NodeParts) -> None:
    """Close the metadata log; if it failed so has its directory, which then is not called clean."""
    try:
        parts.quorum.log.close()
    except StorageFailed as error:
        log.warning("metadata log not closed cleanly: %s", error)
        context.metadata_directory.fail(error.reason)


def _close_directories(directories: list[LogDirectory], broker_epoch: int) -> None:
    """Close every one; one that has failed leaves no clean-shutdown marker and stops no other."""
    for directory in directories:
        try:
            directory.close(broker_epoch)
        except StorageFailed as error:
            log.warning("log directory not closed cleanly: %s", error)
