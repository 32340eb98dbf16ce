"""The group coordinator of a broker: constructs its runtime, rules and settings."""

import msgspec

from ottla.api.cluster.envelope import Forwarder
from ottla.api.groups.streams_topics import StreamsTopicCreation
from ottla.config.generated import BrokerConfig
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.kind import ConsumerKind
from ottla.coordinators.groups.consumer.settings import (
    ConsumerSettings,
    MigrationPolicy,
    assignor_names,
)
from ottla.coordinators.groups.group_configs import Bounds
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.recent_events import RecentEvents
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.kind import ShareKind
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.kind import StreamsKind
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.coordinators.partition_log import log_opener
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.coordinators.topics import CONSUMER_OFFSETS
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.publishing import Publisher
from ottla.node.broker.coordinators import CoordinatorDependencies
from ottla.node.broker.leaderships import follow_leaderships
from ottla.node.broker.share_services import share_settings
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.records.batch import Compression
from ottla.runtime.ports import Clock
from ottla.runtime.supervisor import Service


class GroupServices(msgspec.Struct, frozen=True):
    """The group coordinator and what belongs to it; ``services`` are in the order they start."""

    coordinator: GroupCoordinator
    consumer_settings: ConsumerSettings
    streams_settings: StreamsSettings
    streams_topics: StreamsTopicCreation
    services: tuple[Service, ...]
    publishers: tuple[Publisher, ...]


def build_group_services(dependencies: CoordinatorDependencies) -> GroupServices:
    """Construct the group coordinator; it loads each partition of its topic once it is led."""
    context, watch = dependencies.context, dependencies.watch
    config, ports = context.loaded.broker, context.ports
    partitions = dependencies.replica_manager.partitions
    settings = group_settings(config)

    def partition_count() -> int:
        topic = watch.image.topics.named(CONSUMER_OFFSETS)
        return config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    runtime = CoordinatorRuntime[GroupMachine](
        RuntimeParts(
            "group-coordinator",
            CONSUMER_OFFSETS,
            log_opener(partitions, CONSUMER_OFFSETS),
            lambda index: group_machine(config, settings, watch, ports.clock),
            shard_settings(config, ports.clock),
            partition_count,
        )
    )
    follow_leaderships(partitions, runtime)

    coordinator = GroupCoordinator(runtime, settings, ports.random)
    forwarder = Forwarder(dependencies.channel, config.request_timeout_ms, ports.random)
    topics = StreamsTopicCreation(forwarder, ports.clock, config.request_timeout_ms)
    return GroupServices(
        coordinator,
        consumer_settings(config),
        streams_settings(config),
        topics,
        (runtime, topics),
        (coordinator,),
    )


def group_machine(
    config: BrokerConfig, settings: GroupSettings, watch: ImageWatch, clock: Clock
) -> GroupMachine:
    """Return the state machine of a shard, with all kinds of groups; ``clock`` stamps recent
    events.
    """
    consumers = ConsumerKind(ConsumerContext(consumer_settings(config), lambda: watch.image))
    shares = ShareKind(ShareContext(share_settings(config), lambda: watch.image))
    streams = StreamsKind(StreamsContext(streams_settings(config), lambda: watch.image))
    kinds = (consumers, shares, streams)
    return GroupMachine(
        settings, kinds=kinds, classic_members=consumers, notes=RecentEvents(clock.now)
    )


def shard_settings(config: BrokerConfig, clock: Clock) -> ShardSettings:
    """Return the settings by which shards of groups write."""
    return ShardSettings(
        clock,
        decode_group_record,
        write_timeout_ms=config.offsets_commit_timeout_ms,
        compression=Compression(config.offsets_topic_compression_codec),
        linger_ms=config.group_coordinator_append_linger_ms,
    )


def streams_settings(config: BrokerConfig) -> StreamsSettings:
    """Return the settings of streams groups."""
    return StreamsSettings(
        session_timeout_ms=config.group_streams_session_timeout_ms,
        heartbeat_interval_ms=config.group_streams_heartbeat_interval_ms,
        max_size=config.group_streams_max_size,
        num_standby_replicas=config.group_streams_num_standby_replicas,
        initial_rebalance_delay_ms=config.group_streams_initial_rebalance_delay_ms,
        is_served="streams" in config.group_coordinator_rebalance_protocols,
        session_bounds=Bounds(
            config.group_streams_min_session_timeout_ms, config.group_streams_max_session_timeout_ms
        ),
        heartbeat_bounds=Bounds(
            config.group_streams_min_heartbeat_interval_ms,
            config.group_streams_max_heartbeat_interval_ms,
        ),
        standby_bounds=Bounds(0, config.group_streams_max_standby_replicas),
    )


def consumer_settings(config: BrokerConfig) -> ConsumerSettings:
    """Return the settings of consumer groups."""
    return ConsumerSettings(
        assignors=assignor_names(config.group_consumer_assignors),
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        max_size=config.group_consumer_max_size,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        is_served="consumer" in config.group_coordinator_rebalance_protocols,
        session_bounds=Bounds(
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        heartbeat_bounds=Bounds(
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
    )


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Return the settings of all kinds of groups."""
    return GroupSettings(
        max_size=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
