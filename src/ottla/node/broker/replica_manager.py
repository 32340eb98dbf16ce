"""The partitions of a broker: their logs, their replication and their maintenance."""

from collections.abc import Callable
from os.path import realpath
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.config.layers import Layers
from ottla.node.broker.broker_dial import broker_dial
from ottla.node.broker.broker_lifecycle import BrokerLifecycle
from ottla.node.context import NodeContext
from ottla.node.controller.controller_channel import ControllerChannel
from ottla.node.directories.node_directories import log_directories
from ottla.node.metrics.gauges import ScrubCounts
from ottla.protocol.types import NO_LEADER, TopicPartition
from ottla.replication.fetching.fetch_rounds import FetchSettings
from ottla.replication.fetching.fetcher_loop import Fetchers
from ottla.replication.host import Host, HostPorts, HostSettings
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.isr_loop import IsrChanges, shrink_isr
from ottla.replication.maintenance.cleaner_loop import LogCleanerService
from ottla.replication.maintenance.directory_reports import DirectoryReports
from ottla.replication.maintenance.disk_usage import DiskUsage
from ottla.replication.maintenance.log_dir_moves import LogDirMoves, MoveSettings
from ottla.replication.maintenance.maintenance_loop import (
    LogMaintenance,
    PeriodicTask,
    maintenance_tasks,
)
from ottla.replication.repair.repair_loop import ReplicaRepair
from ottla.replication.repair.scrub_loop import LogScrubber, ScrubSettings
from ottla.replication.replicas import Replicas
from ottla.runtime.ports import Committer
from ottla.runtime.supervisor import Service

if TYPE_CHECKING:
    from ottla.node.broker.tiering import Tiering

FETCHER_ID: Final = "broker-{}-fetcher"


class ReplicaManager(msgspec.Struct, frozen=True):
    """Everything that hosts and replicates partitions; ``services`` are in the order they start."""

    host: Host
    replicas: Replicas
    moves: LogDirMoves
    isr: IsrChanges
    disk_scan: DiskUsage
    fetchers: Fetchers
    cleaning: LogCleanerService | None
    """Compacts logs; None where ``log.cleaner.enable`` is off."""
    services: tuple[Service, ...]
    repairs: ReplicaRepair
    scrubbing: LogScrubber | None
    tiering: "Tiering | None" = None
    """Remote storage; None where ``remote.log.storage.system.enable`` is off."""

    def configure(self, config: BrokerConfig, layers: Layers) -> None:
        """Apply changed settings; follows `DynamicConfig`."""
        self.fetchers.resize(config.num_replica_fetchers)
        if self.cleaning is not None:
            self.cleaning.configure(config)

    @property
    def partitions(self) -> Partitions:
        """The partitions hosted here."""
        return self.host.partitions


