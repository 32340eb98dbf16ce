"""Constructs the schema registry of a broker. Loaded only where its listener is configured."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.api.produce.schema_checks import ValidationCounts
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster
from ottla.config.addresses import SecurityProtocol
from ottla.config.listeners import REGISTRY_LISTENER, registry_listener
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.broker.replica_manager import ReplicaManager
from ottla.node.broker.schema_validation import validation_families
from ottla.node.context import NodeContext
from ottla.observability.exposition import Family, Kind, Sample, counter, gauge
from ottla.registry.access import Decides
from ottla.registry.authentication import LoginAuthentication, OpenAuthentication
from ottla.registry.client_hosts import NodeAddresses
from ottla.registry.forwarding import ForwardingSettings, LeaderForwarding
from ottla.registry.http_app import Authentication, RegistryApp
from ottla.registry.http_call import Identity
from ottla.registry.http_metrics import MeasuredApp
from ottla.registry.rules.records import TOPIC
from ottla.registry.rules.settings import Defaults
from ottla.registry.service import RegistrySettings, SchemaRegistry
from ottla.registry.store import SchemaStore, StorePorts
from ottla.registry.work import SchemaWorker
from ottla.replication.partition import Partition
from ottla.runtime.asgi_service import AsgiService
from ottla.runtime.ports import Address
from ottla.runtime.supervisor import Service
from ottla.runtime.worker import ThreadWorker
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType, Subject
from ottla.tiering.client_address import client_address

CLIENT_ID: Final = "ottla-schema-registry-{}"


class RegistryInputs(msgspec.Struct, frozen=True):
    """The parts of a node that its registry is constructed from."""

    context: NodeContext
    watch: ImageWatch
    replica_manager: ReplicaManager
    create_topic: Callable[[str], None]


class NodeRegistry(msgspec.Struct, frozen=True):
    """Publisher: the registry of a broker. ``services`` are in the order they start."""

    registry: SchemaRegistry
    store: SchemaStore
    app: RegistryApp
    http: AsgiService
    measured: MeasuredApp
    is_tls: bool
    name: str = "schema-registry"
    validation: list[ValidationCounts] = msgspec.field(default_factory=list)
    """What Produce has counted; none before the first request."""

    @property
    def services(self) -> tuple[Service, ...]:
        """What runs."""
        return (self.store, self.http)

    @property
    def url(self) -> str:
        """Where clients on this machine find it."""
        return f"{'https' if self.is_tls else 'http'}://{self.http.address}"

    def on_image(self, delta: Delta, image: Image) -> None:
        """Pass the image on to the store."""
        self.store.on_image(delta, image)

    def collect(self) -> Iterable[Family]:
        """Yield the metrics."""
        prefix, counts, store = "ottla_schema_registry_", self.app.counts, self.store
        subjects, versions = store.state.counts()
        yield gauge(f"{prefix}subjects", "Subjects that are not deleted.", subjects)
        yield gauge(f"{prefix}versions", "Versions that are not deleted.", versions)
        leading = "1 on the node that writes."
        yield gauge(f"{prefix}leader", leading, int(store.leads()))
        yield gauge(f"{prefix}applied_offset", "The next offset of _schemas.", int(store.applied))
        yield counter(f"{prefix}writes_total", "Changes written here.", store.writes)
        forwarded = "Changes that this node had written by the leader."
        yield counter(f"{prefix}forwarded_total", forwarded, self.registry.forwarded)
        skipped = "Records of _schemas that are none of a registry."
        yield counter(f"{prefix}skipped_records_total", skipped, store.skipped)
        samples = [
            Sample((("class", f"{status}xx"),), count)
            for status, count in sorted(counts.by_class.items())
        ]
        help_text = "Replies by class of their status."
        yield Family(f"{prefix}replies_total", Kind.COUNTER, help_text, samples)
        yield from self.measured.collect(prefix)
        yield from validation_families(self.validation)


def build_registry(inputs: RegistryInputs) -> NodeRegistry:
    """Construct the registry; its listener is bound already.

    Raises:
        ImportError: the extra ``registry`` is not installed.
        ConfigError: its security settings cannot be used.
    """
    context, watch = inputs.context, inputs.watch
    config, ports = context.loaded.broker, context.ports
    listener = registry_listener(config)
    assert listener is not None, "constructed only where it is configured"
    security = context.security.of_listener(listener)
    partitions = inputs.replica_manager.partitions

    def partition() -> Partition | None:
        return partitions.get(TOPIC, 0)

    timeout_ms = config.schema_registry_kafkastore_timeout_ms
    store = SchemaStore(
        StorePorts(partition, lambda: _connect(context), watch.current, ports.clock, timeout_ms)
    )
    partitions.on_led(lambda topic, index, epoch: store.wake() if topic == TOPIC else None)
    leader = LeaderForwarding(
        watch,
        lambda: inputs.create_topic(TOPIC),
        ForwardingSettings(timeout_ms, security.client_tls),
    )
    settings = RegistrySettings(
        Defaults(config.schema_registry_schema_compatibility_level.upper()),
        timeout_ms,
        config.schema_registry_request_max_bytes,
        context.cluster_id,
    )
    worker = SchemaWorker(ThreadWorker("schemas"))
    registry = SchemaRegistry(store, worker, leader, _access(context), settings)
    app = RegistryApp(registry, _authentication(inputs), NodeAddresses(watch.current, ports.clock))
    bound = context.bound.sockets[REGISTRY_LISTENER]
    measured = MeasuredApp(app)
    http = AsgiService("schema-registry-http", measured, bound, security.tls)
    return NodeRegistry(registry, store, app, http, measured, listener.protocol.uses_tls)


def _access(context: NodeContext) -> Decides:
    if context.acls is None:
        return Decides()
    authorizer = context.acls.authorizer

    def allows(
        subject: Subject,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        is_audited: bool,
    ) -> bool:
        return authorizer.allows(subject, operation, resource_type, name, is_audited=is_audited)

    return Decides(allows)


def _authentication(inputs: RegistryInputs) -> Authentication:
    context, watch = inputs.context, inputs.watch
    listener = registry_listener(context.loaded.broker)
    assert listener is not None
    security = context.security.of_listener(listener)
    mechanisms = security.mechanisms(watch.current)
    if mechanisms is not None:
        ports = context.ports
        worker = ThreadWorker("schema-logins")
        return LoginAuthentication(mechanisms, watch.current, ports.clock, ports.random, worker)

    def may_act_for_cluster(sender: Identity) -> bool:
        if context.acls is None:
            return True
        who = Subject(sender.principal, sender.host)
        action, cluster = AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER
        return context.acls.authorizer.allows(who, action, cluster, CLUSTER_NAME)

    return OpenAuthentication(security.certificate_login, may_act_for_cluster)


async def _connect(context: NodeContext) -> Cluster:
    """Return a client of the own cluster, which logs in as brokers do."""
    ports, listeners = context.ports, context.loaded.listeners
    assert listeners.inter_broker is not None, "a broker has a listener for brokers"
    listener = listeners.named(listeners.inter_broker)
    port = context.bound.port(listener)
    at = listener.advertised
    address = client_address(
        None,
        None if at is None else Address(at.host, at.port or port),
        Address(listener.bind.host, port),
        is_secured=listener.protocol is not SecurityProtocol.PLAINTEXT,
    )
    return await Cluster.open(
        ClientPorts(ports.network, ports.clock, ports.random),
        [address],
        ClientOptions(
            client_id=CLIENT_ID.format(context.node_id),
            connection=context.security.peer_options(listener.name),
        ),
    )
