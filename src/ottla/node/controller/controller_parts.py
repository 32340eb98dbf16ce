"""Constructs what a node has as a controller: the active controller's rules and its listener."""

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from ottla.api.cluster.controller_decisions import ControllerContext
from ottla.api.cluster.envelope import with_envelope
from ottla.api.surface.binding import Handlers, bind_routes
from ottla.api.surface.constructors import served_by
from ottla.api.surface.routes import Routes
from ottla.controller.active_controller import (
    Controller,
    ControllerParts,
    ControllerSettings,
    PeriodicTask,
)
from ottla.controller.bootstrap import bootstrap_records, feature_levels, records_for_empty_log
from ottla.controller.broker_liveness import Liveness
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision_settings import DecisionSettings, settings_of
from ottla.controller.mutation_quotas import MutationQuotas
from ottla.controller.periodic_tasks import FenceExpiredBrokers, Rebalance, RemoveExpiredTokens
from ottla.controller.probe_loop import BrokerProbes, ProbeCounts
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.metadata_versions import DEFAULT_VERSION
from ottla.node.broker.registrations import controller_registration
from ottla.node.context import NodeContext
from ottla.node.controller.broker_probing import build_probes
from ottla.node.controller.controller_channel import ControllerChannel
from ottla.node.controller.controller_handlers import ControllerConstructors, ControllerDependencies
from ottla.node.controller.controller_registration import ControllerRegistrar
from ottla.node.controller.image_loader import ImageLoader
from ottla.node.controller.metered_quorum import MeteredQuorum
from ottla.node.controller.quorum import NodeQuorum, build_auto_join
from ottla.node.controller.recovery import build_recovery
from ottla.node.listeners import SpecInputs, build_server, listener_specs, node_features
from ottla.node.security.token_services import token_settings
from ottla.protocol.api_keys import Listener
from ottla.protocol.internal.framing import Versioned
from ottla.raft.snapshots import CorruptSnapshot, read_bootstrap
from ottla.server.api_versions import NodeIdentity
from ottla.server.listener import Server, SharedResources

if TYPE_CHECKING:
    from ottla.raft.auto_join import AutoJoin

log = logging.getLogger(__name__)


class NodeControllerParts(msgspec.Struct, frozen=True):
    """What a node has as a controller."""

    controller: Controller
    recovery: UncleanRecovery
    listener: Server
    registration: ControllerRegistrar
    auto_join: "AutoJoin | None"
    probes: BrokerProbes | None

    def is_active(self) -> bool:
        """Say whether this node is the active controller."""
        return self.controller.is_active

    def unclean_elections(self) -> int:
        """Return how many leaders were elected although their logs lacked records."""
        return self.recovery.elected

    def probe_counts(self) -> ProbeCounts:
        """Return how many brokers were probed, by outcome, and fenced."""
        return ProbeCounts() if self.probes is None else self.probes.counts


class ControllerInputs(msgspec.Struct, frozen=True):
    """The parts of a node that its controller is constructed from."""

    context: NodeContext
    quorum: NodeQuorum
    loader: ImageLoader
    watch: ImageWatch
    channel: ControllerChannel
    shared: SharedResources


def build_controller_parts(inputs: ControllerInputs) -> NodeControllerParts:
    """Construct the controller of a node and its listener.

    Raises:
        CorruptSnapshot: the records that formatting wrote are damaged, and the log has no others.
    """
    context, quorum, watch = inputs.context, inputs.quorum, inputs.watch
    config = context.loaded.broker
    configs = ConfigContext(context.node_id, context.loaded.static, frozenset(quorum.voter_ids()))
    settings = settings_of(configs)
    liveness, suspected = Liveness(config.broker_session_timeout_ms), asyncio.Event()
    controller = Controller(
        ControllerParts(
            quorum=MeteredQuorum(quorum, context.meters.quorum, context.ports.clock),
            committed=inputs.loader,
            clock=context.ports.clock,
            bootstrap=_first_records(context, quorum),
            periodic_tasks=_periodic_tasks(context, settings, liveness, suspected),
            settings=ControllerSettings(idle_ms=config.metadata_max_idle_interval_ms),
        )
    )
    recovery = build_recovery(context, watch, controller, configs)
    constructors = ControllerConstructors(
        ControllerDependencies(
            context=context,
            watch=watch,
            quorum=quorum,
            controller=controller,
            decisions=_decisions(context, quorum, settings, liveness),
            recovery=recovery,
        )
    )
    access = context.access
    handlers = Handlers(served_by(constructors))
    bound = bind_routes(Listener.CONTROLLER, handlers, access=access)
    routes = with_envelope(Routes(Listener.CONTROLLER, bound), access, inputs.shared.throttling)
    spec_of = SpecInputs(
        context.bound,
        routes,
        node_features(watch, quorum),
        context.security,
        watch.current,
        context.meters.requests,
        NodeIdentity(context.cluster_id, context.node_id),
    ).spec
    specs = listener_specs(context.loaded, spec_of, is_controller=True)
    registration = controller_registration(
        context.loaded, context.bound, context.ports.random.uuid()
    )
    return NodeControllerParts(
        controller,
        recovery,
        build_server(context.loaded, context.ports, specs, inputs.shared),
        ControllerRegistrar(inputs.channel, watch, registration),
        build_auto_join(context, quorum),
        build_probes(context, controller, liveness, settings, suspected),
    )


def _decisions(
    context: NodeContext, quorum: NodeQuorum, settings: DecisionSettings, liveness: Liveness
) -> ControllerContext:
    config = context.loaded.broker
    return ControllerContext(
        cluster_id=context.cluster_id,
        settings=settings,
        voter_ids=quorum.voter_ids,
        liveness=liveness,
        random=context.ports.random,
        access=context.access,
        tokens=token_settings(config),
        mutations=MutationQuotas(
            float(config.controller_quota_window_num * config.controller_quota_window_size_seconds)
        ),
    )


def _periodic_tasks(
    context: NodeContext, settings: DecisionSettings, liveness: Liveness, suspected: asyncio.Event
) -> tuple[PeriodicTask, ...]:
    """Return what the active controller does without a request; expired brokers come first."""
    config = context.loaded.broker
    tasks: tuple[PeriodicTask, ...] = (
        FenceExpiredBrokers(liveness, settings, suspected.set),
        RemoveExpiredTokens(config.delegation_token_expiry_check_interval_ms),
    )
    if not config.auto_leader_rebalance_enable:
        return tasks
    rebalance = Rebalance(
        config.leader_imbalance_check_interval_seconds * 1000,
        config.ottla_leader_imbalance_per_broker_percentage,
        settings,
    )
    return (*tasks, rebalance)


def _first_records(context: NodeContext, quorum: NodeQuorum) -> list[Versioned]:
    """Return the records that an empty log begins with: from formatting, else the defaults.

    Raises:
        CorruptSnapshot: the file from formatting is damaged, and this log is empty.
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
        log.warning("damaged and no longer needed, remove it: %s", error)
    if written is None:
        written = bootstrap_records(feature_levels(DEFAULT_VERSION, {}), random=random)
    return records_for_empty_log(written, context.loaded.broker.min_insync_replicas, False)