def build_replica_manager(
    context: NodeContext, lifecycle: BrokerLifecycle, channel: ControllerChannel
) -> ReplicaManager:
    """Construct it; no log is opened yet."""
    config, host = context.loaded.broker, _host(context, lifecycle)
    dial = broker_dial(context, lambda: host.cluster.image, FETCHER_ID.format(context.node_id))
    repairs, tiering = ReplicaRepair(host, dial), _tiering(context, host)
    isr, reports = IsrChanges(host, channel), DirectoryReports(host, channel, repairs.holds_back)
    history = None if tiering is None else tiering.history
    fetchers = Fetchers(host, dial, _fetch_settings(config), history)
    replicas = Replicas(host, fetchers, repairs)
    maintenance = LogMaintenance(host, replicas)
    moves = LogDirMoves(host, replicas, _move_settings(config))
    services: list[Service] = [replicas, DirectoriesWatch(host, lifecycle), isr, reports]
    # Moves are resumed before anything is fetched: a future log is truncated to its log as found.
    services += [moves, fetchers]
    # Half of it, so that a lagging replica is noticed after at most 1.5 times the limit.
    shrink_ms = max(1, config.replica_lag_time_max_ms // 2)
    services.append(PeriodicTask("isr-expiration", shrink_ms, lambda: shrink_isr(host), shrink_ms))
    services += maintenance_tasks(maintenance, config)
    cleaning = (
        LogCleanerService(host, config, maintenance.now) if config.log_cleaner_enable else None
    )
    if cleaning is not None:
        services.append(cleaning)
    services.append(repairs)
    scrubbing = None
    if config.log_scrub_enable:
        scrubbing = LogScrubber(host, _scrub_settings(config), repairs.found, repairs.found_missing)
        services.append(scrubbing)
    if tiering is not None:
        services += tiering.services
    disk_scan = DiskUsage(host)
    scan_ms = config.ottla_partition_disk_scan_interval_seconds * 1000
    if scan_ms:
        services.append(PeriodicTask("disk-scan", scan_ms, disk_scan.scan))
    return ReplicaManager(
        host=host,
        replicas=replicas,
        moves=moves,
        isr=isr,
        disk_scan=disk_scan,
        fetchers=fetchers,
        cleaning=cleaning,
        services=tuple(services),
        repairs=repairs,
        scrubbing=scrubbing,
        tiering=tiering,
    )


def _host(context: NodeContext, lifecycle: BrokerLifecycle) -> Host:
    config = context.loaded.broker
    settings = HostSettings(
        node_id=context.node_id,
        static=context.loaded.static,
        lag_ms_max=config.replica_lag_time_max_ms,
        unexplained_deletion_delay_ms=config.ottla_replica_unexplained_deletion_delay_ms,
        has_offline_directories=bool(context.offline_paths),
    )
    host = Host(
        settings,
        context.log_directories,
        _ports(context),
        lambda: lifecycle.epoch,
        context.meters.topics,
    )
    host.directories.on_failure(lambda _: lifecycle.report_soon())
    return host


def _tiering(context: NodeContext, host: Host) -> "Tiering | None":
    if not context.loaded.broker.remote_log_storage_system_enable:
        return None
    from ottla.node.broker.tiering import build_tiering  # not needed to start any other broker

    return build_tiering(context, host, lambda: host.cluster.image)


def scrub_counts(replica_manager: ReplicaManager | None) -> ScrubCounts:
    """Return the counts of scrubbing and repair."""
    if replica_manager is None:
        return ScrubCounts()
    scrubbing, repairs = replica_manager.scrubbing, replica_manager.repairs
    node_id = replica_manager.host.node_id
    return ScrubCounts(
        bytes_read=0 if scrubbing is None else scrubbing.bytes_read,
        passes=0 if scrubbing is None else scrubbing.passes,
        damages=repairs.counts.found,
        repairs_started=repairs.counts.started,
        repairs_finished=repairs.counts.finished,
        damaged_partitions=len(repairs.damaged),
        damaged_fetches=replica_manager.host.damaged_fetches,
        keeping_partitions=sum(
            partition.log.is_keeping_segments for partition in replica_manager.partitions
        ),
        waiting_partitions=tuple(
            TopicPartition(partition.topic, partition.index)
            for partition in replica_manager.partitions
            if partition.is_held and partition.leader_id in (node_id, NO_LEADER)
        ),
    )


def _move_settings(config: BrokerConfig) -> MoveSettings:
    paths = log_directories(config)
    return MoveSettings(
        paths=paths,
        canonical=realpath,
        moves_max=config.num_replica_alter_log_dirs_threads or len(paths),
    )


def _scrub_settings(config: BrokerConfig) -> ScrubSettings:
    return ScrubSettings(config.log_scrub_interval_ms, config.log_scrub_max_bytes_per_second)


def _fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        bytes_max=config.replica_fetch_max_bytes,
        response_bytes_max=config.replica_fetch_response_max_bytes,
        min_bytes=config.replica_fetch_min_bytes,
        wait_ms_max=config.replica_fetch_wait_max_ms,
        backoff_ms=config.replica_fetch_backoff_ms,
        timeout_ms=config.replica_socket_timeout_ms,
        fetchers_per_leader=config.num_replica_fetchers,
    )


def _ports(context: NodeContext) -> HostPorts:
    ports = context.ports

    def committer(path: str) -> Committer:
        # One thread per directory: the metadata log may share one with partitions.
        return (
            context.committer if path == context.metadata_directory.path else ports.committer(path)
        )

    return HostPorts(
        ports.clock, ports.disk, ports.random, committer, ports.worker, ports.thread_cpu_s
    )


class AllDirectoriesFailed(Exception):
    """Every log directory has failed, so the broker stops."""


class DirectoriesWatch(msgspec.Struct, frozen=True):
    """Service: stops the node, in order, when its last log directory has failed (KIP-112)."""

    host: Host
    lifecycle: BrokerLifecycle
    name: str = "log-directories"

    async def run(self, ready: Callable[[], None]) -> None:
        """Wait until every log directory has failed.

        Raises:
            AllDirectoriesFailed: then.
        """
        ready()
        await self.host.directories.wait_all_failed()
        self.lifecycle.should_shut_down.set()
        raise AllDirectoriesFailed(self.host.directories.failures())
