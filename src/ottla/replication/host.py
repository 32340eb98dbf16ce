"""The log directories of a broker, and what its partitions share.

A directory that fails takes its partitions with it, at once and for good; others go on. When the
last one has failed there is nothing left to do here: `wait_all_failed` tells.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from ottla.metadata.image import EMPTY, Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import NodeId, Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.isr_state import Proposal
from ottla.replication.partition import Partition
from ottla.replication.recovery_losses import RecoveryLosses
from ottla.replication.throttles import Throttles
from ottla.runtime.ports import Clock, Committer, Disk, Random, Syncable, Worker
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import InlineWorker
from ottla.storage.log_dir import LogDirectory

log = logging.getLogger(__name__)

LAG_MS: Final = 30_000
"""Kafka's ``replica.lag.time.max.ms``."""
# Preferred directories of replicas that are not hosted yet; the oldest entry is dropped first.
PREFERRED_MAX: Final = 10_000


class IsrProposals(Protocol):
    """Who takes ISR proposals to the controller."""

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Ask soon, and tell the partition what the controller said."""
        ...


class DirectoryReports(Protocol):
    """Who tells the controller in which directory a replica is (KIP-858)."""

    def placed(self, partition: Partition) -> None:
        """Tell where the partition is, soon."""
        ...

    def lost(self, partition: Partition) -> None:
        """Tell that the replica cannot be used, as if its directory had failed."""
        ...


class Scrubber(Protocol):
    """Who checks stored batches."""

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Check the batches at ``offset`` soon."""
        ...

    def verify(self, partition: Partition, done: Callable[[], None]) -> None:
        """Check a whole log soon, and call ``done`` after."""
        ...


