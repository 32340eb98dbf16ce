"""The composition root: from settings and ports to the parts of one node.

Nothing here waits or sends. Whatever can fail because of the disk fails here, before a service
runs. A node has the parts of its roles:

    controller   quorum replica (voter), controller, controller listener, registration
    broker       quorum replica (observer unless combined), lifecycle, partitions, client listeners
"""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.publishing import Publisher
from ottla.metadata.snapshot_policy import SnapshotLimits
from ottla.node.broker.broker_parts import BrokerInputs, BrokerParts, build_broker_parts
from ottla.node.context import NodeContext
from ottla.node.controller.controller_channel import (
    CONNECT_MS_MAX,
    ControllerChannel,
    client_id,
    leader_address,
)
from ottla.node.controller.controller_parts import (
    ControllerInputs,
    NodeControllerParts,
    build_controller_parts,
)
from ottla.node.controller.image_loader import Followers, ImageLoader
from ottla.node.controller.quorum import NodeQuorum, build_quorum, voter_address
from ottla.node.controller.snapshotter import Snapshotter
from ottla.node.metrics.gauges import directory_families
from ottla.node.metrics.meters import Meters
from ottla.node.metrics.node_metrics import NodeView, build_metrics
from ottla.node.metrics.otlp_endpoints import metrics_url, traces_url
from ottla.node.security.client_quotas import QuotaPublisher, build_throttling, quota_families
from ottla.node.security.connection_limits import (
    ConnectionLimits,
    anonymous_memory,
    held_replies,
    limits_of,
    request_memory_max,
)
from ottla.node.security.security_port import Security
from ottla.observability.http_service import HttpService
from ottla.protocol.types import Offset
from ottla.runtime.ports import Address
from ottla.server.admission import Admission
from ottla.server.listener import SharedResources
from ottla.server.request_memory import RequestMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.node.security.audit_log import AuditLog
    from ottla.observability.http import Page
    from ottla.observability.otlp_exporter import OtlpExporter
    from ottla.observability.request_traces import RequestTracer


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that runs in a node; None for a role that it does not have."""

    quorum: NodeQuorum
    watch: ImageWatch
    snapshotter: Snapshotter
    channel: ControllerChannel
    controller: NodeControllerParts | None
    broker: BrokerParts | None
    meters: Meters
    metrics: HttpService | None
    otlp: "OtlpExporter | None"
    security: Security
    audit_log: "AuditLog | None" = None


def build_node(context: NodeContext) -> NodeParts:
    """Construct the parts of a node, each from those before it.

    Raises:
        UnreadableQuorumState, CorruptSnapshot, UnusableMetadataLog: the disk holds what a node
            must not start with. StorageFailed, OSError: the disk failed.
    """
    loader, watch, meters = ImageLoader(), ImageWatch(), context.meters
    quorum = build_quorum(context, loader)
    snapshotter = _snapshotter(context, quorum, loader)
    channel = _channel(context, quorum, watch)
    otlp, shared = _otlp_and_shared(context)
    controller = broker = None
    if context.has_role("controller"):
        controller = build_controller_parts(
            ControllerInputs(context, quorum, loader, watch, channel, shared)
        )
    if context.has_role("broker"):
        broker = build_broker_parts(BrokerInputs(context, quorum, watch, channel, shared, otlp))
    limits = ConnectionLimits(context.loaded, shared.admission)
    quotas = QuotaPublisher(shared.throttling.quotas)
    publishers: list[Publisher] = [watch, meters, limits, quotas, context.dynamic]
    if context.acls is not None:
        publishers.append(context.acls)
    if broker is not None:
        publishers += broker.publishers
    clock = context.ports.clock

    def count_applied(offset: Offset) -> None:
        meters.quorum.applied(offset, clock.monotonic())

    followers = Followers(publishers, [meters.on_role], [count_applied], snapshotter)
    if controller is not None:
        decider = controller.controller
        publishers.append(controller.recovery)
        if controller.probes is not None:
            publishers.append(controller.probes)
        followers = Followers(
            publishers,
            [decider.on_role, meters.on_role],
            [decider.on_applied, count_applied],
            snapshotter,
        )
    # The quorum drives the loader, and the controller drives the quorum: the one cycle of a node.
    loader.install(followers)
    view = _with_quotas(context, shared, _view(context, quorum, watch, controller, broker))
    return NodeParts(
        quorum=quorum,
        watch=watch,
        snapshotter=snapshotter,
        channel=channel,
        controller=controller,
        broker=broker,
        meters=meters,
        security=context.security,
        metrics=build_metrics(context, view, otlp, _group_page(broker)),
        otlp=otlp,
        audit_log=None if context.acls is None else context.acls.audit_log,
    )


def _group_page(broker: BrokerParts | None) -> "Callable[[str], Page] | None":
    """Return the page that explains a group; a controller has none."""
    return None if broker is None else broker.coordinators.group_page


def _snapshotter(context: NodeContext, quorum: NodeQuorum, loader: ImageLoader) -> Snapshotter:
    config = context.loaded.broker
    limits = SnapshotLimits(
        config.metadata_log_max_record_bytes_between_snapshots,
        config.metadata_log_max_snapshot_interval_ms,
        config.ottla_metadata_snapshot_interval_records,
    )
    return Snapshotter(quorum.driver, lambda: loader.settled, limits, context.ports.clock)


def _channel(context: NodeContext, quorum: NodeQuorum, watch: ImageWatch) -> ControllerChannel:
    def configured(node_id: int) -> Address | None:
        return voter_address(context.loaded, node_id)

    def leader() -> Address | None:
        return leader_address(quorum.driver.describe(), watch.image, quorum.listener, configured)

    listener = context.loaded.broker.controller_listener_names[0]
    options = msgspec.structs.replace(
        context.security.peer_options(listener), connect_timeout_ms=CONNECT_MS_MAX
    )
    return ControllerChannel(context.ports.network, leader, client_id(context.node_id), options)


def _otlp_and_shared(context: NodeContext) -> "tuple[OtlpExporter | None, SharedResources]":
    """Return what exports metrics and traces, and what all servers of the node share."""
    config = context.loaded.broker
    if metrics_url(config) is None and traces_url(config) is None:
        return None, _shared(context, None)
    from ottla.node.metrics.otlp import build_otlp  # few nodes need it

    otlp, tracer = build_otlp(context)
    return otlp, _shared(context, tracer)


def _shared(context: NodeContext, tracer: "RequestTracer | None") -> SharedResources:
    """Return the limits, memory and counters that all servers of the node share."""
    memory = RequestMemory(request_memory_max(context.loaded))
    return SharedResources(
        admission=Admission(limits_of(context.loaded)),
        memory=memory,
        anonymous_memory=anonymous_memory(memory, context.ports.memory_bytes),
        held=held_replies(context.ports.memory_bytes),
        events=context.meters.requests,
        close_hooks=context.close_hooks,
        release_memory=context.ports.release_memory,
        throttling=build_throttling(context.loaded.broker, context.ports),
        tracer=tracer,
    )


def _view(
    context: NodeContext,
    quorum: NodeQuorum,
    watch: ImageWatch,
    controller: NodeControllerParts | None,
    broker: BrokerParts | None,
) -> NodeView:
    """Return where the gauges look."""
    view = NodeView(
        node_id=context.node_id,
        image=watch.current,
        quorum=quorum.driver.describe,
        refusals=lambda: quorum.driver.refusals,
        has_failed_disk=lambda: context.metadata_directory.is_failed,
    )
    if controller is not None:
        view = msgspec.structs.replace(
            view,
            is_active_controller=controller.is_active,
            unclean_elections=controller.unclean_elections,
            probe_counts=controller.probe_counts,
        )
    if broker is not None:
        view = msgspec.structs.replace(
            view,
            hosted=broker.hosted,
            is_unfenced=broker.is_unfenced,
            isr_changes=broker.isr_changes,
            disk_sizes=broker.disk_sizes,
            scrubbed=broker.scrubbed,
            recovery_cuts=broker.recovery_cuts,
            sources=(
                *broker.metric_sources,
                partial(directory_families, context.log_directories, context.offline_paths),
            ),
        )
    return view


def _with_quotas(context: NodeContext, shared: SharedResources, view: NodeView) -> NodeView:
    """Return a view that also has the metrics of client quotas."""
    quotas = partial(quota_families, shared.throttling.quotas, context.ports.clock.monotonic)
    return msgspec.structs.replace(view, sources=(*view.sources, quotas))
