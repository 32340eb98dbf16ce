"""The log directories of a broker, and what its partitions share.

A directory that fails takes its partitions offline, at once and until the restart; the others are
not affected. After the last one has failed, `wait_all_failed` returns.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from ottla.metadata.image import EMPTY, Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.metadata.topics import PartitionRegistration
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import (
    LeaderEpoch,
    NodeId,
    Offset,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from ottla.replication.fetching.throttles import Throttles
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.leading.isr_state import Proposal
from ottla.replication.partition import Partition
from ottla.replication.repair.recovery_losses import RecoveryLosses
from ottla.runtime.ports import Clock, Committer, Disk, Random, Syncable, Worker
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import InlineWorker
from ottla.storage.directory.log_dir import LogDirectory
from ottla.storage.log.log import TierHistory

log = logging.getLogger(__name__)

LAG_MS: Final = 30_000
"""Kafka's ``replica.lag.time.max.ms``."""
KEEP_MS: Final = 3_600_000
"""``ottla.replica.unexplained.deletion.delay.ms``."""
# Preferred directories of replicas that are not hosted yet; the oldest entry is dropped first.
PREFERRED_MAX: Final = 10_000


class RemoteHistory(Protocol):
    """Finds the history of a partition in remote storage."""

    async def find(
        self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: Offset
    ) -> TierHistory | None:
        """Return the history up to the end of the segment with ``offset``, None if unknown.

        Raises a `Fault` if remote storage cannot be read now.
        """
        ...


class IsrProposals(Protocol):
    """Sends ISR proposals to the controller."""

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal soon, and pass the controller's answer to the partition."""
        ...


class DirectoryReports(Protocol):
    """Reports to the controller in which directory a replica is (KIP-858)."""

    def placed(self, partition: Partition) -> None:
        """Report soon where the partition is."""
        ...

    def lost(self, partition: Partition) -> None:
        """Report that the replica cannot be used, as if its directory had failed."""
        ...