class Repairer(Protocol):
    """Who repairs damaged replicas."""

    def holds_back(self, partition: Partition) -> bool:
        """Say whether the controller must not be told yet where a replica is."""
        ...


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of one broker. ``static`` are the texts of its configuration file."""

    node_id: NodeId
    static: Mapping[str, str]
    lag_ms_max: int = LAG_MS
    has_offline_directories: bool = False  # at start


class HostPorts(msgspec.Struct, frozen=True):
    """The outside world of a host. ``committer`` makes that of a directory, by its path."""

    clock: Clock
    disk: Disk
    random: Random
    committer: Callable[[str], Committer]
    worker: Worker = InlineWorker()


class Host:
    """`PartitionHost` of every partition here.

    ``directories`` are those that were online at start, ``broker_epoch`` says by which
    registration the broker runs. ``isr``, ``reports``, ``events``, ``scrubber`` and ``repairer``
    may be given later, before the first partition.
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
        self.events: TopicEvents = NoTopicEvents()
        self._broker_epoch = broker_epoch
        self._lost: dict[str, str] = {}
        self._all_failed = asyncio.Event()
        self._on_failure: list[Callable[[LogDirectory], None]] = []
        self._on_cut: list[Callable[[Partition], None]] = []
        self._on_gone: list[Callable[[Partition], None]] = []
        self._on_repaired: list[Callable[[Partition], None]] = []
        self._on_moved: list[Callable[[Partition, LogDirectory], None]] = []
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self.recovery = RecoveryLosses()
        self.damaged_fetches = 0  # refused here as a follower, since a batch was damaged

    # -- what partitions ask ---------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        return self.settings.node_id

    @property
    def broker_epoch(self) -> int:
        """By which registration it runs."""
        return self._broker_epoch()

    @property
    def lag_ms_max(self) -> int:
        """``replica.lag.time.max.ms``."""
        return self.settings.lag_ms_max

    def _broker(self, broker: int) -> BrokerRegistration | None:
        return self.image.cluster.brokers.get(broker)

    def is_alive(self, broker: int) -> bool:
        """Say whether a broker is registered and not fenced."""
        found = self._broker(broker)
        return found is not None and not found.fenced

    def is_online(self, broker: int, directory: Uuid) -> bool:
        """Say whether a broker's log directory works, as far as is known."""
        found = self._broker(broker)
        return found is not None and found.is_online(directory)

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Say whether a broker that fetches by this epoch may be in an ISR (KIP-903)."""
        found = self._broker(broker)
        if found is None or not found.is_active() or broker_epoch is None:
            return False
        return broker_epoch in (-1, found.epoch)

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Have the controller asked."""
        if self.isr is not None:
            self.isr.submit(partition, proposal)

    def placed(self, partition: Partition) -> None:
        """Have the controller told where a replica is, unless it is damaged."""
        if self.repairer is None or not self.repairer.holds_back(partition):
            self.report_placed(partition)

    def report_placed(self, partition: Partition) -> None:
        """Have the controller told where a replica is, whatever its state."""
        if self.reports is not None:
            self.reports.placed(partition)

    def report_lost(self, partition: Partition) -> None:
        """Have the controller take a replica out of the ISR and elect another leader."""
        if self.reports is not None:
            self.reports.lost(partition)

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Have the stored batches at ``offset`` checked soon; nothing without a scrubber."""
        if self.scrubber is not None:
            self.scrubber.suspect(partition, offset)

    def suspect_log(self, name: TopicPartition) -> None:
        """Have a whole log checked soon: a reader failed somewhere in it."""
        partition = self.partitions.get(*name)
        if self.scrubber is not None and partition is not None:
            self.scrubber.verify(partition, lambda: None)

    # -- what happens to logs --------------------------------------------------

    def on_truncated(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever a log was truncated, before anything is appended to it."""
        self._on_cut.append(callback)

    def on_deleted(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever a log was deleted."""
        self._on_gone.append(callback)

    def on_moved(self, callback: Callable[[Partition, LogDirectory], None]) -> None:
        """Call back whenever a log is in another directory, with the one it has left."""
        self._on_moved.append(callback)

    def moved(self, partition: Partition, left: LogDirectory) -> None:
        """Tell that a log is in another directory, before it is deleted from the one it left."""
        for callback in self._on_moved:
            callback(partition, left)

    def on_repaired(self, callback: Callable[[Partition], None]) -> None:
        """Call back whenever no damage of a log is known any more."""
        self._on_repaired.append(callback)

    def repaired(self, partition: Partition) -> None:
        """Tell that no damage of a log is known any more."""
        for callback in self._on_repaired:
            callback(partition)

    def notify_truncated(self, partition: Partition) -> None:
        """Tell that a log was truncated."""
        for callback in self._on_cut:
            callback(partition)

    def notify_deleted(self, partition: Partition) -> None:
        """Tell that a log was deleted."""
        for callback in self._on_gone:
            callback(partition)

    # -- directories -----------------------------------------------------------

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that still work, in the order of ``log.dirs``."""
        return [each for each in self.directories if not each.is_failed]

    @property
    def has_offline(self) -> bool:
        """Whether a log that is not found may be in a directory that is lost."""
        return self.settings.has_offline_directories or len(self.online) < len(self.directories)

    def directory(self, directory_id: Uuid | None) -> LogDirectory | None:
        """Return a directory that works, by its id."""
        return next((each for each in self.online if each.directory_id == directory_id), None)

    def prefer_directory(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Have a replica made in a directory, if one comes for which the image names none."""
        self._preferred.pop(name, None)
        self._preferred[name] = directory
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def take_preferred_directory(self, name: TopicPartition) -> LogDirectory | None:
        """Return the directory that was wished for, once."""
        wished = self._preferred.pop(name, None)
        return None if wished is None or wished.is_failed else wished

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
        """Have files of a directory synced, off the loop. A failure takes it offline.

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
        """Finish what the committers have begun, before the directories are closed."""
        for committer in self._committers.values():
            await committer.close()

    def failures(self) -> str:
        """Return which directories have failed, and why."""
        return "; ".join(f"{path}: {reason}" for path, reason in self._lost.items())

    async def wait_all_failed(self) -> None:
        """Return when no directory is left."""
        await self._all_failed.wait()
