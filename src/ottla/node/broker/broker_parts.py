"""Constructs what a node has as a broker: its partitions, its coordinators and its listeners."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ottla.api.cluster.auto_create import SCHEMAS, TopicCreation, creatable_topic, schemas_topic
from ottla.api.cluster.envelope import Forwarder
from ottla.api.cluster.fenced_brokers import FencedBrokers
from ottla.api.surface.binding import Handlers, bind_routes
from ottla.api.surface.constructors import served_by
from ottla.api.surface.routes import ANONYMOUS, Caller, Routes
from ottla.api.surface.start_gate import StartGate
from ottla.config.listeners import REGISTRY_LISTENER
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.publishing import Publisher
from ottla.node.broker.broker_handlers import BrokerConstructors, BrokerDependencies
from ottla.node.broker.broker_lifecycle import BrokerLifecycle, Timing
from ottla.node.broker.coordinators import CoordinatorDependencies, Coordinators
from ottla.node.broker.cordons import Cordons
from ottla.node.broker.dynamic_listeners import DynamicListeners, ListenerChecks, OpenListeners
from ottla.node.broker.incarnation import load_incarnation
from ottla.node.broker.registrations import broker_registration
from ottla.node.broker.replica_manager import ReplicaManager, build_replica_manager, scrub_counts
from ottla.node.broker.telemetry import TELEMETRY_APIS, Telemetry
from ottla.node.context import NodeContext
from ottla.node.controller.controller_channel import ControllerChannel, client_id
from ottla.node.controller.feature_gates import disabled_at, newest_at
from ottla.node.controller.quorum import NodeQuorum
from ottla.node.listeners import SpecInputs, build_server, listener_specs, node_features
from ottla.node.metrics.gauges import ScrubCounts
from ottla.observability.exposition import Source
from ottla.protocol.api_keys import Listener
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.protocol.types import TopicPartition, Uuid
from ottla.replication.partition import Partition
from ottla.runtime.ports import Address
from ottla.server.api_versions import NodeIdentity
from ottla.server.listener import Server, SharedResources
from ottla.storage.log.log import Log

if TYPE_CHECKING:
    from ottla.node.broker.registry import NodeRegistry
    from ottla.observability.otlp_exporter import OtlpExporter


class BrokerParts(msgspec.Struct, frozen=True):
    """What a node has as a broker."""

    lifecycle: BrokerLifecycle
    replica_manager: ReplicaManager
    coordinators: Coordinators
    topic_creation: TopicCreation
    listener: Server
    telemetry: Telemetry
    fenced_brokers: FencedBrokers
    registry: "NodeRegistry | None" = None
    """The schema registry; None where its listener is not configured."""

    @property
    def publishers(self) -> tuple[Publisher, ...]:
        """The parts that follow the image."""
        manager = self.replica_manager
        tiering = () if manager.tiering is None else (manager.tiering,)
        first = (manager.host.throttles, manager.replicas, self.coordinators)
        registry = () if self.registry is None else (self.registry,)
        return (self.fenced_brokers, *first, *tiering, *registry, self.telemetry)

    @property
    def metric_sources(self) -> tuple[Source, ...]:
        """The parts that have metrics of their own."""
        tiering = self.replica_manager.tiering
        first = () if tiering is None else (tiering.collect,)
        last = () if self.registry is None else (self.registry.collect,)
        return (*first, self.telemetry.collect, self.coordinators.collect, *last)

    # What the gauges of a broker show.

    def hosted(self) -> list[tuple[Partition, Log]]:
        """Return the partitions hosted here with their logs."""
        return [(partition, partition.log) for partition in self.replica_manager.partitions]

    def is_unfenced(self) -> bool:
        """Say whether the controller has unfenced this broker."""
        return not self.lifecycle.is_fenced

    def isr_changes(self) -> tuple[int, int]:
        """Return how often an ISR led here shrank and grew."""
        return self.replica_manager.isr.changes

    def disk_sizes(self) -> Mapping[TopicPartition, int]:
        """Return the bytes on disk of each partition, as of the last scan."""
        return self.replica_manager.disk_scan.sizes

    def scrubbed(self) -> ScrubCounts:
        """Return what scrubbing and repair have done so far."""
        return scrub_counts(self.replica_manager)

    def recovery_cuts(self) -> tuple[int, int, int]:
        """Return what recovery cut off logs at this start."""
        return self.replica_manager.host.recovery.counts


class BrokerInputs(msgspec.Struct, frozen=True):
    """The parts of a node that its broker is constructed from."""

    context: NodeContext
    quorum: NodeQuorum
    watch: ImageWatch
    channel: ControllerChannel
    shared: SharedResources
    otlp: "OtlpExporter | None" = None


def build_broker_parts(inputs: BrokerInputs) -> BrokerParts:
    """Construct the broker of a node and its listeners; no log is opened yet."""
    context, watch, channel = inputs.context, inputs.watch, inputs.channel
    loaded, ports = context.loaded, context.ports
    lifecycle = _lifecycle(context, channel, watch)
    replica_manager = build_replica_manager(context, lifecycle, channel)
    topic_creation = _topic_creation(context, channel, watch)
    coordinators = _coordinators(inputs, replica_manager, topic_creation)
    open_listeners = OpenListeners(loaded.listeners)
    telemetry = Telemetry(context, watch.current, inputs.otlp)
    fenced_brokers = FencedBrokers(ports.clock)
    registry = _registry(inputs, replica_manager, topic_creation)
    constructors = BrokerConstructors(
        BrokerDependencies(
            context=context,
            watch=watch,
            channel=channel,
            replica_manager=replica_manager,
            coordinators=coordinators,
            topic_creation=topic_creation,
            quotas=inputs.shared.throttling.quotas,
            listeners=ListenerChecks(loaded, ports, context.security, open_listeners),
            telemetry=telemetry,
            fenced_brokers=fenced_brokers,
            quorum=inputs.quorum.driver.describe,
            registry=registry,
        )
    )
    gate = StartGate(watch.current, int(context.node_id))
    routes = Routes(
        Listener.BROKER,
        bind_routes(
            Listener.BROKER,
            Handlers(served_by(constructors)),
            gate,
            access=context.access,
            also_advertised=TELEMETRY_APIS if telemetry.has_receiver else frozenset(),
        ),
        disabled_at(watch.current),
        newest=newest_at(watch.current),
    )
    spec_of = SpecInputs(
        context.bound,
        routes,
        node_features(watch, inputs.quorum),
        context.security,
        watch.current,
        context.meters.requests,
        NodeIdentity(context.cluster_id, context.node_id),
    ).spec
    specs = listener_specs(loaded, spec_of, is_controller=False)
    server = build_server(loaded, ports, specs, inputs.shared)
    dynamic_listeners = DynamicListeners(loaded, open_listeners, server, spec_of)
    context.dynamic.follow(context.security.apply)
    context.dynamic.follow(dynamic_listeners.apply)
    context.dynamic.follow(replica_manager.configure)
    context.dynamic.follow(Cordons(context.log_directories, lifecycle.report_soon).apply)
    hosted = (lifecycle, replica_manager, coordinators, topic_creation)
    return BrokerParts(*hosted, server, telemetry, fenced_brokers, registry)


def _lifecycle(
    context: NodeContext, channel: ControllerChannel, watch: ImageWatch
) -> BrokerLifecycle:
    config, ports = context.loaded.broker, context.ports
    incarnation = load_incarnation(ports.disk, context.metadata_directory.path, ports.random)
    registration = broker_registration(
        context.loaded, context.bound, context.cluster_id, incarnation, context.log_directories
    )
    timing = Timing(config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms // 2)

    def failed_directories() -> list[Uuid]:
        return [each.directory_id for each in context.log_directories if each.is_failed]

    def cordoned_directories() -> list[Uuid] | None:
        if not watch.image.metadata_version().is_cordoned_log_dirs_supported():
            return None
        return [each.directory_id for each in context.log_directories if each.is_cordoned]

    return BrokerLifecycle(
        channel,
        registration,
        lambda: watch.image.provenance.offset,
        failed_directories,
        timing,
        cordoned_directories,
    )


def _topic_creation(
    context: NodeContext, channel: ControllerChannel, watch: ImageWatch
) -> TopicCreation:
    config = context.loaded.broker
    forwarder = Forwarder(channel, config.request_timeout_ms, context.ports.random)

    def describe(name: str) -> CreatableTopic:
        if name == SCHEMAS and config.schema_registry_listeners is not None:
            factor = config.schema_registry_kafkastore_topic_replication_factor
            return schemas_topic(factor, len(watch.image.cluster.unfenced()))
        return creatable_topic(name, config)

    return TopicCreation(forwarder, describe, config.request_timeout_ms)


def _registry(
    inputs: BrokerInputs, replica_manager: ReplicaManager, topic_creation: TopicCreation
) -> "NodeRegistry | None":
    """Return the schema registry; None where its listener is not configured, or in a simulation."""
    context = inputs.context
    if REGISTRY_LISTENER not in context.bound.sockets:
        return None
    from ottla.node.broker.registry import (  # needs the extra `registry`
        RegistryInputs,
        build_registry,
    )

    broker = _own_caller(inputs)
    return build_registry(
        RegistryInputs(
            context,
            inputs.watch,
            replica_manager,
            lambda topic: topic_creation.want(broker, [topic]),
        )
    )


def _own_caller(inputs: BrokerInputs) -> Caller:
    """Return the broker as a caller: topics of its own are created in its name."""
    name = client_id(inputs.context.node_id)
    return Caller(ANONYMOUS, name, Address("localhost", 0), "", is_own=True)


def _coordinators(
    inputs: BrokerInputs, replica_manager: ReplicaManager, topic_creation: TopicCreation
) -> Coordinators:
    # Internal topics are created in the name of the broker, whichever client needs them first.
    broker = _own_caller(inputs)
    return Coordinators(
        CoordinatorDependencies(
            inputs.context,
            inputs.watch,
            inputs.channel,
            replica_manager,
            create_topic=lambda topic: topic_creation.want(broker, [topic]),
        )
    )
