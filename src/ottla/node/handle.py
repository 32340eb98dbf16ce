"""The handle of a running node.

    node = await Node.start({"node.id": "1", ...})      # or start_node(loaded)
    ...
    await node.controlled_shutdown(30)      # hand leaderships over, then stop; or just
    await node.shutdown()

Nodes in one process share nothing.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping

import msgspec

from ottla.api.security.access import OPEN, Access
from ottla.config.addresses import SecurityProtocol
from ottla.config.listeners import Listener
from ottla.config.loading import Loaded, load
from ottla.metadata.image import Image
from ottla.node.broker.coordinators import CoordinatorServices
from ottla.node.broker.dynamic_config import DynamicConfig
from ottla.node.build import NodeParts, build_node
from ottla.node.context import NodeContext
from ottla.node.directories.node_directories import all_directories
from ottla.node.listeners import UnmatchedSocket, bind_listeners, sockets_by_listener
from ottla.node.ports import NodePorts, system_ports
from ottla.node.security.connection_limits import check_limits, tcp_settings
from ottla.node.security.listener_rules import check_listeners
from ottla.node.security.security_port import Security, build_security
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
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts, open_directories
from ottla.storage.directory.meta_properties import NotFormatted
from ottla.tiering.client_address import client_address

log = logging.getLogger(__name__)

# Seconds until a broker gives up waiting for a leader to register with.
START_S_MAX = 120.0
# How often the progress of a learner is looked at, seconds.


class ShutdownTimeout(Exception):
    """The controller did not grant the shutdown in time; the node still runs."""


class StartFailed(Exception):
    """A node could not be started; the text says why."""


class UserListener(msgspec.Struct, frozen=True):
    """Where a client on this machine connects to the node on behalf of a user."""

    address: Address
    uses_sasl: bool
    tls: Callable[[], ssl.SSLContext] | None


class Node:
    """A running node, constructed by `Node.start`."""

    @staticmethod
    async def start(
        config: Loaded | Mapping[str, str],
        *,
        controller_listener: socket.socket | None = None,
        client_listener: socket.socket | None = None,
    ) -> "Node":
        """Start a node from its settings, by Kafka's keys; return once it serves.

        A socket that the caller has bound serves the listener with its address, so that no other
        process can take the port in between; all other listeners are bound here. The node closes
        the socket.

        Raises:
            ConfigError, and as `start_node`. StartFailed: no listener has the address of a socket.
        """
        loaded = config if isinstance(config, Loaded) else load(_properties(config))
        try:
            given = sockets_by_listener(loaded, controller_listener, client_listener)
        except UnmatchedSocket as error:
            raise StartFailed(str(error)) from None
        ports = system_ports(tcp_settings(loaded), given)
        return await start_node(loaded, ports)

    def __init__(self, context: NodeContext, parts: NodeParts, running: Running) -> None:
        self._context = context
        self._parts = parts
        self._running = running
        self._closing: asyncio.Lock = asyncio.Lock()
        self._is_closed = False

    # -- inspection ------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node's id."""
        return self._context.node_id

    @property
    def listen_addr(self) -> Address | None:
        """The address for clients: the inter-broker listener, else the first; None if no broker."""
        clients = [each for each in self._context.loaded.listeners.all if not each.is_controller]
        wanted = self._context.loaded.listeners.inter_broker
        chosen = next((each for each in clients if each.name == wanted), next(iter(clients), None))
        return None if chosen is None else self._context.bound.address(chosen)

    @property
    def controller_addr(self) -> Address | None:
        """The address for other controllers; None if it is no controller."""
        return self._first_address(lambda listener: listener.is_controller)

    def _first_address(self, wanted: Callable[[Listener], bool]) -> Address | None:
        found = next(filter(wanted, self._context.loaded.listeners.all), None)
        return None if found is None else self._context.bound.address(found)

    @property
    def metrics_addr(self) -> Address | None:
        """The address of /metrics; None if ``ottla.metrics.listener`` is not set."""
        return None if self._parts.metrics is None else self._parts.metrics.address

    @property
    def schema_registry_url(self) -> str | None:
        """The address of the schema registry; None without ``schema.registry.listeners``."""
        broker = self._parts.broker
        registry = None if broker is None else broker.registry
        return None if registry is None else registry.url

    @property
    def listener_of_users(self) -> "UserListener | None":
        """The listener of clients that users log in to: one with SASL, or else a PLAINTEXT one.

        None if there is neither: over any other listener a client here would show the certificate
        of this node. TLS is verified as between brokers.
        """
        clients = [each for each in self._context.loaded.listeners.all if not each.is_controller]
        with_login = [each for each in clients if each.protocol.uses_sasl]
        plain = [each for each in clients if each.protocol is SecurityProtocol.PLAINTEXT]
        listener = next(iter(with_login or plain), None)
        if listener is None:
            return None
        port, advertised = self._context.bound.port(listener), listener.advertised
        address = client_address(
            None,
            None if advertised is None else Address(advertised.host, advertised.port or port),
            Address(listener.bind.host, port),
            is_secured=listener.protocol is not SecurityProtocol.PLAINTEXT,
        )
        tls = None
        if listener.protocol.uses_tls:
            between = self._context.loaded.listeners.inter_broker
            tls = None if between is None else self._context.security.peer_options(between).tls
            if tls is None:
                return None
        return UserListener(address, listener.protocol.uses_sasl, tls)

    @property
    def image(self) -> Image:
        """The newest image that every part of the node has applied."""
        return self._parts.watch.image

    def has_partition(self, topic: str, partition: int) -> bool:
        """Say whether this node is a replica of a partition."""
        found = self.image.topics.named(topic)
        at = None if found is None else found.partitions.get(partition)
        return at is not None and self.node_id in at.replicas

    def local_log_end_offset(self, topic: str, partition: int) -> Offset | None:
        """Return the log end offset of a partition on this node; None if it is not hosted here."""
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
        """Whether this node is the active controller."""
        return self._parts.controller is not None and self._parts.controller.is_active()

    def request_snapshot(self) -> None:
        """Request a snapshot of the metadata; it is written later."""
        self._parts.snapshotter.request()

    @property
    def snapshot_written(self) -> LogPosition | None:
        """The last snapshot that this node wrote since its start."""
        return self._parts.snapshotter.written

    async def wait_image(self, condition: Callable[[Image], bool]) -> Image:
        """Return the first image that fulfils a condition."""
        return await self._parts.watch.wait_image(condition)

    def reload_tls(self) -> None:
        """Read keys and certificates again now; handshakes that begin later use them.

        Raises:
            BadTls: a file cannot be used; what was read from it before stays in force.
            ConfigError: no listener uses TLS.
        """
        self._context.security.reload_tls()

    # -- stopping --------------------------------------------------------------

    @property
    def should_shut_down(self) -> bool:
        """Whether the controller has granted this broker its shutdown, or its disks have failed."""
        broker = self._parts.broker
        return broker is not None and broker.lifecycle.should_shut_down.is_set()

    async def wait_should_shut_down(self) -> None:
        """Return once the node should be stopped: its shutdown was granted, or its disks failed.

        The caller then calls `shutdown`. Returns at once if that is already so, and never on a node
        that is no broker.
        """
        if self._parts.broker is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._parts.broker.lifecycle.should_shut_down.wait()

    async def controlled_shutdown(self, timeout_s: float) -> None:
        """Move all leaderships to other brokers, then stop. May be called again after a timeout.

        Raises:
            ShutdownTimeout: it was not granted in time. The node still runs, and still requests it.
        """
        broker = self._parts.broker
        if broker is not None:
            lifecycle = broker.lifecycle
            lifecycle.want_shutdown()
            try:
                async with asyncio.timeout(timeout_s):
                    await lifecycle.should_shut_down.wait()
            except TimeoutError:
                raise ShutdownTimeout(f"shutdown not granted after {timeout_s} s") from None
        await self.shutdown()

    async def shutdown(self) -> None:
        """Stop all services in order; raise what failed on the way. May be called twice."""
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
        """Return when the node has stopped; raise the error that stopped it."""
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
    """Start a node; return once it serves. ``repair`` is applied to a damaged metadata log first.

    Raises:
        ConfigError, DirectoryInUse, MetaPropertiesRefused: nothing was opened.
        StartFailed: it was not ready in time. OSError, Fault: a disk or socket it needs failed.
    """
    check_limits(loaded)
    for warning in check_listeners(loaded):
        log.warning("%s", warning)
    ports = ports or system_ports(tcp_settings(loaded))
    # One clock for the whole node: everything that expires uses the same trusted time.
    ports = msgspec.structs.replace(ports, clock=TrustedClock.of(ports.clock))
    security = build_security(loaded, ports.clock, ports.random)
    context = await _prepare(loaded, ports, security, repair)
    parts: NodeParts | None = None
    try:
        parts = build_node(context)
        try:
            async with asyncio.timeout(start_s_max) as limit:
                running = await start(services_of(parts))
        except TimeoutError:
            if not limit.expired():
                raise  # the timeout of a connection, not of the start
            leader = parts.quorum.driver.describe().leader_id
            reason = "no leader elected" if leader is None else f"node {leader} leads"
            raise StartFailed(f"not up within {start_s_max} s: {reason}") from None
    except BaseException:
        await _close(context, parts, -1)
        raise
    log.info("node started node_id=%d cluster_id=%s", context.node_id, context.cluster_id)
    return Node(context, parts, running)


