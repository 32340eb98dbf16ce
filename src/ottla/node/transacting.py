"""The transaction coordinator of a broker and what goes with it, put together."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.api.producer_ids import ProducerIds
from ottla.api.txn_verification import Verification, VerificationSettings
from ottla.coordinators.broker_links import BrokerLinks
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.partition_log import log_opener
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.coordinators.topics import TRANSACTION_STATE
from ottla.coordinators.transactions.machine import TransactionMachine
from ottla.coordinators.transactions.marker_sender import MarkerSender
from ottla.coordinators.transactions.marker_writer import Ending, MarkerWriter, Written
from ottla.coordinators.transactions.markers import GONE, Markers
from ottla.coordinators.transactions.service import TransactionCoordinator
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.stale_end_txn import StaleEndTxnDetector
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.broker_dial import broker_dial
from ottla.node.controller_channel import ControllerChannel
from ottla.node.hosting import Hosting
from ottla.node.leaderships import follow_leaderships
from ottla.protocol.faults import Fault
from ottla.protocol.internal.transaction_records import decode_transaction_record
from ottla.protocol.types import TopicPartition
from ottla.runtime.supervisor import Service

if TYPE_CHECKING:
    from ottla.node.build import NodeContext

CLIENT_ID: Final = "broker-{}-txn"


class Transacting(msgspec.Struct, frozen=True):
    """What `build_transacting` made. ``services`` start when the partitions are there."""

    ids: ProducerIds
    coordinator: TransactionCoordinator
    verification: Verification
    writer: MarkerWriter
    links: BrokerLinks
    services: tuple[Service, ...]


class Waker:
    """A future that wakes a service. A shard that is given up has nothing to wake it for."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None

    def answer(self, reply: object) -> None:
        """Wake."""
        self.wake()

    def fail(self, fault: Fault) -> None:
        """Do nothing: what is not committed yet is looked for again in a while."""


def build_transacting(
    context: "NodeContext",
    watch: ImageWatch,
    channel: ControllerChannel,
    hosting: Hosting,
    groups: GroupCoordinator,
) -> Transacting:
    """Put it together; nothing is loaded before a partition is led here."""
    config, partitions = context.loaded.broker, hosting.partitions
    ids = ProducerIds(channel, context.node_id, lambda: hosting.host.broker_epoch)
    waker = Waker()
    runtime = _runtime(context, watch, hosting, waker)
    follow_leaderships(partitions, runtime)

    coordinator = TransactionCoordinator(runtime, ids)
    dial = broker_dial(context, lambda: watch.image, CLIENT_ID.format(context.node_id))
    links = BrokerLinks(dial, config.request_timeout_ms)

    def end_group_transaction(index: int, ending: Ending) -> Written:
        done = groups.runtime.end_transaction(index, ending.producer, ending.marker, ending.version)
        return done if isinstance(done, asyncio.Future) else None

    writer = MarkerWriter(
        partitions, context.ports.clock, end_group_transaction, config.request_timeout_ms
    )
    markers = Markers(runtime, _leader_of(watch), MarkerSender(int(context.node_id), writer, links))
    waker.wake = markers.wake
    verification = Verification(
        _verification_settings(context), coordinator, links, partitions, lambda: watch.image
    )
    return Transacting(ids, coordinator, verification, writer, links, (links, markers, runtime))


def _runtime(
    context: "NodeContext", watch: ImageWatch, hosting: Hosting, waker: Waker
) -> CoordinatorRuntime[TransactionMachine]:
    config = context.loaded.broker

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
            log_opener(hosting.partitions, TRANSACTION_STATE),
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


def _verification_settings(context: "NodeContext") -> VerificationSettings:
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
