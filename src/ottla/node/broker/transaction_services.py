"""The transaction coordinator of a broker, and the sender and writer of its markers."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.transactions.producer_ids import ProducerIds
from ottla.api.transactions.txn_verification import Verification, VerificationSettings
from ottla.coordinators.broker_links import BrokerLinks
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.partition_log import log_opener
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.coordinators.topics import TRANSACTION_STATE
from ottla.coordinators.transactions.machine import TransactionMachine
from ottla.coordinators.transactions.marker_sender import MarkerSender
from ottla.coordinators.transactions.marker_writer import Ending, MarkerWriter
from ottla.coordinators.transactions.markers import GONE, Markers
from ottla.coordinators.transactions.service import TransactionCoordinator
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.stale_end_txn import StaleEndTxnDetector
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.broker.broker_dial import broker_dial
from ottla.node.broker.coordinators import CoordinatorDependencies
from ottla.node.broker.leaderships import follow_leaderships
from ottla.node.context import NodeContext
from ottla.protocol.faults import Fault
from ottla.protocol.internal.transaction_records import decode_transaction_record
from ottla.protocol.types import TopicPartition
from ottla.runtime.pending import Pending
from ottla.runtime.supervisor import Service

CLIENT_ID: Final = "broker-{}-txn"


class TransactionServices(msgspec.Struct, frozen=True):
    """The transaction coordinator and what belongs to it; ``services`` in the order they start."""

    ids: ProducerIds
    coordinator: TransactionCoordinator
    verification: Verification
    writer: MarkerWriter
    links: BrokerLinks
    services: tuple[Service, ...]


class MarkersWaker(msgspec.Struct, frozen=True):
    """A future that wakes the sender of markers once an end of a transaction is committed."""

    wake: asyncio.Event

    def answer(self, reply: object) -> None:
        """Wake the sender."""
        self.wake.set()

    def fail(self, fault: Fault) -> None:
        """Do nothing: the shard was given up, and the sender looks for its work by itself."""


def build_transaction_services(
    dependencies: CoordinatorDependencies, groups: GroupCoordinator
) -> TransactionServices:
    """Construct the transaction coordinator; it loads a partition of its topic once it is led."""
    context, watch = dependencies.context, dependencies.watch
    config, host = context.loaded.broker, dependencies.replica_manager.host
    partitions = dependencies.replica_manager.partitions
    ids = ProducerIds(dependencies.channel, context.node_id, lambda: host.broker_epoch)
    wake_markers = asyncio.Event()
    runtime = _runtime(dependencies, MarkersWaker(wake_markers))
    follow_leaderships(partitions, runtime)

    coordinator = TransactionCoordinator(runtime, ids)
    dial = broker_dial(context, dependencies.image, CLIENT_ID.format(context.node_id))
    links = BrokerLinks(dial, config.request_timeout_ms)

    def end_group_transaction(index: int, ending: Ending) -> Pending[None]:
        return groups.runtime.end_transaction(index, ending.producer, ending.marker, ending.version)

    writer = MarkerWriter(
        partitions, context.ports.clock, end_group_transaction, config.request_timeout_ms
    )
    sender = MarkerSender(int(context.node_id), writer, links)
    markers = Markers(runtime, _leader_of(watch), sender, wake_markers)
    verification = Verification(
        _verification_settings(context), coordinator, links, partitions, dependencies.image
    )
    return TransactionServices(
        ids, coordinator, verification, writer, links, (links, markers, runtime)
    )


def _runtime(
    dependencies: CoordinatorDependencies, waker: MarkersWaker
) -> CoordinatorRuntime[TransactionMachine]:
    context, watch = dependencies.context, dependencies.watch
    config, partitions = context.loaded.broker, dependencies.replica_manager.partitions

    def partition_count() -> int:
        topic = watch.image.topics.named(TRANSACTION_STATE)
        return (
            config.transaction_state_log_num_partitions if topic is None else len(topic.partitions)
        )

    def server_version() -> int:
        return finalized_version(watch.image)

    settings = TransactionSettings(
        timeout_ms_max=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expire_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        server_version=server_version,
    )
    stale_end_txn = StaleEndTxnDetector()
    return CoordinatorRuntime(
        RuntimeParts(
            "transaction-coordinator",
            TRANSACTION_STATE,
            log_opener(partitions, TRANSACTION_STATE),
            lambda index: TransactionMachine(settings, waker, stale_end_txn),
            ShardSettings(
                context.ports.clock,
                decode_transaction_record,
                write_timeout_ms=config.request_timeout_ms,
            ),
            partition_count,
        )
    )


def finalized_version(image: Image) -> int:
    """Return the cluster's ``transaction.version``."""
    return image.features.level(TRANSACTION_VERSION)


def _verification_settings(context: NodeContext) -> VerificationSettings:
    config, dynamic = context.loaded.broker, context.dynamic
    return VerificationSettings(
        config.node_id,
        lambda: dynamic.current.transaction_partition_verification_enable,
        config.add_partitions_to_txn_retry_backoff_ms,
        config.add_partitions_to_txn_retry_backoff_max_ms,
    )


def _leader_of(watch: ImageWatch) -> Callable[[TopicPartition], int]:
    def leader_of(place: TopicPartition) -> int:
        topic = watch.image.topics.named(place.topic)
        found = None if topic is None else topic.partitions.get(place.partition)
        return GONE if found is None else found.leader

    return leader_of
