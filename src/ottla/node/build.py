"""The composition root: from settings and ports to the parts of one node.

Nothing here waits or talks; whatever can fail because of the disk fails here, before a service
runs. Which parts there are follows from the roles:

    controller   quorum replica (voter), controller, controller listener, registration of both
    broker       quorum replica (observer unless combined), lifecycle, client listeners
"""

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.api.auto_create import TopicCreation, creatable_topic
from ottla.api.binding import bind_routes
from ottla.api.controller_decisions import ControllerContext, TokenSettings
from ottla.api.envelope import Forwarder, with_envelope
from ottla.api.routes import ANONYMOUS, Caller, Routes
from ottla.api.start_gate import StartGate
from ottla.config.generated import BrokerConfig
from ottla.config.loading import Loaded
from ottla.controller.active_controller import (
    Controller,
    ControllerParts,
    ControllerSettings,
    PeriodicTask,
)
from ottla.controller.bootstrap import (
    bootstrap_records,
    feature_levels,
    records_for_empty_log,
)
from ottla.controller.broker_liveness import Liveness
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision_settings import DecisionSettings, settings_of
from ottla.controller.periodic_tasks import (
    FenceExpiredBrokers,
    Rebalance,
    RemoveExpiredTokens,
)
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.metadata_versions import LATEST_PRODUCTION
from ottla.metadata.publishing import Publisher
from ottla.metadata.snapshot_policy import SnapshotLimits
from ottla.node.broker_handlers import BrokerDependencies, broker_handlers
from ottla.node.broker_lifecycle import BrokerLifecycle, Timing
from ottla.node.connection_limits import (
    ConnectionLimits,
    limits_of,
    request_memory_max,
    server_settings,
)
from ottla.node.controller_channel import ControllerChannel, leader_address
from ottla.node.controller_handlers import ControllerDependencies, controller_handlers
from ottla.node.controller_registration import ControllerRegistering
from ottla.node.coordinators import CoordinatorDependencies, Coordinators
from ottla.node.directories import log_directories
from ottla.node.dynamic_config import DynamicConfig
from ottla.node.dynamic_listeners import DynamicListeners
from ottla.node.gated import hidden_at
from ottla.node.hosting import Hosting, build_hosting, scrub_counts
from ottla.node.image_loader import Followers, ImageLoader
from ottla.node.incarnation import load_incarnation
from ottla.node.listening import Bound, listener_specs, node_features, spec_maker
from ottla.node.metrics import Meters, NodeView, build_metrics
from ottla.node.ports import NodePorts
from ottla.node.quorum import NodeQuorum, build_auto_join, build_quorum, voter_address
from ottla.node.recovery import build_recovery
from ottla.node.registrations import broker_registration, controller_registration
from ottla.node.snapshotter import Snapshotter
from ottla.observability.http_service import HttpService
from ottla.protocol.api_keys import Listener
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.types import NodeId, Uuid
from ottla.raft.repair import NO_REPAIR, Repair
from ottla.raft.snapshots import CorruptSnapshot, read_bootstrap
from ottla.replication.partition import Partition
from ottla.runtime.ports import Address, Committer
from ottla.server.admission import Admission
from ottla.server.connection_close_hooks import ConnectionCloseHooks
from ottla.server.listener import ListenerSpec, Server, Shared
from ottla.server.request_memory import RequestMemory
from ottla.storage.log import Log
from ottla.storage.log_dir import LogDirectory

if TYPE_CHECKING:
    from ottla.node.coordination import Coordination
    from ottla.node.sharing import Sharing
    from ottla.raft.auto_join import AutoJoin

log = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-node-{}"


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a node stands on: its settings, its world, its directories, its bound sockets.

    ``directories`` begins with that of the metadata log.
    """

    loaded: Loaded
    ports: NodePorts
    directories: list[LogDirectory]
    bound: Bound
    committer: Committer
    dynamic: DynamicConfig
    meters: Meters = msgspec.field(default_factory=Meters)
    close_hooks: ConnectionCloseHooks = msgspec.field(default_factory=ConnectionCloseHooks)
    repair: Repair = NO_REPAIR
    offline_paths: tuple[str, ...] = ()
    """Directories that could not be opened."""

    @property
    def node_id(self) -> NodeId:
        """This node's id."""
        return NodeId(self.loaded.broker.node_id)

    @property
    def cluster_id(self) -> str:
        """The cluster it is formatted for."""
        return self.directories[0].meta.cluster_id

    @property
    def log_directories(self) -> list[LogDirectory]:
        """Those that hold clients' partitions; the metadata log's may not be among them."""
        paths = log_directories(self.loaded.broker)
        return [each for each in self.directories if each.path in paths]

    @property
    def metadata_directory(self) -> LogDirectory:
        """Where its metadata log is."""
        return self.directories[0]

    def has_role(self, role: str) -> bool:
        """Say whether it is a broker, or a controller."""
        return role in self.loaded.broker.process_roles


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that runs in a node; None for what its roles do not have."""

    quorum: NodeQuorum
    watch: ImageWatch
    snapshotter: Snapshotter
    channel: ControllerChannel
    controller: Controller | None
    recovery: UncleanRecovery | None
    controller_listener: Server | None
    controller_registration: ControllerRegistering | None
    auto_join: "AutoJoin | None"
    lifecycle: BrokerLifecycle | None
    hosting: Hosting | None
    coordinators: Coordinators | None
    client_listener: Server | None
    topic_creation: TopicCreation | None
    meters: Meters
    metrics: HttpService | None

    @property
    def coordination(self) -> "Coordination | None":
        """The coordinators of groups and transactions; they come to be by this."""
        return None if self.coordinators is None else self.coordinators.get().coordination

    @property
    def sharing(self) -> "Sharing | None":
        """What share groups have here; it comes to be by this."""
        return None if self.coordinators is None else self.coordinators.get().sharing


def build_node(context: NodeContext) -> NodeParts:
    """Put a node together.

    Raises:
        UnreadableQuorumState, CorruptSnapshot, UnusableMetadataLog: the
            disk holds what a node must not start with. StorageFailed, OSError: it failed.
    """
    loader, watch, meters = ImageLoader(), ImageWatch(), context.meters
    quorum = build_quorum(context, loader)
    snapshotter = _snapshotter(context, quorum, loader)
    channel = _channel(context, quorum, watch)
    liveness = Liveness(context.loaded.broker.broker_session_timeout_ms)
    is_controller, is_broker = context.has_role("controller"), context.has_role("broker")
    controller = _controller(context, quorum, loader, liveness) if is_controller else None
    recovery = None if controller is None else _recovery(context, quorum, watch, controller)
    on_role = [meters.on_role] if controller is None else [controller.on_role, meters.on_role]
    on_applied = [] if controller is None else [controller.on_applied]
    lifecycle = _lifecycle(context, channel, watch) if is_broker else None
    keeping = None if lifecycle is None else _keeping(context, watch, channel, lifecycle)
    hosting = None if keeping is None else keeping.hosting
    shared = _shared(context, meters)
    limiting = ConnectionLimits(context.loaded, shared.admission)
    kept = () if keeping is None else keeping.publishers()
    publishers: list[Publisher] = [watch, meters, limiting, context.dynamic, *kept]
    if recovery is not None:
        publishers.append(recovery)
    loader.follow_with(Followers(publishers, on_role, on_applied, snapshotter))
    view = _view(context, quorum, watch, (controller, recovery), lifecycle, hosting)
    return NodeParts(
        quorum=quorum,
        watch=watch,
        snapshotter=snapshotter,
        channel=channel,
        controller=controller,
        recovery=recovery,
        controller_listener=(
            None
            if controller is None or recovery is None
            else _server(
                context,
                _controller_specs(context, quorum, watch, controller, (liveness, recovery)),
                shared,
            )
        ),
        controller_registration=(_registering(context, channel, watch) if is_controller else None),
        auto_join=build_auto_join(context, quorum),
        lifecycle=lifecycle,
        hosting=hosting,
        coordinators=None if keeping is None else keeping.coordinators,
        client_listener=(
            None
            if keeping is None
            else _client_server(context, quorum, watch, (channel, keeping), shared)
        ),
        topic_creation=None if keeping is None else keeping.creation,
        meters=meters,
        metrics=_metrics(context, keeping, view),
    )


def _snapshotter(context: NodeContext, quorum: NodeQuorum, loader: ImageLoader) -> Snapshotter:
    config = context.loaded.broker
    limits = SnapshotLimits(
        config.metadata_log_max_record_bytes_between_snapshots,
        config.metadata_log_max_snapshot_interval_ms,
        config.ottla_metadata_snapshot_interval_records,
    )
    return Snapshotter(quorum.driver, lambda: loader.settled, limits, context.ports.clock)


def _view(
    context: NodeContext,
    quorum: NodeQuorum,
    watch: ImageWatch,
    deciding: tuple[Controller | None, UncleanRecovery | None],
    lifecycle: BrokerLifecycle | None,
    hosting: Hosting | None,
) -> NodeView:
    """Return where the gauges look."""
    controller, recovery = deciding
    return NodeView(
        node_id=context.node_id,
        image=lambda: watch.image,
        quorum=quorum.driver.describe,
        is_active_controller=None if controller is None else lambda: controller.is_active,
        hosted=None if hosting is None else lambda: _logs(hosting),
        is_unfenced=None if lifecycle is None else lambda: not lifecycle.is_fenced,
        has_failed_disk=lambda: context.metadata_directory.is_failed,
        isr_changes=lambda: (0, 0) if hosting is None else hosting.isr.changes,
        disk_sizes=lambda: {} if hosting is None else hosting.disk_scan.sizes,
        scrubbed=lambda: scrub_counts(hosting),
        unclean_elections=lambda: 0 if recovery is None else recovery.elected,
        recovery_cuts=lambda: (0, 0, 0) if hosting is None else hosting.host.recovery.counts,
    )


def _recovery(
    context: NodeContext, quorum: NodeQuorum, watch: ImageWatch, controller: Controller
) -> UncleanRecovery:
    return build_recovery(context, watch, controller, _config_context(context, quorum))


def _metrics(context: NodeContext, keeping: "Keeping | None", view: NodeView) -> HttpService | None:
    """Return what serves the node's pages, those about groups where it is a broker."""
    group_page = None if keeping is None else keeping.coordinators.group_page
    return build_metrics(context, context.meters, view, group_page)


