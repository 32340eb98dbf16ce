"""The constructors of the handlers of a listener, one per handler class.

A row of `ottla.api.surface.table` names one of them, and the method that serves its API. What the
listeners of brokers and of controllers override is in `ottla.node.broker.broker_handlers` and
`ottla.node.controller.controller_handlers`; each override imports its class when it is called, so a
node loads at start only what its first clients need.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.api.cluster.config_changes import ConfigChangeHandlers, ControllerConfigChanges
    from ottla.api.cluster.controller_handlers import ControllerHandlers
    from ottla.api.cluster.describe_quorum import QuorumDescriptions
    from ottla.api.cluster.describe_settings import DescribeHandlers
    from ottla.api.cluster.envelope import EnvelopeHandler, Forwarder
    from ottla.api.cluster.metadata import ClusterHandlers
    from ottla.api.cluster.quorum_requests import RaftHandlers
    from ottla.api.cluster.telemetry import TelemetryHandlers
    from ottla.api.cluster.topic_partitions import TopicPartitionsHandlers
    from ottla.api.fetch.handler import FetchHandlers
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
    from ottla.api.produce.handler import ProduceHandler
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


class ApiVersionsHandler(Protocol):
    """Answers ApiVersions from the routes of its dispatcher; `ottla.server.api_versions` is it."""

    # It answers requests of a version that the codec does not know, too.
    def handle(self, caller: Any, request: Any, version: int) -> Any:  # noqa: ANN401
        """Return the reply."""
        ...


class NotServed(Exception):
    """The listener has no handler of this class."""


class Constructors:
    """A listener that serves nothing; a kind of listener overrides what it serves."""

    def cluster(self) -> "ClusterHandlers":
        """Metadata and DescribeCluster."""
        raise NotServed

    def forwarder(self) -> "Forwarder":
        """Every change that a broker forwards to the active controller."""
        raise NotServed

    def produce(self) -> "ProduceHandler":
        """Produce."""
        raise NotServed

    def fetch(self) -> "FetchHandlers":
        """Fetch, from partitions."""
        raise NotServed

    def list_offsets(self) -> "ListOffsetsHandlers":
        """ListOffsets."""
        raise NotServed

    def epochs(self) -> "EpochHandlers":
        """OffsetForLeaderEpoch."""
        raise NotServed

    def delete_records(self) -> "DeleteRecordsHandler":
        """DeleteRecords."""
        raise NotServed

    def describe_producers(self) -> "DescribeProducersHandler":
        """DescribeProducers."""
        raise NotServed

    def log_dirs(self) -> "LogDirsHandler":
        """DescribeLogDirs."""
        raise NotServed

    def alter_log_dirs(self) -> "AlterLogDirsHandler":
        """AlterReplicaLogDirs."""
        raise NotServed

    def topic_partitions(self) -> "TopicPartitionsHandlers":
        """DescribeTopicPartitions."""
        raise NotServed

    def settings(self) -> "DescribeHandlers":
        """Descriptions of configurations, quotas, ACLs and SCRAM credentials."""
        raise NotServed

    def config_changes(self) -> "ConfigChangeHandlers":
        """AlterConfigs and IncrementalAlterConfigs, on a broker."""
        raise NotServed

    def controller_config_changes(self) -> "ControllerConfigChanges":
        """IncrementalAlterConfigs, on a controller."""
        raise NotServed

    def quorum(self) -> "QuorumDescriptions":
        """DescribeQuorum, on a broker."""
        raise NotServed

    def sasl(self) -> "SaslHandlers":
        """SASL on a listener without it."""
        raise NotServed

    def token_changes(self) -> "TokenChanges":
        """Changes of delegation tokens, on a broker."""
        raise NotServed

    def token_descriptions(self) -> "TokenDescriptions":
        """DescribeDelegationToken."""
        raise NotServed

    def telemetry(self) -> "TelemetryHandlers":
        """Metrics of clients (KIP-714)."""
        raise NotServed

    def find_coordinator(self) -> "FindCoordinatorHandler":
        """FindCoordinator."""
        raise NotServed

    def classic_groups(self) -> "GroupHandlers":
        """Classic groups, and what is alike for groups of every type."""
        raise NotServed

    def offsets(self) -> "OffsetHandlers":
        """Committed offsets."""
        raise NotServed

    def consumer_groups(self) -> "ConsumerGroupHandlers":
        """Consumer groups (KIP-848)."""
        raise NotServed

    def streams_groups(self) -> "StreamsGroupHandlers":
        """Streams groups (KIP-1071)."""
        raise NotServed

    def init_producer_id(self) -> "InitProducerIdHandler":
        """InitProducerId."""
        raise NotServed

    def transactions(self) -> "TransactionHandlers":
        """The begin, contents and end of transactions."""
        raise NotServed

    def describe_transactions(self) -> "DescribeTransactionsHandlers":
        """DescribeTransactions and ListTransactions."""
        raise NotServed

    def txn_markers(self) -> "TxnMarkersHandler":
        """WriteTxnMarkers."""
        raise NotServed

    def txn_offsets(self) -> "TxnOffsetHandler":
        """TxnOffsetCommit."""
        raise NotServed

    def shares(self) -> "ShareHandlers":
        """ShareFetch and ShareAcknowledge."""
        raise NotServed

    def share_groups(self) -> "ShareGroupHandlers":
        """Share groups (KIP-932)."""
        raise NotServed

    def share_state(self) -> "ShareStateHandlers":
        """The state of share partitions, for other brokers."""
        raise NotServed

    def share_offsets(self) -> "ShareOffsetHandlers":
        """The start offsets of share groups."""
        raise NotServed

    def controller(self) -> "ControllerHandlers":
        """The decisions of the active controller."""
        raise NotServed

    def raft(self) -> "RaftHandlers":
        """Requests between voters, and changes of them."""
        raise NotServed

    def envelope(self) -> "EnvelopeHandler":
        """Envelope: requests that brokers forward."""
        raise NotServed

    def api_versions(self) -> ApiVersionsHandler:
        """ApiVersions, which every dispatcher answers itself: it is never bound."""
        raise NotServed


def served_by(listener: Constructors) -> Mapping[str, Callable[[], object]]:
    """Return the constructors that a kind of listener overrides, by name."""
    overridden = {
        name
        for name, function in vars(Constructors).items()
        if not name.startswith("_") and getattr(type(listener), name) is not function
    }
    return {name: getattr(listener, name) for name in sorted(overridden)}
