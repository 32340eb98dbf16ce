"""How each handler class of the client listeners is constructed.

`ottla.api.surface.table` names the classes; `CONSTRUCTORS` has one function for each. A class is
imported by its function, with the first request that needs it: at start a broker loads only
Metadata, Produce, Fetch and forwarding. The classes of coordinators have the coordinators
constructed, too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.api.cluster.auto_create import TopicCreation
from ottla.api.cluster.envelope import Forwarder
from ottla.api.cluster.fenced_brokers import FencedBrokers
from ottla.api.cluster.metadata import BROKERS, ClusterHandlers, create_nothing
from ottla.api.fetch.decision import RACK_AWARE
from ottla.api.fetch.handler import FetchHandlers
from ottla.api.fetch.reading import ReadSources
from ottla.api.fetch.sessions import EPOCH_MAX, Sessions
from ottla.api.produce.handler import ProduceHandler
from ottla.api.security.access import Access
from ottla.api.surface.binding import Handlers
from ottla.config.generated import BrokerConfig
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.broker.coordinators import Coordinators, CoordinatorServices
from ottla.node.broker.dynamic_listeners import ListenerChecks
from ottla.node.broker.replica_manager import ReplicaManager
from ottla.node.broker.telemetry import Telemetry
from ottla.node.context import NodeContext
from ottla.node.controller.controller_channel import ControllerChannel
from ottla.node.directories.node_directories import log_directories
from ottla.node.security.token_services import token_descriptions
from ottla.quotas.client_quotas import ClientQuotas
from ottla.raft.core.view import QuorumView
from ottla.replication.hosted_partitions import Partitions
from ottla.runtime.worker import ThreadWorker
from ottla.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.api.fetch.remote import RemoteReader


class BrokerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers of the client listeners are constructed from."""

    context: NodeContext
    watch: ImageWatch
    channel: ControllerChannel
    replica_manager: ReplicaManager
    coordinators: Coordinators
    topic_creation: TopicCreation
    listeners: ListenerChecks
    quotas: ClientQuotas
    telemetry: Telemetry
    fenced_brokers: FencedBrokers
    quorum: Callable[[], QuorumView]

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration as of its start."""
        return self.context.loaded.broker

    @property
    def access(self) -> Access:
        """The node's authorizer, asked about callers."""
        return self.context.access

    @property
    def partitions(self) -> Partitions:
        """The partitions hosted here."""
        return self.replica_manager.partitions

    @property
    def coordinator(self) -> CoordinatorServices:
        """The coordinators; constructs them on first use."""
        return self.coordinators.get()

    def image(self) -> Image:
        """Return the newest image."""
        return self.watch.image


Construct = Callable[[BrokerDependencies], object]


def broker_handlers(dependencies: BrokerDependencies) -> Handlers:
    """Return the handlers of the client listeners; all listeners of a broker share them."""
    return Handlers(
        {name: partial(construct, dependencies) for name, construct in CONSTRUCTORS.items()}
    )


# -- loaded at start ---------------------------------------------------------------


def _cluster(broker: BrokerDependencies) -> object:
    may_create = broker.config.auto_create_topics_enable
    return ClusterHandlers(
        broker.context.cluster_id,
        broker.image,
        lambda: int(broker.context.node_id),
        BROKERS,
        broker.topic_creation.want if may_create else create_nothing,
        broker.access,
        broker.fenced_brokers.recent,
    )


def _forwarder(broker: BrokerDependencies) -> Forwarder:
    timeout_ms, random = broker.config.request_timeout_ms, broker.context.ports.random
    return Forwarder(broker.channel, timeout_ms, random)


def _produce(broker: BrokerDependencies) -> object:
    return ProduceHandler(
        broker.partitions,
        broker.image,
        broker.context.ports.clock,
        access=broker.access.of_produce(),
        verifier=broker.coordinators,
        events=broker.context.meters.topics,
        worker=ThreadWorker("produce"),
    )


def _remote(broker: BrokerDependencies) -> "RemoteReader | None":
    tiering = broker.replica_manager.tiering
    return None if tiering is None else tiering.reads


def _fetch(broker: BrokerDependencies) -> object:
    config, ports = broker.config, broker.context.ports
    sources = ReadSources(
        broker.partitions,
        broker.image,
        config.replica_selector_class == RACK_AWARE,
        may_read=broker.access.may(AclOperation.READ, ResourceType.TOPIC),
        may_replicate=broker.access.may_on_cluster(AclOperation.CLUSTER_ACTION),
        throttles=broker.replica_manager.host.throttles,
        remote=_remote(broker),
    )
    sessions = Sessions(
        config.max_incremental_fetch_session_cache_slots,
        lambda: 1 + ports.random.below(EPOCH_MAX - 1),
    )
    return FetchHandlers(
        sources,
        sessions,
        ports.clock,
        config.fetch_max_bytes,
        broker.context.meters.topics,
        broker.quotas,
    )


