"""What the partitions of a broker share: settings, ports, and three objects.

cluster       what is known of the cluster (`ClusterView`)
directories   where the logs are, and what happens when a disk fails (`LogDirectories`)
log_events    what happens to logs, for the services that react to it (`LogEvents`)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.types import NodeId, Offset, TopicPartition, Uuid
from ottla.replication.cluster_view import ClusterView
from ottla.replication.fetching.throttles import Throttles
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.isr_state import Proposal
from ottla.replication.log_directories import LogDirectories
from ottla.replication.log_events import LogEvents
from ottla.replication.partition import Partition
from ottla.replication.repair.recovery_losses import RecoveryLosses
from ottla.runtime.ports import Clock, Committer, Disk, Random, Worker
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import InlineWorker
from ottla.storage.directory.log_dir import LogDirectory

LAG_MS: Final = 30_000
"""Kafka's ``replica.lag.time.max.ms``."""
KEEP_MS: Final = 3_600_000
"""``ottla.replica.unexplained.deletion.delay.ms``."""


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one broker. ``static`` are the texts of its configuration file."""

    node_id: NodeId
    static: Mapping[str, str]
    lag_ms_max: int = LAG_MS
    unexplained_deletion_delay_ms: int = KEEP_MS
    has_offline_directories: bool = False  # at start


class HostPorts(msgspec.Struct, frozen=True):
    """The ports of a host. ``committer`` creates the committer of a directory, by its path.

    ``thread_cpu_s`` returns the seconds of CPU that the event loop's thread has used. The default
    measures none, so that a simulation is deterministic.
    """

    clock: Clock
    disk: Disk
    random: Random
    committer: Callable[[str], Committer]
    worker: Worker = InlineWorker()
    thread_cpu_s: Callable[[], float] = float  # 0.0


class Host:
    """The `PartitionHost` of every partition here.

    ``directories`` are those that were online at start, ``broker_epoch`` returns the epoch of the
    broker's registration, ``events`` counts what topics receive.
    """

    def __init__(
        self,
        settings: HostSettings,
        directories: Sequence[LogDirectory],
        ports: HostPorts,
        broker_epoch: Callable[[], int],
        events: TopicEvents | None = None,
    ) -> None:
        self.settings = settings
        self.ports = ports
        self.clock = TrustedClock.of(ports.clock)
        self.throttles = Throttles(settings.node_id, settings.static, ports.clock)
        self.cluster = ClusterView(broker_epoch)
        self.partitions = Partitions(lambda: self.cluster.image)
        self.directories = LogDirectories(
            directories, self.partitions, ports.committer, settings.has_offline_directories
        )
        self.log_events = LogEvents()
        self.events: TopicEvents = events or NoTopicEvents()
        self.recovery = RecoveryLosses()
        self.damaged_fetches = 0  # batches rejected here as a follower because of damage

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        return self.settings.node_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration."""
        return self.cluster.broker_epoch

    @property
    def lag_ms_max(self) -> int:
        """``replica.lag.time.max.ms``."""
        return self.settings.lag_ms_max

    @property
    def unexplained_deletion_delay_ms(self) -> int:
        """How long a follower keeps what its leader lacks for no known reason."""
        return self.settings.unexplained_deletion_delay_ms

    def is_alive(self, broker: int) -> bool:
        """Whether a broker is registered and not fenced."""
        return self.cluster.is_alive(broker)

    def is_online(self, broker: int, directory: Uuid) -> bool:
        """Whether a broker's log directory is online, as far as is known."""
        return self.cluster.is_online(broker, directory)

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Whether a broker that fetches with this epoch may be in an ISR (KIP-903)."""
        return self.cluster.is_eligible(broker, broker_epoch)

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Send an ISR proposal to the controller."""
        self.log_events.proposed(partition, proposal)

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Have the stored batches at ``offset`` checked soon, if anything here checks logs."""
        self.log_events.suspected(partition, offset)

    def suspect_log(self, name: TopicPartition) -> None:
        """Have a whole log checked soon: reading it failed somewhere."""
        partition = self.partitions.get(*name)
        if partition is not None:
            self.log_events.check(partition, lambda: None)

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory and every partition in it offline."""
        self.directories.storage_failed(directory, reason)