def _shared(context: NodeContext, meters: Meters) -> Shared:
    """Return what the servers of the node share, bound as configured."""
    return Shared(
        admission=Admission(limits_of(context.loaded)),
        memory=RequestMemory(request_memory_max(context.loaded)),
        events=meters.requests,
        close_hooks=context.close_hooks,
        release_memory=context.ports.release_memory,
    )


def _logs(hosting: Hosting) -> list[tuple[Partition, Log]]:
    return [(partition, partition.log) for partition in hosting.partitions]


def _channel(context: NodeContext, quorum: NodeQuorum, watch: ImageWatch) -> ControllerChannel:
    listener = quorum.listener

    def leader() -> Address | None:
        return leader_address(
            quorum.driver.describe(),
            watch.image,
            listener,
            lambda node_id: voter_address(context.loaded, node_id),
        )

    return ControllerChannel(context.ports.network, leader, CLIENT_ID.format(context.node_id))


# -- controller --------------------------------------------------------------------


def _controller(
    context: NodeContext, quorum: NodeQuorum, loader: ImageLoader, liveness: Liveness
) -> Controller:
    config = context.loaded.broker
    settings = settings_of(_config_context(context, quorum))
    return Controller(
        ControllerParts(
            quorum=quorum,
            committed=loader,
            clock=context.ports.clock,
            bootstrap=_first_records(context, quorum),
            periodic_tasks=_duties(config, settings, liveness),
            settings=ControllerSettings(idle_ms=config.metadata_max_idle_interval_ms),
        )
    )


def _duties(
    config: BrokerConfig, settings: DecisionSettings, liveness: Liveness
) -> tuple[PeriodicTask, ...]:
    """Return what the controller does by itself; silent brokers come first."""
    periodic_tasks: tuple[PeriodicTask, ...] = (
        FenceExpiredBrokers(liveness, settings),
        RemoveExpiredTokens(config.delegation_token_expiry_check_interval_ms),
    )
    if not config.auto_leader_rebalance_enable:
        return periodic_tasks
    return (
        *periodic_tasks,
        Rebalance(
            config.leader_imbalance_check_interval_seconds * 1000,
            config.ottla_leader_imbalance_per_broker_percentage,
            settings,
        ),
    )


def _config_context(context: NodeContext, quorum: NodeQuorum) -> ConfigContext:
    return ConfigContext(context.node_id, context.loaded.static, frozenset(quorum.voter_ids()))


def _first_records(context: NodeContext, quorum: NodeQuorum) -> list[Versioned]:
    """Return what a log without records begins with: what formatting left, else the defaults.

    Raises:
        CorruptSnapshot: what formatting left is damaged, and this log has nothing else.
    """
    random, written = context.ports.random, None
    try:
        written = read_bootstrap(context.ports.disk, context.metadata_directory.path)
    except CorruptSnapshot as error:
        if quorum.log.end().offset == 0:
            raise CorruptSnapshot(
                f"{error}. A new cluster begins with it, so the node does not start: copy it from "
                "another controller, or remove the directory and format it anew."
            ) from error
        log.warning("damaged and not needed any more, remove it: %s", error)
    if written is None:
        written = bootstrap_records(feature_levels(LATEST_PRODUCTION, {}), random=random)
    return records_for_empty_log(written, context.loaded.broker.min_insync_replicas, False)


