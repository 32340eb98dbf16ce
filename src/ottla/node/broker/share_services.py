"""The share groups of a broker: their coordinator, its state, and the share partitions led here."""

from collections.abc import Callable, Iterable

import msgspec

from ottla.api.groups.share_groups import ShareGroupHandlers
from ottla.api.share.share_fetch import ShareHandlers, ShareSources
from ottla.api.share.share_offsets import ShareOffsetHandlers
from ottla.api.share.share_state import ShareStateHandlers
from ottla.config.generated import BrokerConfig
from ottla.coordinators.broker_links import BrokerLinks
from ottla.coordinators.groups.group_configs import Bounds, number_of_group, of_group
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.share.service import ShareGroups
from ottla.coordinators.groups.share.settings import ShareSettings
from ottla.coordinators.partition_log import log_opener
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.coordinators.share_state.machine import ShareStateMachine, ShareStateSettings
from ottla.coordinators.share_state.persister import SharePersister
from ottla.coordinators.share_state.pruning import ShareStatePruning
from ottla.coordinators.share_state.rules import StateWrite
from ottla.coordinators.share_state.service import ShareCoordinator
from ottla.coordinators.share_state.state import Run
from ottla.coordinators.share_state.state import ShareKey as StateKey
from ottla.coordinators.topics import SHARE_GROUP_STATE
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.publishing import Publisher
from ottla.node.broker.coordinators import CoordinatorDependencies
from ottla.node.broker.dead_letter_metrics import DeadLetterCounts
from ottla.node.broker.dead_letter_terms import DeadLetterTerms
from ottla.node.broker.dead_letters import DeadLetterWriter
from ottla.node.broker.leaderships import follow_leaderships
from ottla.node.broker.partition_ends import LeaderHighWatermarks
from ottla.observability.exposition import Family
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.share_state_records import decode_share_state_record
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import Offset, TopicPartition, Uuid
from ottla.runtime.supervisor import Service
from ottla.sharing.acquisition import Limits, StateBatch, Write
from ottla.sharing.ports import Persisted, ShareDependencies, ShareGroupConfig, ShareKey
from ottla.sharing.service import SharePartitions
from ottla.sharing.sessions import Sessions

NO_LEADER = -1


class ShareServices(msgspec.Struct, frozen=True):
    """Share groups and their coordinator; ``services`` are in the order they start."""

    handlers: ShareHandlers
    group_handlers: ShareGroupHandlers
    state_handlers: ShareStateHandlers
    offset_handlers: ShareOffsetHandlers
    shares: ShareGroups
    ends: LeaderHighWatermarks
    services: tuple[Service, ...]
    publishers: tuple[Publisher, ...]
    dead_letters: DeadLetterCounts
    led: SharePartitions

    def collect(self) -> Iterable[Family | None]:
        """Yield the metrics of dead letters."""
        return self.dead_letters.families(self.led.windows())


def build_share_services(
    dependencies: CoordinatorDependencies, groups: GroupCoordinator, links: BrokerLinks
) -> ShareServices:
    """Construct the share coordinator and its handlers; partitions are loaded once they are led."""
    context, watch = dependencies.context, dependencies.watch
    config, clock = context.loaded.broker, context.ports.clock
    partitions = dependencies.replica_manager.partitions
    tiering = dependencies.replica_manager.tiering
    coordinator = _coordinator(dependencies)
    persister = SharePersister(
        int(context.node_id), coordinator, links, _leader_of(watch), dependencies.create_topic
    )
    letters = DeadLetterWriter(dependencies.image, links, config)
    led = SharePartitions(
        ShareDependencies(
            partitions,
            CoordinatorStateStore(persister),
            clock,
            _terms_of(config, watch),
            Limits(
                config.group_share_delivery_count_limit,
                config.group_share_partition_max_record_locks,
            ),
            letters,
            None if tiering is None else tiering.reads,
        )
    )
    partitions.on_unled(led.on_unled)
    sessions = Sessions(
        config.group_share_max_share_sessions, config.group_share_max_session_timeout_ms
    )
    access = context.access.of_groups()
    shares = ShareGroups(groups, persister, dependencies.image)
    handlers = ShareHandlers(
        ShareSources(
            led, sessions, clock, dependencies.image, config.fetch_max_bytes, access=access
        )
    )
    ends = LeaderHighWatermarks(int(context.node_id), partitions, links)
    context.close_hooks.add(handlers.on_connection_closed)
    groups.before_delete.append(shares.delete_state)
    return ShareServices(
        handlers,
        ShareGroupHandlers(shares, access=access),
        ShareStateHandlers(coordinator, access=access),
        ShareOffsetHandlers(
            shares,
            ends,
            dependencies.image,
            access=access,
        ),
        shares,
        ends,
        (coordinator.runtime, led, _pruning(dependencies, coordinator)),
        (coordinator,),
        letters.counts,
        led,
    )