# -- loaded by their first request: records and directories -------------------------


def _list_offsets(broker: BrokerDependencies) -> object:
    from ottla.api.partitions.list_offsets import ListOffsetsHandlers

    may_describe = broker.access.may(AclOperation.DESCRIBE, ResourceType.TOPIC)
    return ListOffsetsHandlers(broker.partitions, may_describe, _remote(broker))


def _epochs(broker: BrokerDependencies) -> object:
    from ottla.api.partitions.offset_for_leader_epoch import EpochHandlers

    return EpochHandlers(broker.partitions, broker.access.may_compare_epochs)


def _delete_records(broker: BrokerDependencies) -> object:
    from ottla.api.partitions.delete_records import DeleteRecordsHandler

    may_delete = broker.access.may(AclOperation.DELETE, ResourceType.TOPIC)
    return DeleteRecordsHandler(broker.partitions, may_delete)


def _describe_producers(broker: BrokerDependencies) -> object:
    from ottla.api.transactions.describe_producers import DescribeProducersHandler

    may_read = broker.access.may(AclOperation.READ, ResourceType.TOPIC)
    return DescribeProducersHandler(broker.partitions, may_read)


def _log_dirs(broker: BrokerDependencies) -> object:
    from ottla.api.partitions.log_dirs import LogDirsHandler

    context = broker.context
    return LogDirsHandler(
        log_directories(broker.config),
        context.log_directories,
        context.ports.disk,
        broker.access.may_on_cluster(AclOperation.DESCRIBE),
        lambda: broker.image().metadata_version().is_cordoned_log_dirs_supported(),
    )


def _alter_log_dirs(broker: BrokerDependencies) -> object:
    from ottla.api.partitions.log_dirs import AlterLogDirsHandler

    return AlterLogDirsHandler(broker.replica_manager.moves)


# -- the cluster -------------------------------------------------------------------


def _topic_partitions(broker: BrokerDependencies) -> object:
    from ottla.api.cluster.topic_partitions import TopicPartitionsHandlers

    partitions_max = broker.config.max_request_partition_size_limit
    return TopicPartitionsHandlers(broker.image, partitions_max, broker.access)


def _describe(broker: BrokerDependencies) -> object:
    from ottla.api.cluster.describe_settings import DescribeHandlers

    context = broker.context
    return DescribeHandlers(context.node_id, broker.image, context.loaded.static, broker.access)


def _config_changes(broker: BrokerDependencies) -> object:
    from ottla.api.cluster.config_changes import ConfigChangeHandlers

    context = broker.context
    return ConfigChangeHandlers(
        context.node_id,
        broker.image,
        context.loaded.static,
        _forwarder(broker),
        broker.listeners,
        access=broker.access,
    )


def _quorum(broker: BrokerDependencies) -> object:
    from ottla.api.cluster.describe_quorum import QuorumDescriptions

    may_describe = broker.access.may_on_cluster(AclOperation.DESCRIBE)
    return QuorumDescriptions(
        broker.context.node_id, _forwarder(broker), broker.quorum, may_describe
    )


def _sasl(broker: BrokerDependencies) -> object:
    from ottla.api.surface.unconfigured import SaslHandlers

    return SaslHandlers()


def _token_changes(broker: BrokerDependencies) -> object:
    from ottla.api.security.delegation_tokens import TokenChanges

    return TokenChanges(_forwarder(broker), broker.config.request_timeout_ms)


def _token_descriptions(broker: BrokerDependencies) -> object:
    return token_descriptions(broker.context, broker.image)


def _telemetry(broker: BrokerDependencies) -> object:
    return broker.telemetry.handlers


# -- coordinators ------------------------------------------------------------------


def _find_coordinator(broker: BrokerDependencies) -> object:
    from ottla.api.groups.find_coordinator import FindCoordinatorHandler

    return FindCoordinatorHandler(
        broker.image, broker.coordinators.create_topic, broker.access.of_groups()
    )


def _groups(broker: BrokerDependencies) -> object:
    from ottla.api.groups.classic_groups import GroupHandlers

    return GroupHandlers(broker.coordinator.groups.coordinator, broker.access.of_groups())


def _offsets(broker: BrokerDependencies) -> object:
    from ottla.api.groups.committed_offsets import OffsetHandlers

    coordinator = broker.coordinator.groups.coordinator
    return OffsetHandlers(coordinator, broker.image, access=broker.access.of_groups())


def _consumer_groups(broker: BrokerDependencies) -> object:
    from ottla.api.groups.consumer_groups import ConsumerGroupHandlers

    groups = broker.coordinator.groups
    return ConsumerGroupHandlers(
        groups.coordinator,
        groups.consumer_settings,
        broker.image,
        access=broker.access.of_groups(),
    )


def _streams_groups(broker: BrokerDependencies) -> object:
    from ottla.api.groups.streams_groups import StreamsGroupHandlers

    groups = broker.coordinator.groups
    return StreamsGroupHandlers(
        groups.coordinator,
        groups.streams_settings,
        broker.image,
        groups.streams_topics,
        broker.access.of_groups(),
        broker.access.may_create_topic,
    )