def _controller_specs(
    context: NodeContext,
    quorum: NodeQuorum,
    watch: ImageWatch,
    controller: Controller,
    known: tuple[Liveness, UncleanRecovery],
) -> list[ListenerSpec]:
    config = context.loaded.broker
    liveness, recovery = known
    decisions = ControllerContext(
        cluster_id=context.cluster_id,
        settings=settings_of(_config_context(context, quorum)),
        voter_ids=quorum.voter_ids,
        liveness=liveness,
        random=context.ports.random,
        tokens=TokenSettings(
            config.delegation_token_secret_key,
            config.delegation_token_max_lifetime_ms,
            config.delegation_token_expiry_time_ms,
        ),
    )
    handlers = controller_handlers(
        ControllerDependencies(
            context=context,
            watch=watch,
            quorum=quorum,
            controller=controller,
            decisions=decisions,
            recovery=recovery,
        )
    )
    routes = with_envelope(Routes(Listener.CONTROLLER, bind_routes(Listener.CONTROLLER, handlers)))
    spec_of = spec_maker(context.bound, routes, node_features(watch, quorum))
    return listener_specs(context.loaded, spec_of, is_controller=True)


def _registering(
    context: NodeContext, channel: ControllerChannel, watch: ImageWatch
) -> ControllerRegistering:
    request = controller_registration(context.loaded, context.bound, context.ports.random.uuid())
    return ControllerRegistering(channel, watch, request)


# -- broker ------------------------------------------------------------------------


def _lifecycle(
    context: NodeContext, channel: ControllerChannel, watch: ImageWatch
) -> BrokerLifecycle:
    config, ports = context.loaded.broker, context.ports
    incarnation = load_incarnation(ports.disk, context.metadata_directory.path, ports.random)
    registration = broker_registration(
        context.loaded, context.bound, context.cluster_id, incarnation, context.log_directories
    )
    timing = Timing(config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms // 2)

    def offline() -> list[Uuid]:
        return [each.directory_id for each in context.log_directories if each.is_failed]

    return BrokerLifecycle(
        channel, registration, lambda: watch.image.provenance.offset, offline, timing
    )


def _client_server(
    context: NodeContext,
    quorum: NodeQuorum,
    watch: ImageWatch,
    served: tuple[ControllerChannel, "Keeping"],
    shared: Shared,
) -> Server:
    """Return the server of clients; it and all that is kept follow the dynamic settings."""
    channel, keeping = served
    listeners = DynamicListeners(context.loaded, context.ports)
    routes = _client_routes(context, watch, channel, keeping, listeners)
    spec_of = spec_maker(context.bound, routes, node_features(watch, quorum))
    specs = listener_specs(context.loaded, spec_of, is_controller=False)
    server = _server(context, specs, shared)
    listeners.attach(server, spec_of)
    context.dynamic.follow(listeners.apply)
    context.dynamic.follow(keeping.hosting.configure)
    return server


def _client_routes(
    context: NodeContext,
    watch: ImageWatch,
    channel: ControllerChannel,
    keeping: "Keeping",
    listeners: DynamicListeners,
) -> Routes:
    handlers = broker_handlers(
        BrokerDependencies(
            context=context,
            watch=watch,
            channel=channel,
            hosting=keeping.hosting,
            coordinators=keeping.coordinators,
            topic_creation=keeping.creation,
            listeners=listeners,
        )
    )
    gate = StartGate(lambda: watch.image, int(context.node_id))
    routes = bind_routes(Listener.BROKER, handlers, gate)
    return Routes(Listener.BROKER, routes, hidden_at(lambda: watch.image))


class Keeping(msgspec.Struct, frozen=True):
    """The parts of a broker that its clients' requests reach."""

    hosting: Hosting
    coordinators: Coordinators
    creation: TopicCreation

    def publishers(self) -> tuple[Publisher, ...]:
        """Return those that follow the image."""
        host = self.hosting.host
        return (host.throttles, self.hosting.replicas, self.coordinators)


def _keeping(
    context: NodeContext, watch: ImageWatch, channel: ControllerChannel, lifecycle: BrokerLifecycle
) -> Keeping:
    hosting = build_hosting(context, lifecycle, channel)
    creation = _topic_creation(context, channel)
    itself = _itself(context)
    ways = CoordinatorDependencies(
        watch, channel, hosting, create=lambda topic: creation.want(itself, [topic])
    )
    return Keeping(hosting, Coordinators(context, ways), creation)


def _itself(context: NodeContext) -> Caller:
    """Return who makes the topics that coordinators need, whoever asked first."""
    return Caller(ANONYMOUS, CLIENT_ID.format(context.node_id), Address("localhost", 0), "")


def _topic_creation(context: NodeContext, channel: ControllerChannel) -> TopicCreation:
    config = context.loaded.broker
    forwarder = Forwarder(channel, config.request_timeout_ms, context.ports.random)
    return TopicCreation(
        forwarder, lambda name: creatable_topic(name, config), config.request_timeout_ms
    )


def _server(context: NodeContext, specs: list[ListenerSpec], shared: Shared) -> Server:
    ports = context.ports
    return Server(ports.network, ports.clock, specs, shared, server_settings(context.loaded))
