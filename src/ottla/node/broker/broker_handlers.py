"""How each handler class of the client listeners is constructed.

A class is imported by its constructor, with the first request that needs it: at start a broker
loads only Metadata, Produce, Fetch and forwarding. The classes of coordinators have the
coordinators constructed, too.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

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
from ottla.api.surface.constructors import Constructors
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
    from ottla.api.cluster.config_changes import ConfigChangeHandlers
    from ottla.api.cluster.describe_quorum import QuorumDescriptions
    from ottla.api.cluster.describe_settings import DescribeHandlers
    from ottla.api.cluster.telemetry import TelemetryHandlers
    from ottla.api.cluster.topic_partitions import TopicPartitionsHandlers
    from ottla.api.fetch.remote import RemoteReader
    from ottla.api.groups.classic_groups import GroupHandlers
    from ottla.api.groups.committed_offsets import OffsetHandlers
    from ottla.api.groups.consumer_groups import ConsumerGroupHandlers
    from ottla.api.groups.find_coordinator import FindCoordinatorHandler
    from ottla.api.groups.share_groups import ShareGroupHandlers
    from ottla.api.groups.streams_groups import StreamsGroupHandlers
    from ottla.api.partitions.delete_records import DeleteRecordsHandler
    from ottla.api.partitions.list_offsets import ListOffsetsHandlers
    from ottla.api.partitions.log_dirs import AlterLogDirsHandler, LogDirsHandler
    from ottla.api.partitions.offset_for_leader_epoch import EpochHandlers
    from ottla.api.produce.schema_checks import SchemaChecks
    from ottla.api.security.delegation_tokens import TokenChanges, TokenDescriptions
    from ottla.api.share.share_fetch import ShareHandlers
    from ottla.api.share.share_offsets import ShareOffsetHandlers
    from ottla.api.share.share_state import ShareStateHandlers
    from ottla.api.surface.unconfigured import SaslHandlers
    from ottla.api.transactions.describe_producers import DescribeProducersHandler
    from ottla.api.transactions.describe_transactions import DescribeTransactionsHandlers
    from ottla.api.transactions.producer_ids import InitProducerIdHandler
    from ottla.api.transactions.transaction_requests import TransactionHandlers
    from ottla.api.transactions.txn_markers import TxnMarkersHandler
    from ottla.api.transactions.txn_offsets import TxnOffsetHandler
    from ottla.node.broker.registry import NodeRegistry


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
    registry: "NodeRegistry | None" = None

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


class BrokerConstructors(Constructors):
    """Constructs what a broker serves; all its listeners share the objects."""

    def __init__(self, broker: BrokerDependencies) -> None:
        self._broker = broker

    def cluster(self) -> ClusterHandlers:
        """Metadata and DescribeCluster."""
        may_create = self._broker.config.auto_create_topics_enable
        return ClusterHandlers(
            self._broker.context.cluster_id,
            self._broker.image,
            lambda: int(self._broker.context.node_id),
            BROKERS,
            self._broker.topic_creation.want if may_create else create_nothing,
            self._broker.access,
            self._broker.fenced_brokers.recent,
        )

    def forwarder(self) -> Forwarder:
        """Every change that a broker forwards to the active controller."""
        timeout_ms, random = (
            self._broker.config.request_timeout_ms,
            self._broker.context.ports.random,
        )
        return Forwarder(self._broker.channel, timeout_ms, random)

    def produce(self) -> ProduceHandler:
        """Produce."""
        return ProduceHandler(
            self._broker.partitions,
            self._broker.image,
            self._broker.context.ports.clock,
            access=self._broker.access.of_produce(),
            verifier=self._broker.coordinators,
            events=self._broker.context.meters.topics,
            worker=ThreadWorker("produce"),
            schemas=_schemas(self._broker),
        )

    def fetch(self) -> FetchHandlers:
        """Fetch, from partitions."""
        config, ports = self._broker.config, self._broker.context.ports
        sources = ReadSources(
            self._broker.partitions,
            self._broker.image,
            config.replica_selector_class == RACK_AWARE,
            may_read=self._broker.access.may(AclOperation.READ, ResourceType.TOPIC),
            may_replicate=self._broker.access.may_on_cluster(AclOperation.CLUSTER_ACTION),
            throttles=self._broker.replica_manager.host.throttles,
            remote=_remote(self._broker),
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
            self._broker.context.meters.topics,
            self._broker.quotas,
        )

    def list_offsets(self) -> "ListOffsetsHandlers":
        """ListOffsets."""
        from ottla.api.partitions.list_offsets import ListOffsetsHandlers

        may_describe = self._broker.access.may(AclOperation.DESCRIBE, ResourceType.TOPIC)
        return ListOffsetsHandlers(self._broker.partitions, may_describe, _remote(self._broker))

    def epochs(self) -> "EpochHandlers":
        """OffsetForLeaderEpoch."""
        from ottla.api.partitions.offset_for_leader_epoch import EpochHandlers

        return EpochHandlers(self._broker.partitions, self._broker.access.may_compare_epochs)

    def delete_records(self) -> "DeleteRecordsHandler":
        """DeleteRecords."""
        from ottla.api.partitions.delete_records import DeleteRecordsHandler

        may_delete = self._broker.access.may(AclOperation.DELETE, ResourceType.TOPIC)
        return DeleteRecordsHandler(self._broker.partitions, may_delete)

    def describe_producers(self) -> "DescribeProducersHandler":
        """DescribeProducers."""
        from ottla.api.transactions.describe_producers import DescribeProducersHandler

        may_read = self._broker.access.may(AclOperation.READ, ResourceType.TOPIC)
        return DescribeProducersHandler(self._broker.partitions, may_read)

    def log_dirs(self) -> "LogDirsHandler":
        """DescribeLogDirs."""
        from ottla.api.partitions.log_dirs import LogDirsHandler

        context = self._broker.context
        return LogDirsHandler(
            log_directories(self._broker.config),
            context.log_directories,
            context.ports.disk,
            self._broker.access.may_on_cluster(AclOperation.DESCRIBE),
            lambda: self._broker.image().metadata_version().is_cordoned_log_dirs_supported(),
        )

    def alter_log_dirs(self) -> "AlterLogDirsHandler":
        """AlterReplicaLogDirs."""
        from ottla.api.partitions.log_dirs import AlterLogDirsHandler

        return AlterLogDirsHandler(self._broker.replica_manager.moves)

    def topic_partitions(self) -> "TopicPartitionsHandlers":
        """DescribeTopicPartitions."""
        from ottla.api.cluster.topic_partitions import TopicPartitionsHandlers

        partitions_max = self._broker.config.max_request_partition_size_limit
        return TopicPartitionsHandlers(self._broker.image, partitions_max, self._broker.access)

    def settings(self) -> "DescribeHandlers":
        """Descriptions of configurations, quotas, ACLs and SCRAM credentials."""
        from ottla.api.cluster.describe_settings import DescribeHandlers

        context = self._broker.context
        return DescribeHandlers(
            context.node_id, self._broker.image, context.loaded.static, self._broker.access
        )

    def config_changes(self) -> "ConfigChangeHandlers":
        """AlterConfigs and IncrementalAlterConfigs, on a broker."""
        from ottla.api.cluster.config_changes import ConfigChangeHandlers

        context = self._broker.context
        return ConfigChangeHandlers(
            context.node_id,
            self._broker.image,
            context.loaded.static,
            self.forwarder(),
            self._broker.listeners,
            access=self._broker.access,
        )

    def quorum(self) -> "QuorumDescriptions":
        """DescribeQuorum, on a broker."""
        from ottla.api.cluster.describe_quorum import QuorumDescriptions

        may_describe = self._broker.access.may_on_cluster(AclOperation.DESCRIBE)
        return QuorumDescriptions(
            self._broker.context.node_id, self.forwarder(), self._broker.quorum, may_describe
        )

    def sasl(self) -> "SaslHandlers":
        """SASL on a listener without it."""
        from ottla.api.surface.unconfigured import SaslHandlers

        return SaslHandlers()

    def token_changes(self) -> "TokenChanges":
        """Changes of delegation tokens, on a broker."""
        from ottla.api.security.delegation_tokens import TokenChanges

        return TokenChanges(self.forwarder(), self._broker.config.request_timeout_ms)

    def token_descriptions(self) -> "TokenDescriptions":
        """DescribeDelegationToken."""
        return token_descriptions(self._broker.context, self._broker.image)

    def telemetry(self) -> "TelemetryHandlers":
        """Metrics of clients (KIP-714)."""
        return self._broker.telemetry.handlers

    def find_coordinator(self) -> "FindCoordinatorHandler":
        """FindCoordinator."""
        from ottla.api.groups.find_coordinator import FindCoordinatorHandler

        return FindCoordinatorHandler(
            self._broker.image,
            self._broker.coordinators.create_topic,
            self._broker.access.of_groups(),
        )

    def classic_groups(self) -> "GroupHandlers":
        """Classic groups, and what is alike for groups of every type."""
        from ottla.api.groups.classic_groups import GroupHandlers

        return GroupHandlers(
            self._broker.coordinator.groups.coordinator, self._broker.access.of_groups()
        )

    def offsets(self) -> "OffsetHandlers":
        """Committed offsets."""
        from ottla.api.groups.committed_offsets import OffsetHandlers

        coordinator = self._broker.coordinator.groups.coordinator
        return OffsetHandlers(
            coordinator, self._broker.image, access=self._broker.access.of_groups()
        )

    def consumer_groups(self) -> "ConsumerGroupHandlers":
        """Consumer groups (KIP-848)."""
        from ottla.api.groups.consumer_groups import ConsumerGroupHandlers

        groups = self._broker.coordinator.groups
        return ConsumerGroupHandlers(
            groups.coordinator,
            groups.consumer_settings,
            self._broker.image,
            access=self._broker.access.of_groups(),
        )

    def streams_groups(self) -> "StreamsGroupHandlers":
        """Streams groups (KIP-1071)."""
        from ottla.api.groups.streams_groups import StreamsGroupHandlers

        groups = self._broker.coordinator.groups
        return StreamsGroupHandlers(
            groups.coordinator,
            groups.streams_settings,
            self._broker.image,
            groups.streams_topics,
            self._broker.access.of_groups(),
            self._broker.access.may_create_topic,
        )

    def init_producer_id(self) -> "InitProducerIdHandler":
        """InitProducerId."""
        from ottla.api.transactions.producer_ids import InitProducerIdHandler

        transactions = self._broker.coordinator.transactions
        return InitProducerIdHandler(
            transactions.ids, transactions.coordinator, self._broker.access.of_transactions()
        )

    def transactions(self) -> "TransactionHandlers":
        """The begin, contents and end of transactions."""
        from ottla.api.transactions.transaction_requests import TransactionHandlers

        services = self._broker.coordinator
        index_of = services.groups.coordinator.runtime.index_of
        return TransactionHandlers(
            services.transactions.coordinator,
            self._broker.image,
            index_of,
            self._broker.access.of_transactions(),
        )

    def describe_transactions(self) -> "DescribeTransactionsHandlers":
        """DescribeTransactions and ListTransactions."""
        from ottla.api.transactions.describe_transactions import DescribeTransactionsHandlers

        coordinator = self._broker.coordinator.transactions.coordinator
        return DescribeTransactionsHandlers(
            coordinator,
            self._broker.context.ports.clock,
            access=self._broker.access.of_transactions(),
        )

    def txn_markers(self) -> "TxnMarkersHandler":
        """WriteTxnMarkers."""
        from ottla.api.transactions.txn_markers import TxnMarkersHandler

        writer = self._broker.coordinator.transactions.writer
        return TxnMarkersHandler(writer, access=self._broker.access.of_transactions())

    def txn_offsets(self) -> "TxnOffsetHandler":
        """TxnOffsetCommit."""
        from ottla.api.transactions.txn_offsets import TxnOffsetHandler

        services = self._broker.coordinator
        return TxnOffsetHandler(
            services.groups.coordinator,
            services.transactions.verification,
            self._broker.partitions,
            self._broker.image,
            access=self._broker.access.of_transactions(),
        )

    def shares(self) -> "ShareHandlers":
        """ShareFetch and ShareAcknowledge."""
        return self._broker.coordinator.shares.handlers

    def share_groups(self) -> "ShareGroupHandlers":
        """Share groups (KIP-932)."""
        return self._broker.coordinator.shares.group_handlers

    def share_state(self) -> "ShareStateHandlers":
        """The state of share partitions, for other brokers."""
        return self._broker.coordinator.shares.state_handlers

    def share_offsets(self) -> "ShareOffsetHandlers":
        """The start offsets of share groups."""
        return self._broker.coordinator.shares.offset_handlers


def _schemas(broker: BrokerDependencies) -> "SchemaChecks | None":
    if broker.registry is None:
        return None
    from ottla.node.broker.schema_validation import schema_checks

    return schema_checks(broker)


def _remote(broker: BrokerDependencies) -> "RemoteReader | None":
    tiering = broker.replica_manager.tiering
    return None if tiering is None else tiering.reads