class Scrubber(Protocol):
    """Checks stored batches."""

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Check the batches at ``offset`` soon."""
        ...

    def verify(self, partition: Partition, done: Callable[[], None]) -> None:
        """Check a whole log soon, and call ``done`` afterwards."""
        ...


class Repairer(Protocol):
    """Repairs damaged replicas."""

    def holds_back(self, partition: Partition) -> bool:
        """Whether the controller must not be notified yet of a replica's directory."""
        ...

    def opened(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Repair a replica whose log has lost records, before it leads or follows."""
        ...

    def created(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Ask the other replicas before a replica without a log leads a partition that had one."""
        ...


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
    broker's registration. ``isr``, ``reports``, ``events``, ``scrubber``, ``repairer`` and
    ``remote_history`` may be set later, before the first partition.
    """

    def __init__(
        self,
        settings: HostSettings,
        directories: Sequence[LogDirectory],
        ports: HostPorts,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.directories = tuple(directories)
        self.ports = ports
        self.clock = TrustedClock.of(ports.clock)
        self.throttles = Throttles(settings.node_id, settings.static, ports.clock)
        self._committers: dict[str, Committer] = {}
        self.image: Image = EMPTY
        self.partitions = Partitions(lambda: self.image)
        self.isr: IsrProposals | None = None
        self.reports: DirectoryReports | None = None
        self.scrubber: Scrubber | None = None
        self.repairer: Repairer | None = None
        self.remote_history: RemoteHistory | None = None
        self.events: TopicEvents = NoTopicEvents()
        self._broker_epoch = broker_epoch
        self._lost: dict[str, str] = {}
        self._all_failed = asyncio.Event()
        self._on_failure: list[Callable[[LogDirectory], None]] = []
        self._on_cut: list[Callable[[Partition], None]] = []
        self._on_gone: list[Callable[[Partition], None]] = []
        self._on_repaired: list[Callable[[Partition], None]] = []
        self._on_released: list[Callable[[Partition], None]] = []
        self._on_moved: list[Callable[[Partition, LogDirectory], None]] = []
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self.recovery = RecoveryLosses()
        self.damaged_fetches = 0  # batches rejected here as a follower because of damage

    # -- the interface of partitions ---------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        return self.settings.node_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration."""
        return self._broker_epoch()

    @property
    def lag_ms_max(self) -> int:
        """``replica.lag.time.max.ms``."""
        return self.settings.lag_ms_max

    @property
    def unexplained_deletion_delay_ms(self) -> int:
        """How long a follower keeps what its leader lacks for no known reason."""
        return self.settings.unexplained_deletion_delay_ms

    def _broker(self, broker: int) -> BrokerRegistration | None:
        return self.image.cluster.brokers.get(broker)

    def is_alive(self, broker: int) -> bool:
        """Whether a broker is registered and not fenced."""
        found = self._broker(broker)
        return found is not None and not found.fenced

    def is_online(self, broker: int, directory: Uuid) -> bool:
        """Whether a broker's log directory is online, as far as is known."""
        found = self._broker(broker)
        return found is not None and found.is_online(directory)

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Whether a broker that fetches with this epoch may be in an ISR (KIP-903)."""
        found = self._broker(broker)
        if found is None or not found.is_active() or broker_epoch is None:
            return False
        return broker_epoch in (-1, found.epoch)

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Send an ISR proposal to the controller."""
        if self.isr is not None:
            self.isr.submit(partition, proposal)

    def placed(self, partition: Partition) -> None:
        """Report a replica's directory to the controller, unless the replica is damaged."""
        if self.repairer is None or not self.repairer.holds_back(partition):
            self.report_placed(partition)

    def report_placed(self, partition: Partition) -> None:
        """Report a replica's directory to the controller, whatever its state."""
        if self.reports is not None:
            self.reports.placed(partition)

    def report_lost(self, partition: Partition) -> None:
        """Have the controller remove a replica from the ISR and elect another leader."""
        if self.reports is not None:
            self.reports.lost(partition)

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Have the stored batches at ``offset`` checked soon; does nothing without a scrubber."""
        if self.scrubber is not None:
            self.scrubber.suspect(partition, offset)

    def suspect_log(self, name: TopicPartition) -> None:
        """Have a whole log checked soon: reading it failed somewhere."""
        partition = self.partitions.get(*name)
        if self.scrubber is not None and partition is not None:
            self.scrubber.verify(partition, lambda: None)

    # -- events of logs ----------------------------------------------------------

    def on_truncated(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever a log was truncated, before anything is appended to it."""
        self._on_cut.append(callback)

    def on_deleted(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever a log was deleted."""
        self._on_gone.append(callback)

    def on_moved(self, callback: Callable[[Partition, LogDirectory], None]) -> None:
        """Call back whenever a log has moved to another directory, with the old directory."""
        self._on_moved.append(callback)

    def moved(self, partition: Partition, left: LogDirectory) -> None:
        """Notify that a log has moved, before it is deleted from its old directory."""
        for callback in self._on_moved:
            callback(partition, left)

    def on_repaired(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever a log has no known damage any more."""
        self._on_repaired.append(callback)

    def repaired(self, partition: Partition) -> None:
        """Notify that a log has no known damage any more."""
        for callback in self._on_repaired:
            callback(partition)

    def on_released(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever a replica that was held may lead and follow."""
        self._on_released.append(callback)

    def release(self, partition: Partition) -> None:
        """Let a replica that was held lead and follow."""
        partition.is_held = False
        for callback in self._on_released:
            callback(partition)

    def notify_truncated(self, partition: Partition) -> None:
        """Notify that a log was truncated."""
        for callback in self._on_cut:
            callback(partition)

    def notify_deleted(self, partition: Partition) -> None:
        """Notify that a log was deleted."""
        for callback in self._on_gone:
            callback(partition)

    # -- directories -----------------------------------------------------------

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that are online, in the order of ``log.dirs``."""
        return [each for each in self.directories if not each.is_failed]

    @property
    def has_offline(self) -> bool:
        """Whether a log that is not found may be in an offline directory."""
        return self.settings.has_offline_directories or len(self.online) < len(self.directories)

    def directory(self, directory_id: Uuid | None) -> LogDirectory | None:
        """Return an online directory by its id."""
        return next((each for each in self.online if each.directory_id == directory_id), None)

    def prefer_directory(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Create a future replica in this directory, if the image names none for it."""
        self._preferred.pop(name, None)
        self._preferred[name] = directory
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def take_preferred_directory(self, name: TopicPartition) -> LogDirectory | None:
        """Return and forget the preferred directory of a replica."""
        preferred = self._preferred.pop(name, None)
        return None if preferred is None or preferred.is_failed else preferred

    def on_failure(self, callback: Callable[[LogDirectory], None]) -> None:
        """Call back once for every directory that fails, after its partitions are offline."""
        self._on_failure.append(callback)

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory and every partition in it offline; later calls change nothing."""
        directory.fail(reason)
        if directory.path in self._lost:
            return
        self._lost[directory.path] = reason
        log.error("log directory failed path=%s reason=%s", directory.path, reason)
        fault = StorageFailed(directory.path, reason)
        for partition in self.partitions.fail(fault):
            self.partitions.notify_unled(partition, partition.leader_epoch)
        if not self.online:
            self._all_failed.set()
        for callback in self._on_failure:
            callback(directory)

    async def commit(self, directory: LogDirectory, files: Sequence[Syncable]) -> None:
        """Sync files of a directory, off the event loop. A failure takes it offline.

        Raises:
            StorageFailed: it failed, now or before.
        """
        directory.check_online()
        committer = self._committers.get(directory.path)
        if committer is None:
            committer = self._committers[directory.path] = self.ports.committer(directory.path)
        try:
            await committer.commit(files)
        except StorageFailed as fault:
            self.storage_failed(directory, fault.reason)
            raise

    async def close(self) -> None:
        """Wait for the committers to finish, before the directories are closed."""
        for committer in self._committers.values():
            await committer.close()

    def failures(self) -> str:
        """Return the failed directories and the reasons."""
        return "; ".join(f"{path}: {reason}" for path, reason in self._lost.items())

    async def wait_all_failed(self) -> None:
        """Return when no directory is online."""
        await self._all_failed.wait()