def _init_producer_id(broker: BrokerDependencies) -> object:
    from ottla.api.transactions.producer_ids import InitProducerIdHandler

    transactions = broker.coordinator.transactions
    return InitProducerIdHandler(
        transactions.ids, transactions.coordinator, broker.access.of_transactions()
    )


def _transactions(broker: BrokerDependencies) -> object:
    from ottla.api.transactions.transaction_requests import TransactionHandlers

    services = broker.coordinator
    index_of = services.groups.coordinator.runtime.index_of
    return TransactionHandlers(
        services.transactions.coordinator,
        broker.image,
        index_of,
        broker.access.of_transactions(),
    )


def _describe_txns(broker: BrokerDependencies) -> object:
    from ottla.api.transactions.describe_transactions import DescribeTransactionsHandlers

    coordinator = broker.coordinator.transactions.coordinator
    return DescribeTransactionsHandlers(
        coordinator, broker.context.ports.clock, access=broker.access.of_transactions()
    )


def _txn_markers(broker: BrokerDependencies) -> object:
    from ottla.api.transactions.txn_markers import TxnMarkersHandler

    writer = broker.coordinator.transactions.writer
    return TxnMarkersHandler(writer, access=broker.access.of_transactions())


def _txn_offsets(broker: BrokerDependencies) -> object:
    from ottla.api.transactions.txn_offsets import TxnOffsetHandler

    services = broker.coordinator
    return TxnOffsetHandler(
        services.groups.coordinator,
        services.transactions.verification,
        broker.partitions,
        broker.image,
        access=broker.access.of_transactions(),
    )


CONSTRUCTORS: Final[Mapping[str, Construct]] = MappingProxyType(
    {
        "ottla.api.cluster.metadata:ClusterHandlers": _cluster,
        "ottla.api.cluster.envelope:Forwarder": _forwarder,
        "ottla.api.produce.handler:ProduceHandler": _produce,
        "ottla.api.fetch.handler:FetchHandlers": _fetch,
        "ottla.api.partitions.list_offsets:ListOffsetsHandlers": _list_offsets,
        "ottla.api.partitions.offset_for_leader_epoch:EpochHandlers": _epochs,
        "ottla.api.partitions.delete_records:DeleteRecordsHandler": _delete_records,
        "ottla.api.transactions.describe_producers:DescribeProducersHandler": _describe_producers,
        "ottla.api.partitions.log_dirs:LogDirsHandler": _log_dirs,
        "ottla.api.partitions.log_dirs:AlterLogDirsHandler": _alter_log_dirs,
        "ottla.api.cluster.topic_partitions:TopicPartitionsHandlers": _topic_partitions,
        "ottla.api.cluster.describe_settings:DescribeHandlers": _describe,
        "ottla.api.cluster.config_changes:ConfigChangeHandlers": _config_changes,
        "ottla.api.cluster.describe_quorum:QuorumDescriptions": _quorum,
        "ottla.api.surface.unconfigured:SaslHandlers": _sasl,
        "ottla.api.security.delegation_tokens:TokenChanges": _token_changes,
        "ottla.api.security.delegation_tokens:TokenDescriptions": _token_descriptions,
        "ottla.api.cluster.telemetry:TelemetryHandlers": _telemetry,
        "ottla.api.groups.find_coordinator:FindCoordinatorHandler": _find_coordinator,
        "ottla.api.groups.classic_groups:GroupHandlers": _groups,
        "ottla.api.groups.committed_offsets:OffsetHandlers": _offsets,
        "ottla.api.groups.consumer_groups:ConsumerGroupHandlers": _consumer_groups,
        "ottla.api.groups.streams_groups:StreamsGroupHandlers": _streams_groups,
        "ottla.api.transactions.producer_ids:InitProducerIdHandler": _init_producer_id,
        "ottla.api.transactions.transaction_requests:TransactionHandlers": _transactions,
        "ottla.api.transactions.describe_transactions:DescribeTransactionsHandlers": _describe_txns,
        "ottla.api.transactions.txn_markers:TxnMarkersHandler": _txn_markers,
        "ottla.api.transactions.txn_offsets:TxnOffsetHandler": _txn_offsets,
        "ottla.api.share.share_fetch:ShareHandlers": lambda broker: (
            broker.coordinator.shares.handlers
        ),
        "ottla.api.groups.share_groups:ShareGroupHandlers": lambda broker: (
            broker.coordinator.shares.group_handlers
        ),
        "ottla.api.share.share_state:ShareStateHandlers": lambda broker: (
            broker.coordinator.shares.state_handlers
        ),
        "ottla.api.share.share_offsets:ShareOffsetHandlers": lambda broker: (
            broker.coordinator.shares.offset_handlers
        ),
    }
)
"""One function per class, by its name in the surface."""
