"""The part of a broker that keeps partitions: logs, replicas and what looks after them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.node.broker_lifecycle import BrokerLifecycle
from ottla.replication.cleaner_loop import Cleaning
from ottla.replication.hosting import Host, HostPorts, HostSettings
from ottla.replication.partitions import Partitions
from ottla.replication.replicas import Replicas
from ottla.replication.upkeep_loop import Upkeep, upkeep_services
from ottla.runtime.ports import Committer
from ottla.runtime.supervisor import Service

if TYPE_CHECKING:
    from ottla.node.build import Ground


@dataclass(frozen=True, slots=True)
class Hosting:
    """What `build_hosting` made. ``services`` are in the order they start."""

    host: Host
    replicas: Replicas
    services: tuple[Service, ...]

    @property
    def partitions(self) -> Partitions:
        """The partitions hosted here."""
        return self.host.partitions


def build_hosting(ground: "Ground", lifecycle: BrokerLifecycle) -> Hosting:
    """Put it together; nothing is opened yet."""
    config = ground.loaded.broker
    settings = HostSettings(
        node_id=ground.node_id,
        static=ground.loaded.static,
        lag_ms_max=config.replica_lag_time_max_ms,
        has_offline_directories=bool(ground.offline_paths),
    )
    host = Host(settings, ground.log_directories, _ports(ground), lambda: lifecycle.epoch)
    host.on_failure(lambda _: lifecycle.report_soon())
    replicas = Replicas(host)
    upkeep = Upkeep(host, replicas)
    services: list[Service] = [replicas, DirectoriesWatch(host, lifecycle)]
    services += upkeep_services(upkeep, config)
    if config.log_cleaner_enable:
        services.append(Cleaning(host, config, upkeep.now))
    return Hosting(host, replicas, tuple(services))


def _ports(ground: "Ground") -> HostPorts:
    ports = ground.ports

    def committer(path: str) -> Committer:
        # One thread per directory: the metadata log may share one with partitions.
        return ground.committer if path == ground.metadata_directory.path else ports.committer(path)

    return HostPorts(ports.clock, ports.disk, ports.random, committer)


class AllDirectoriesFailed(Exception):
    """No log directory is left: there is nothing this broker could do."""


@dataclass(frozen=True, slots=True)
class DirectoriesWatch:
    """Service: ends the node, in order, when its last log directory has failed (KIP-112)."""

    host: Host
    lifecycle: BrokerLifecycle
    name: str = "log-directories"

    async def run(self, ready: Callable[[], None]) -> None:
        """Wait for the worst.

        Raises:
            AllDirectoriesFailed: it came.
        """
        ready()
        await self.host.wait_all_failed()
        self.lifecycle.should_shut_down.set()
        raise AllDirectoriesFailed(", ".join(each.path for each in self.host.directories))
