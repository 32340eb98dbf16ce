"""The part of a broker that keeps partitions: logs, replicas and what looks after them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.node.broker_lifecycle import BrokerLifecycle
from ottla.replication.hosting import Host, HostSettings
from ottla.replication.partitions import Partitions
from ottla.replication.replicas import Replicas
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
    host = Host(settings, ground.log_directories, ground.ports.clock, lambda: lifecycle.epoch)
    host.on_failure(lambda _: lifecycle.report_soon())
    replicas = Replicas(host)
    return Hosting(host, replicas, (replicas,))
