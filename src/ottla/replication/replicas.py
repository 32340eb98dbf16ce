"""Brings the partitions hosted here in step with the image: create, lead, follow, delete.

    start    open every log in the directories, one by one; mark logs of partitions that the image
             does not assign to this node as stray; then apply the whole image
    image    apply its delta, removed partitions first, with one sync for all; of the partitions
             that are new here or have changed, the first few are created or changed at once and the
             others in slices, between which the loop runs: those with a new leader here first

Until the broker has caught up with the metadata log, images are only stored: they describe the
past, and a topic that was deleted since must not be created for a moment.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.metadata.configs import ConfigResourceType
from ottla.metadata.delta import Delta, TopicDelta, delta_between
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
    Topic,
)
from ottla.protocol.faults import InconsistentTopicId, StorageFailed
from ottla.protocol.types import Millis, TopicPartition, Uuid
from ottla.replication.host import Host
from ottla.replication.log_settings import TopicSettings, topic_settings
from ottla.replication.maintenance.directory_work import DirectoryWork
from ottla.replication.partition import Partition
from ottla.replication.pending_replicas import PendingReplicas, Urgency
from ottla.replication.repair.recovery_losses import ReportedLoss
from ottla.replication.repair.repair_loop import ReplicaRepair
from ottla.storage.directory.log_dir import HostedLog, LogDirectory, OpenReport
from ottla.storage.log.log_config import LogConfig

log = logging.getLogger(__name__)

# The work of an image is counted in changes of a partition, about 0.03 ms each; to create one takes
# about 0.2 ms. So much is done before the other readers get the image, so that a client can use a
# small topic at once; and so much in each slice after that.
CREATE_COST: Final = 8
AT_ONCE_COST: Final = 128
SLICE_COST: Final = 64
# Deleted logs whose files are removed before the loop runs again.
PURGE_SLICE_MAX: Final = 8

_NO_DIRECTORY = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, DIRECTORY_LOST)


def choices_for_new_log(online: Sequence[LogDirectory]) -> list[LogDirectory]:
    """Return the directories to try for a new log, that with the fewest logs first.

    Cordoned ones are left out, unless all are.
    """
    open_ones = [each for each in online if not each.is_cordoned]
    return sorted(open_ones or online, key=lambda each: len(each.logs))


class ReplicaFetchers(Protocol):
    """Fetches for the partitions that are led elsewhere."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's leader from now on, in its leader epoch."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching; does nothing for a partition that is not followed."""
        ...


class NoReplicaFetchers:
    """`ReplicaFetchers` of a node without peers."""

    def follow(self, partition: Partition) -> None:
        """Do nothing."""

    def unfollow(self, partition: Partition) -> None:
        """Do nothing."""


class DeletedLog(NamedTuple):
    """A deleted log: when its files are removed (monotonic), and where they are."""

    due: Millis
    directory: LogDirectory
    name: str


class LeavingLog(NamedTuple):
    """A log to delete, when its files are removed after that, and its partition if hosted."""

    directory: LogDirectory
    name: TopicPartition
    delay_ms: int
    partition: Partition | None


class Replicas:
    """Publisher and service: ready once every log is open and the image is applied.

    ``repairer`` repairs replicas that have lost records; without one, the losses are accepted.
    """

    name = "replicas"

    def __init__(
        self,
        host: Host,
        following: ReplicaFetchers | None = None,
        repairer: ReplicaRepair | None = None,
    ) -> None:
        self._host = host
        self._repairer = repairer
        self._following = following or NoReplicaFetchers()
        self._partitions = host.partitions
        self._settings: dict[str, TopicSettings] = {}
        self._is_started = False
        self._is_starting = True  # until everything in the first image is hosted
        self._pending = PendingReplicas()
        self._budget = 0  # what the current image or slice may still cost
        self._leaving: list[LeavingLog] = []
        self.deleted_logs: deque[DeletedLog] = deque()
        host.log_events.on_released(self._released)

    # -- start -----------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Open the logs, apply the image, and host new partitions until cancelled."""
        for directory in self._host.directories.all:
            await self._open(directory)
        self.start()
        is_ready = False
        while True:
            self.host_pending()
            if not self._pending and not is_ready:
                is_ready, self._is_starting = True, False
                ready()
            await self._pending.wait()
            await asyncio.sleep(0)

    async def _open(self, directory: LogDirectory) -> None:
        report = OpenReport()
        try:
            directory.purge_deleted()
            for _ in directory.opening(self._log_config, report):
                await asyncio.sleep(0)  # heartbeats and votes continue while logs recover
        except StorageFailed as fault:
            self._host.storage_failed(directory, fault.reason)
        if directory.failure is not None:
            self._host.storage_failed(directory, directory.failure)
        for name, reason in report.failed.items():
            log.error("log not opened path=%s/%s reason=%s", directory.path, name, reason)
        for name in report.corrupt_checkpoints:
            log.warning("checkpoint is corrupt and ignored path=%s/%s", directory.path, name)
        for reason in report.corrupt_topic_ids:
            log.warning(
                "topic id is corrupt, and written again from the metadata reason=%s", reason
            )
        log.info("logs opened path=%s count=%d", directory.path, len(directory.logs))

    def start(self) -> None:
        """Apply the current image; later ones are applied as they arrive."""
        image = self._host.cluster.image
        for directory in self._host.directories.online:
            with DirectoryWork(self._host, directory):
                self._report_losses(image, directory)
        self._mark_strays(image)
        self._is_started = True
        self._apply(delta_between(EMPTY, image))

    def _report_losses(self, image: Image, directory: LogDirectory) -> None:
        """Report what recovery could not keep, now that the other replicas are known."""
        losses = []
        for name, hosted in (*directory.logs.items(), *directory.future_logs.items()):
            found = self._registration(image, name, hosted)
            is_only = found is not None and len(found.replicas) == 1
            losses += [
                ReportedLoss(f"{name.topic}-{name.partition}", hosted.log.directory, loss, is_only)
                for loss in hosted.log.report.losses
            ]
        try:
            self._host.recovery.report(self._host.ports.disk, directory.path, losses)
        except OSError as error:
            raise StorageFailed(directory.path, str(error)) from error

    def _mark_strays(self, image: Image) -> None:
        """Rename logs that do not belong to this node any more, by name, topic id or directory."""
        for directory in self._host.directories.online:
            for name, hosted in list(directory.logs.items()):
                registration = self._registration(image, name, hosted)
                if registration is not None and self._is_home(directory, name, registration):
                    continue
                log.warning("stray log renamed path=%s", hosted.log.directory)
                with DirectoryWork(self._host, directory):
                    directory.mark_stray(name)

    def _registration(
        self, image: Image, name: TopicPartition, hosted: HostedLog
    ) -> PartitionRegistration | None:
        topic = image.topics.named(name.topic)
        if topic is None or hosted.topic_id not in (None, topic.id):
            return None
        found = topic.partitions.get(name.partition)
        if found is None or self._host.node_id not in found.replicas:
            return None
        return found

    def _is_home(
        self, directory: LogDirectory, name: TopicPartition, registration: PartitionRegistration
    ) -> bool:
        """Of two directories with the same log, use the one whose log is further ahead.

        This happens after a crash, or a failed disk, during a move from one to the other: the old
        log has not grown since. If both are equal, the directory that the image names is used.
        """
        rivals = [each for each in self._host.directories.online if name in each.logs]
        named = registration.directory(self._host.node_id)

        def standing(each: LogDirectory) -> tuple[int, int, bool]:
            rival = each.logs[name].log
            epoch = rival.epochs.latest_epoch
            return (
                -1 if epoch is None else epoch,
                rival.log_end_offset,
                each.directory_id == named,
            )

        return directory is max(rivals, key=standing)

    # -- images ----------------------------------------------------------------

    def on_image(self, delta: Delta, image: Image) -> None:
        """Store an image and apply it once started; see the module."""
        self._host.cluster.image = image
        if self._is_started:
            self._apply(delta)

    def _apply(self, delta: Delta) -> None:
        self._budget = AT_ONCE_COST
        self._reconfigure(delta)
        for change in delta.topics.values():
            self._remove_gone(change)
        self._delete_leaving()
        self._host_changed(delta)
        if delta.brokers:
            self._brokers_changed(frozenset(delta.brokers))

    def _remove_gone(self, change: TopicDelta) -> None:
        topic = change.topic()
        for index, partition in change.partitions.items():
            if partition.new is None or self._host.node_id not in partition.new.replicas:
                self._remove(topic, index)
        if change.is_deleted():
            self._settings.pop(topic.name, None)

    def _host_changed(self, delta: Delta) -> None:
        """Host the partitions assigned here that changed: leaders first, some of them later."""
        node_id = self._host.node_id
        found: dict[Urgency, list[tuple[Topic, int, PartitionRegistration]]] = {
            Urgency.LEADER: [],
            Urgency.REPLICA: [],
        }
        for change in delta.topics.values():
            topic = change.new
            for index, partition in change.partitions.items() if topic is not None else ():
                new = partition.new
                if topic is not None and new is not None and node_id in new.replicas:
                    found[self._urgency(topic.id, index, new)].append((topic, index, new))
        for urgency, changed in found.items():
            for topic, index, new in changed:
                replica = (topic.id, index)
                self._pending.supersede(replica)
                if self._budget > 0:
                    self._host_one(topic, index, new)
                else:
                    self._pending.add(replica, urgency)

    def _urgency(self, topic_id: Uuid, index: int, registration: PartitionRegistration) -> Urgency:
        hosted = self._partitions.by_id(topic_id, index)
        is_led = hosted is not None and hosted.is_leader
        is_urgent = is_led or registration.leader == self._host.node_id
        return Urgency.LEADER if is_urgent else Urgency.REPLICA

    def _brokers_changed(self, brokers: frozenset[int]) -> None:
        """Let the leaders of partitions on these brokers advance, some of them later."""
        for partition in self._partitions:
            if not partition.is_leader or brokers.isdisjoint(partition.replicas):
                continue
            if self._budget > 0:
                self._budget -= 1
                partition.brokers_changed()
            else:
                replica = (partition.topic_id, partition.index)
                self._pending.add(replica, Urgency.WATERMARK)

    def _host_one(self, topic: Topic, index: int, registration: PartitionRegistration) -> None:
        partition = self._partitions.by_id(topic.id, index)
        self._budget -= 1
        if partition is None:
            self._budget -= CREATE_COST - 1
            partition = self._create(topic, index, registration)
        if partition is None:
            return
        was_leader = partition.is_leader
        is_new_epoch = partition.apply(registration)
        self._follow(partition, is_new_epoch)
        if partition.is_leader and is_new_epoch:
            self._partitions.notify_led(partition)
        elif was_leader and not partition.is_leader and partition.offline is None:
            self._partitions.notify_unled(partition, partition.leader_epoch)
        if registration.directory(self._host.node_id) != partition.directory.directory_id:
            self._host.log_events.placed(partition)

    def host_pending(self) -> int:
        """Bring the next slice of partitions in step with the newest image; return how many."""
        topics, taken = self._host.cluster.image.topics.by_id, 0
        self._budget = SLICE_COST
        while self._budget > 0:
            due = self._pending.take()
            if due is None:
                break
            taken += 1
            topic_id, index = due.replica
            if due.urgency is Urgency.WATERMARK:
                self._budget -= 1
                partition = self._partitions.by_id(topic_id, index)
                if partition is not None:
                    partition.brokers_changed()
                continue
            topic = topics[topic_id]  # else `_remove` would have discarded the partition
            self._host_one(topic, index, topic.partitions[index])
        return taken

    def _follow(self, partition: Partition, is_new_epoch: bool) -> None:
        if partition.is_leader or partition.leader_id < 0 or partition.offline is not None:
            self._following.unfollow(partition)
        elif is_new_epoch:
            self._following.follow(partition)

    # -- creating and removing ---------------------------------------------------

    def _create(
        self, topic: Topic, index: int, registration: PartitionRegistration
    ) -> Partition | None:
        """Find or create the log; None when it is, or may be, in an offline directory."""
        name = TopicPartition(topic.name, index)
        self._partitions.forget_offline(name)
        settings = self._settings_of(topic.name)
        found = self._find_log(name, topic.id)
        is_found = found is not None
        found = found or self._make_log(name, topic.id, registration, settings.log)
        if found is None:
            fault = StorageFailed("log.dirs", f"{name} is in an offline directory")
            self._partitions.note_offline(name, fault)
            return None
        directory, hosted = found
        hosted.log.configure(settings.log)
        if is_found and len(registration.replicas) > 1:
            hosted.log.resume_keeping(self._host.unexplained_deletion_delay_ms)
        partition = Partition(name, topic.id, directory, hosted.log, settings.topic, self._host)
        self._partitions.add(partition)
        self._settle_losses(partition, registration, is_found=is_found)
        return partition

    def _settle_losses(
        self, partition: Partition, registration: PartitionRegistration, *, is_found: bool
    ) -> None:
        """Have what a log has lost fetched from other replicas, or go on without it.

        A partition that had leaders before this start, and has no log now, has lost all of it.
        """
        partition_log, repairer = partition.log, self._repairer
        report = partition_log.report
        is_shared = len(registration.replicas) > 1 and repairer is not None
        if not is_found and self._is_starting and registration.leader_epoch > 0:
            if repairer is not None and is_shared:
                repairer.created(partition, registration)
            return
        if not report.missing and report.known_end <= partition_log.log_end_offset:
            return
        with DirectoryWork(self._host, partition.directory):
            if not is_shared or repairer is None:
                partition_log.accept_losses()
                return
            partition_log.expect_missing()
            repairer.opened(partition, registration)

    def _released(self, partition: Partition) -> None:
        """Let a partition that was held lead or follow, by the newest image."""
        topic = self._host.cluster.image.topics.by_id.get(partition.topic_id)
        registration = None if topic is None else topic.partitions.get(partition.index)
        if topic is None or registration is None or partition.is_closed:
            return
        self._host_one(topic, partition.index, registration)

    def _find_log(
        self, name: TopicPartition, topic_id: Uuid
    ) -> tuple[LogDirectory, HostedLog] | None:
        for directory in self._host.directories.online:
            if name not in directory.logs:
                continue
            try:
                return directory, directory.claim_log(name, topic_id)
            except InconsistentTopicId:
                with DirectoryWork(self._host, directory):
                    directory.mark_stray(name)
            except StorageFailed as fault:
                self._host.storage_failed(directory, fault.reason)
        return None

    def _make_log(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        registration: PartitionRegistration,
        config: LogConfig,
    ) -> tuple[LogDirectory, HostedLog] | None:
        """Create a log in the directory that the image names, else where there are the fewest.

        A cordoned directory is chosen only if all are: the controller placed the replica before.

        If the image names an unknown directory, the log is not created elsewhere while a directory
        is offline: its records are there.
        """
        wanted = registration.directory(self._host.node_id)
        named = self._host.directories.find(wanted)
        if named is None and wanted not in _NO_DIRECTORY and self._host.directories.has_offline:
            return None
        named = named or self._host.directories.take_preferred_directory(name)
        online = self._host.directories.online
        choices = [named] if named is not None else choices_for_new_log(online)
        for directory in choices:
            try:
                return directory, directory.create_log(name, topic_id, config)
            except StorageFailed as fault:
                self._host.storage_failed(directory, fault.reason)
        return None

    def _remove(self, topic: Topic, index: int) -> None:
        """Delete a partition; its files are removed after ``file.delete.delay.ms``."""
        name = TopicPartition(topic.name, index)
        self._partitions.forget_offline(name)
        partition = self._partitions.by_id(topic.id, index)
        was_waiting = self._pending.discard((topic.id, index))
        if partition is None:
            if was_waiting:
                self._remove_unclaimed(name, topic.id)
            return
        self._following.unfollow(partition)
        was_leader = partition.is_leader
        self._partitions.remove(partition)
        if was_leader:
            self._partitions.notify_unled(partition, None)
        directory = partition.directory
        if directory.is_failed:
            return
        delay_ms = partition.log.config.file_delete_delay_ms
        self._leaving.append(LeavingLog(directory, name, delay_ms, partition))

    def _remove_unclaimed(self, name: TopicPartition, topic_id: Uuid) -> None:
        """Delete the log that a start found for a partition, before the partition was hosted."""
        for directory in self._host.directories.online:
            hosted = directory.logs.get(name)
            if hosted is not None and hosted.topic_id in (None, topic_id):
                delay_ms = hosted.log.config.file_delete_delay_ms
                self._leaving.append(LeavingLog(directory, name, delay_ms, None))

    def _delete_leaving(self) -> None:
        """Delete the logs of removed partitions: a sync for each would block the loop for long."""
        leaving, self._leaving = self._leaving, []
        for directory in self._host.directories.online if leaving else ():
            found = [each for each in leaving if each.directory is directory]
            if not found:
                continue
            with DirectoryWork(self._host, directory):
                deleted = directory.delete_logs(each.name for each in found)
                for target, each in zip(deleted, found, strict=True):
                    self.schedule_removal(directory, target, each.delay_ms)
        for each in leaving:
            if each.partition is not None:
                self._host.log_events.deleted(each.partition)

    def schedule_removal(self, directory: LogDirectory, name: str, delay_ms: int) -> None:
        """Schedule the removal of a deleted log's files."""
        due = self._host.clock.monotonic() + delay_ms
        self.deleted_logs.append(DeletedLog(Millis(due), directory, name))

    def purge(self) -> Iterator[int]:
        """Remove the files of deleted logs that are due; yield after each slice how many it had."""
        now = self._host.clock.monotonic()
        due = deque(each for each in self.deleted_logs if each.due <= now)
        self.deleted_logs = deque(each for each in self.deleted_logs if each.due > now)
        try:
            while due:
                yield sum(self._purge_one(due.popleft()) for _ in range(PURGE_SLICE_MAX) if due)
        finally:
            self.deleted_logs.extendleft(due)

    def _purge_one(self, removal: DeletedLog) -> bool:
        if removal.directory.is_failed:
            return False
        with DirectoryWork(self._host, removal.directory):
            removal.directory.purge(removal.name)
            return True
        return False

    # -- settings --------------------------------------------------------------

    def _log_config(self, name: TopicPartition) -> LogConfig:
        return self._settings_of(name.topic).log

    def _settings_of(self, topic: str) -> TopicSettings:
        found = self._settings.get(topic)
        if found is None:
            host = self._host
            found = topic_settings(host.cluster.image, topic, host.node_id, host.settings.static)
            for problem in found.ignored:
                log.warning("topic setting ignored topic=%s %s", topic, problem)
            self._settings[topic] = found
        return found

    def _reconfigure(self, delta: Delta) -> None:
        """Apply changed settings to the logs they are for; a broker's apply to all of them."""
        brokers = {"", str(self._host.node_id)}
        topics: set[str] = set()
        is_all = False
        for kind, name in delta.configs:
            is_all |= kind == ConfigResourceType.BROKER and name in brokers
            if kind == ConfigResourceType.TOPIC:
                topics.add(name)
        if not is_all and not topics:
            return
        for topic in list(self._settings) if is_all else topics:
            self._settings.pop(topic, None)
        for partition in self._partitions:
            if is_all or partition.topic in topics:
                partition.configure(*self._settings_of(partition.topic)[:2])