def share_settings(config: BrokerConfig) -> ShareSettings:
    """Return what the rules of share groups need of a broker's settings."""
    return ShareSettings(
        session_timeout_ms=config.group_share_session_timeout_ms,
        heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
        max_size=config.group_share_max_size,
        record_lock_duration_ms=config.group_share_record_lock_duration_ms,
        session_bounds=Bounds(
            config.group_share_min_session_timeout_ms, config.group_share_max_session_timeout_ms
        ),
        heartbeat_bounds=Bounds(
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        ),
        lock_bounds=Bounds(
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
    )


def _coordinator(dependencies: CoordinatorDependencies) -> ShareCoordinator:
    context, watch = dependencies.context, dependencies.watch
    config, partitions = context.loaded.broker, dependencies.replica_manager.partitions

    def is_known(topic_id: Uuid, index: int) -> bool:
        topic = watch.image.topics.by_id.get(topic_id)
        return topic is not None and index in topic.partitions

    settings = ShareStateSettings(
        is_known,
        config.share_coordinator_snapshot_update_records_per_snapshot,
        config.share_coordinator_cold_partition_snapshot_interval_ms,
    )

    def partition_count() -> int:
        topic = watch.image.topics.named(SHARE_GROUP_STATE)
        if topic is None:
            return config.share_coordinator_state_topic_num_partitions
        return len(topic.partitions)

    runtime = CoordinatorRuntime[ShareStateMachine](
        RuntimeParts(
            "share-coordinator",
            SHARE_GROUP_STATE,
            log_opener(partitions, SHARE_GROUP_STATE),
            lambda index: ShareStateMachine(settings),
            ShardSettings(
                context.ports.clock,
                decode_share_state_record,
                write_timeout_ms=config.share_coordinator_write_timeout_ms,
                compression=Compression(config.share_coordinator_state_topic_compression_codec),
            ),
            partition_count,
        )
    )
    follow_leaderships(partitions, runtime)

    return ShareCoordinator(runtime)


def _pruning(
    dependencies: CoordinatorDependencies, coordinator: ShareCoordinator
) -> ShareStatePruning:
    partitions = dependencies.replica_manager.partitions

    def delete_below(index: int, offset: Offset) -> bool:
        partition = partitions.find(SHARE_GROUP_STATE, index)
        before = partition.log.log_start_offset
        partition.delete_records(offset)
        return partition.log.log_start_offset > before

    interval_ms = dependencies.context.loaded.broker.share_coordinator_state_topic_prune_interval_ms
    return ShareStatePruning(coordinator.runtime, delete_below, interval_ms)


def _leader_of(watch: ImageWatch) -> Callable[[TopicPartition], int]:
    def leader_of(place: TopicPartition) -> int:
        topic = watch.image.topics.named(place.topic)
        found = None if topic is None else topic.partitions.get(place.partition)
        return NO_LEADER if found is None else found.leader

    return leader_of


def _terms_of(config: BrokerConfig, watch: ImageWatch) -> Callable[[str], ShareGroupConfig]:
    settings, dead_letters = share_settings(config), DeadLetterTerms()

    def terms_of(group_id: str) -> ShareGroupConfig:
        image, default_ms = watch.image, settings.record_lock_duration_ms
        key = "share.record.lock.duration.ms"
        return ShareGroupConfig(
            number_of_group(image, group_id, key, default_ms, settings.lock_bounds),
            of_group(image, group_id, "share.isolation.level", "") == "read_committed",
            of_group(image, group_id, "share.auto.offset.reset", "latest"),
            dead_letters.of(image, group_id),
        )

    return terms_of


class CoordinatorStateStore(msgspec.Struct, frozen=True):
    """The share coordinator as the store of share-partition state."""

    persister: SharePersister

    async def read(self, key: ShareKey, leader_epoch: int) -> Persisted:
        """Return the state, and fence leaders of older epochs."""
        found = await self.persister.read(StateKey(key.group_id, *key.place), leader_epoch)
        state = found.state
        batches = tuple(
            StateBatch(Offset(run.first), Offset(run.last), run.state, run.deliveries)
            for run in state.runs
        )
        return Persisted(found.code, state.state_epoch, state.start_offset, batches)

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, write: Write
    ) -> ErrorCode:
        """Write what changed."""
        runs = tuple(Run(*batch) for batch in write.batches)
        wanted = StateWrite(state_epoch, leader_epoch, write.start, write.finished_count, runs)
        return await self.persister.write(StateKey(key.group_id, *key.place), wanted)
