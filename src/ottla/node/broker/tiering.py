"""Constructs what a broker with tiered storage has, and connects it to the partitions."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.api.cluster.metadata import INTERNAL_TOPICS
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster
from ottla.config.addresses import SecurityProtocol
from ottla.config.generated import BrokerConfig
from ottla.config.layers import Layers
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.node.broker.tiering_config import TieringSettings, tiering_settings
from ottla.node.context import NodeContext
from ottla.observability.exposition import Family, Kind, Sample, counter, gauge
from ottla.protocol.types import NodeId
from ottla.replication.host import Host
from ottla.runtime.ports import Address
from ottla.runtime.supervisor import Service
from ottla.runtime.worker import ThreadWorker
from ottla.tiering.auxiliary_state import AuxiliaryStates
from ottla.tiering.client_address import client_address
from ottla.tiering.metadata_manager import InMemoryMetadata
from ottla.tiering.metadata_records import TOPIC
from ottla.tiering.metadata_topic import TopicMetadata, TopicPorts
from ottla.tiering.read_cache import BLOCKS_BYTES_MAX, INDEX_BYTES_MAX, ReadCache
from ottla.tiering.remote_log_manager import ManagerPorts, ManagerSettings, RemoteLogManager
from ottla.tiering.remote_reads import RemoteReads, RemoteReadSettings
from ottla.tiering.remote_segment import SegmentReads
from ottla.tiering.segment_store import SegmentStore, StorePorts
from ottla.tiering.store_settings import open_store
from ottla.tiering.upload_process import UploadProcess

CLIENT_ID: Final = "ottla-rlmm-broker-{}"
NOT_TIERED: Final = INTERNAL_TOPICS | {TOPIC}
"""Topics that are never tiered."""


class Tiering(msgspec.Struct, frozen=True):
    """Publisher: tiered storage of one broker. ``services`` are in the order they start."""

    manager: RemoteLogManager
    reads: RemoteReads
    uploads: UploadProcess
    topic: TopicMetadata | None
    history: AuxiliaryStates
    services: tuple[Service, ...]
    name: str = "tiering"

    def on_image(self, delta: Delta, image: Image) -> None:
        """Look at once for topics that were deleted, disabled or moved."""
        if delta.topics or delta.configs:
            self.manager.wake()

    def configure(self, config: BrokerConfig, layers: Layers) -> None:
        """Apply changed settings; follows `DynamicConfig`."""
        self.manager.copy_quota.limit(config.remote_log_manager_copy_max_bytes_per_second)
        self.reads.fetch_quota.limit(config.remote_log_manager_fetch_max_bytes_per_second)
        self.reads.fetch_wait_ms = config.remote_fetch_max_wait_ms
        self.reads.lookup_wait_ms = config.remote_list_offsets_request_timeout_ms
        self.manager.resize(config.remote_log_manager_copier_thread_pool_size)
        self.reads.resize(config.remote_log_reader_threads)
        self.reads.limit_indexes(config.remote_log_index_file_cache_total_size_bytes)

    def collect(self) -> Iterable[Family]:
        """Yield what was copied, read and deleted, and the state of the metadata topic."""
        counts, reads, topic = self.manager.counts, self.reads, self.topic
        name = "kafka_server_brokertopicmetrics_remote"
        yield counter(f"{name}copybytes_total", "Bytes copied.", counts.copied_bytes)
        yield counter(f"{name}copyerrors_total", "Failed copies.", counts.copy_failures)
        yield counter(f"{name}fetchbytes_total", "Bytes read.", reads.fetched_bytes)
        yield counter(f"{name}fetchrequests_total", "Reads.", reads.fetches)
        yield counter(f"{name}fetcherrors_total", "Failed reads.", reads.failures)
        yield counter(f"{name}deleteerrors_total", "Failed deletions.", counts.delete_failures)
        yield _damaged_objects(reads)
        own = "ottla_tiered_storage_segments_"
        yield counter(f"{own}copied_total", "Segments copied.", counts.copied_segments)
        yield counter(f"{own}deleted_total", "Segments deleted.", counts.deleted_segments)
        behind = "Partitions whose copies fall behind; copies then compete for the CPU."
        yield gauge("ottla_tiered_storage_partitions_behind", behind, counts.partitions_behind)
        starts = "Starts of the process that copies."
        yield counter(
            "ottla_tiered_storage_upload_process_starts_total", starts, self.uploads.starts
        )
        is_active = topic is not None and topic.is_active
        active = "1 while metadata is kept on its topic; 0 before that, or in memory."
        yield gauge("tiered_storage_rlmm_topic_backed", active, int(is_active))
        attempts = 0 if topic is None else topic.attempts
        tries = "Attempts to begin with the metadata topic."
        yield counter("tiered_storage_rlmm_bootstrap_attempts", tries, attempts)


def _damaged_objects(reads: RemoteReads) -> Family:
    """Return a gauge of the objects that could not be read lately, a bounded number."""
    samples = [
        Sample(
            (
                ("topic", each.metadata.topic),
                ("partition", str(each.metadata.partition.partition)),
                ("object", each.key),
            ),
            1,
        )
        for each in reads.damaged
    ]
    text = "1 for each object that a fetch found missing or changed in the last ten minutes."
    return Family("ottla_tiered_storage_damaged_objects", Kind.GAUGE, text, samples)


def build_tiering(context: NodeContext, host: Host, image: Callable[[], Image]) -> Tiering | None:
    """Construct it; None if ``remote.log.storage.system.enable`` is off.

    Raises:
        ConfigError: its settings are wrong. ImportError: the extra ``objects`` is not installed.
    """
    config = context.loaded.broker
    directory = context.log_directories[0].path
    settings = tiering_settings(config, context.loaded.static, directory)
    if settings is None:
        return None
    ports = context.ports
    worker = ThreadWorker("tier")
    uploads = UploadProcess(settings.store)
    objects = StorePorts(open_store(settings.store), ports.disk, worker, ports.random, uploads)
    store = SegmentStore(objects, settings.store.prefix)
    topic = _topic_metadata(context, host, settings, worker)
    metadata = topic or InMemoryMetadata()
    manager_ports = ManagerPorts(
        host.clock,
        ports.random,
        lambda: host.partitions,
        image,
        NOT_TIERED.__contains__,
        uploads.hurry,
    )
    manager = RemoteLogManager(_manager_settings(config), manager_ports, store, metadata)
    cached = SegmentReads(
        store, ReadCache(BLOCKS_BYTES_MAX), ReadCache(INDEX_BYTES_MAX), ThreadWorker("tier-read")
    )
    read_settings = RemoteReadSettings(
        config.remote_log_reader_threads, config.remote_log_reader_max_pending_tasks
    )
    reads = RemoteReads(metadata, cached, ports.clock, read_settings)
    first: tuple[Service, ...] = () if topic is None else (topic,)
    history = AuxiliaryStates(metadata, store)
    services = (*first, reads, uploads, manager)
    tiering = Tiering(manager, reads, uploads, topic, history, services)
    context.dynamic.follow(tiering.configure)
    return tiering


def _manager_settings(config: BrokerConfig) -> ManagerSettings:
    return ManagerSettings(
        NodeId(config.node_id),
        config.remote_log_manager_task_interval_ms,
        config.remote_log_manager_copier_thread_pool_size,
        config.remote_log_manager_task_retry_backoff_ms,
        config.remote_log_manager_task_retry_backoff_max_ms,
        config.remote_log_manager_task_retry_jitter,
        config.remote_log_metadata_custom_metadata_max_bytes,
    )


def _topic_metadata(
    context: NodeContext, host: Host, settings: TieringSettings, worker: ThreadWorker
) -> TopicMetadata | None:
    if settings.topic is None:
        return None

    def leads(index: int) -> bool:
        partition = host.partitions.get(TOPIC, index)
        return partition is not None and partition.is_leader

    async def connect() -> Cluster:
        ports = context.ports
        return await Cluster.open(
            ClientPorts(ports.network, ports.clock, ports.random),
            [_address(context, settings.bootstrap)],
            ClientOptions(
                client_id=CLIENT_ID.format(context.node_id),
                connection=context.security.peer_options(_listener(context)),
            ),
        )

    return TopicMetadata(settings.topic, TopicPorts(connect, context.ports.disk, worker, leads))


def _listener(context: NodeContext) -> str:
    name = context.loaded.broker.remote_log_metadata_manager_listener_name
    own = context.loaded.listeners.inter_broker
    assert own is not None, "a broker has a listener for brokers"
    return (name or own).upper()


def _address(context: NodeContext, explicit: Address | None) -> Address:
    listener = context.loaded.listeners.named(_listener(context))
    port = context.bound.port(listener)
    given = listener.advertised
    advertised = None if given is None else Address(given.host, given.port or port)
    bound = Address(listener.bind.host, port)
    is_secured = listener.protocol is not SecurityProtocol.PLAINTEXT
    return client_address(explicit, advertised, bound, is_secured=is_secured)