async def _prepare(
    loaded: Loaded, ports: NodePorts, security: Security, repair: Repair
) -> NodeContext:
    """Lock the directories and bind the listeners; on failure neither is held."""
    log_dir_ports = LogDirPorts(ports.disk, ports.clock, ports.random)
    paths = all_directories(loaded.broker)
    if not ports.disk.exists(paths[0]):
        raise NotFormatted(f"{paths[0]}: is not formatted: there is no such directory")
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
    acls = None
    if loaded.broker.authorizer_class_name:
        from ottla.node.security.authorization import build_acl_publisher

        acls = build_acl_publisher(loaded)
    return NodeContext(
        loaded=loaded,
        access=OPEN if acls is None else Access(acls.authorizer),
        acls=acls,
        ports=ports,
        directories=opened.online,
        bound=bound,
        committer=ports.committer(paths[0]),
        dynamic=DynamicConfig(loaded),
        security=security,
        repair=repair,
        offline_paths=tuple(opened.offline),
    )


async def _close(context: NodeContext, parts: NodeParts | None, broker_epoch: int) -> None:
    if parts is not None:
        await parts.channel.close()
        _close_quorum(context, parts)
        if parts.broker is not None:
            await parts.broker.replica_manager.host.directories.close()
    context.bound.close()
    await context.committer.close()
    _close_directories(context.directories, broker_epoch)


def _close_quorum(context: NodeContext, parts: NodeParts) -> None:
    """Close the metadata log; on failure its directory gets no clean-shutdown marker."""
    try:
        parts.quorum.log.close()
    except StorageFailed as error:
        log.warning("metadata log not closed cleanly: %s", error)
        context.metadata_directory.fail(error.reason)


def _close_directories(directories: list[LogDirectory], broker_epoch: int) -> None:
    """Close every directory; a failed one gets no clean-shutdown marker and does not stop the
    others.
    """
    for directory in directories:
        try:
            directory.close(broker_epoch)
        except StorageFailed as error:
            log.warning("log directory not closed cleanly: %s", error)
