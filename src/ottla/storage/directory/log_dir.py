"""One directory of ``log.dirs``: its lock, owner, checkpoints and logs.

    .lock                              held while a process uses the directory
    meta.properties                    the owner of the directory
    .kafka_cleanshutdown               present only after a clean stop; see `clean_shutdown.py`
    recovery-point-offset-checkpoint   end of the part of each log known to be durable
    log-start-offset-checkpoint        start of logs that begin inside a segment
    replication-offset-checkpoint      high watermarks
    cleaner-offset-checkpoint          end of the clean part of compacted logs
    <topic>-<partition>/               a log; see `partition_names.py`

A directory fails as a whole: after one disk error nothing in it can be trusted to become durable.
Other directories are not affected.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from ottla.protocol.faults import Fault, InconsistentTopicId, InvalidTopic, StorageFailed
from ottla.protocol.types import NodeId, Offset, TopicPartition, Uuid
from ottla.runtime.ports import Clock, Disk, DiskLock, OpenMode, Random
from ottla.storage.directory import clean_shutdown, meta_properties
from ottla.storage.directory.checkpoints import RECOVERY_POINT, write_epochs
from ottla.storage.directory.log_dir_checkpoints import (
    REMOVED_MAX,
    CheckpointFiles,
    Checkpoints,
    CheckpointWrite,
)
from ottla.storage.directory.meta_properties import MetaProperties, MetaPropertiesRefused
from ottla.storage.directory.partition_metadata import (
    CorruptPartitionMetadata,
    read_topic_id,
    write_new_topic_id,
    write_topic_id,
)
from ottla.storage.directory.partition_names import (
    DirectoryKind,
    PartitionDirectory,
    format_name,
    has_room_for_future,
    parse_name,
)
from ottla.storage.log.inventory import inherit_start
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint

LOCK_NAME = ".lock"
PROBE_NAME = ".probe"
# Kafka keeps these directories beside the logs; they are not logs of clients' topics.
NOT_LOGS = ("__cluster_metadata-0",)

ConfigOf = Callable[[TopicPartition], LogConfig]


class DirectoryInUse(Exception):
    """Another process uses this directory; two would destroy it."""


class LogDirPorts(NamedTuple):
    """The ports that a log directory and its logs need."""

    disk: Disk
    clock: Clock
    random: Random


class HostedLog(msgspec.Struct):
    """An open log, the name of its directory, and its topic id if one was recorded."""

    log: Log
    name: str
    topic_id: Uuid | None


class OpenReport(msgspec.Struct):
    """What was found while opening the logs of a directory, for the operator's log."""

    failed: dict[str, str] = msgspec.field(default_factory=dict)  # directory name -> why
    unrecognized: list[str] = msgspec.field(default_factory=list)  # not directories of logs
    strays: list[str] = msgspec.field(default_factory=list)
    corrupt_checkpoints: list[str] = msgspec.field(default_factory=list)
    # ``partition.metadata`` that cannot be read: claiming the log writes it again
    corrupt_topic_ids: list[str] = msgspec.field(default_factory=list)


class _Marks(NamedTuple):
    """The high watermarks of all logs, to see whether one has moved."""

    names: tuple[TopicPartition, ...]
    offsets: list[Offset]


class LogDirectory:
    """A directory that this process has locked, claimed and found writable.

    ``logs`` are the current ones, ``future_logs`` those being moved here.
    """

    def __init__(self, ports: LogDirPorts, path: str, lock: DiskLock, meta: MetaProperties) -> None:
        assert meta.directory_id is not None
        self._ports = ports
        self._lock = lock
        self.path = path
        self.meta = meta
        self.directory_id: Uuid = meta.directory_id
        self.last_shutdown: clean_shutdown.CleanShutdown | None = None
        self.failure: str | None = None
        self.is_cordoned = False  # gets no new logs (``cordoned.log.dirs``)
        self._is_loaded = False
        # Logs not opened (yet), and their checkpointed values, which must be kept.
        self._unopened: set[TopicPartition] = set()
        self._checkpoints_read = Checkpoints({}, {}, {})
        self._files = CheckpointFiles(ports.disk, path)
        self.logs: dict[TopicPartition, HostedLog] = {}
        self.future_logs: dict[TopicPartition, HostedLog] = {}
        self._marks: _Marks | None = None  # as of the last write of them alone

    @classmethod
    def open(
        cls, ports: LogDirPorts, path: str, *, node_id: NodeId, cluster_id: str | None
    ) -> "LogDirectory":
        """Lock, claim and probe a directory, and take its clean-shutdown marker.

        Raises:
            DirectoryInUse: another process holds the lock.
            MetaPropertiesRefused: it is not formatted, or belongs to another node.
            StorageFailed: it cannot be read or written.
        """
        disk = ports.disk
        try:
            lock = disk.lock(f"{path}/{LOCK_NAME}")
        except BlockingIOError as error:
            raise DirectoryInUse(f"{path}: another process holds {LOCK_NAME}") from error
        except OSError as error:
            raise StorageFailed(path, str(error)) from error
        try:
            meta = meta_properties.claim(disk, path, node_id=node_id, cluster_id=cluster_id)
            _probe(disk, path)
            meta = meta_properties.with_directory_id(disk, path, meta, ports.random)
            directory = cls(ports, path, lock, meta)
            directory.last_shutdown = clean_shutdown.take(disk, path)
        except OSError as error:
            lock.release()
            raise StorageFailed(path, str(error)) from error
        except MetaPropertiesRefused:
            lock.release()
            raise
        return directory

    # -- failure -------------------------------------------------------------

    @property
    def is_failed(self) -> bool:
        """The directory is offline until the node restarts."""
        return self.failure is not None

    def fail(self, reason: str) -> bool:
        """Take the directory offline; True the first time, so that it is reported once."""
        if self.failure is not None:
            return False
        self.failure = reason
        return True

    def check_online(self) -> None:
        """Raise if the directory is offline.

        Raises:
            StorageFailed: it has failed before.
        """
        if self.failure is not None:
            raise StorageFailed(self.path, self.failure)

    @contextmanager
    def _disk_work(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fail(str(error))
            raise StorageFailed(self.path, str(error)) from error

    # -- opening -------------------------------------------------------------

    def open_all(self, config_of: ConfigOf) -> OpenReport:
        """Open every log at once; see `opening`."""
        report = OpenReport()
        for _ in self.opening(config_of, report):
            pass
        return report

    def opening(self, config_of: ConfigOf, report: OpenReport) -> Iterator[str]:
        """Open every log, yielding the name of each, so that the event loop can run in between.

        A log that cannot be opened is reported, and the others are opened. A disk error takes the
        directory offline. Until the last log is opened the directory counts as not clean.

        Raises:
            StorageFailed: the directory itself cannot be read.
        """
        self.check_online()
        with self._disk_work():
            disk = self._ports.disk
            names = [n for n in disk.list(self.path) if disk.is_dir(f"{self.path}/{n}")]
            read = self._checkpoints_read = self._files.read(report.corrupt_checkpoints)
        found = _sort_out(names, report)
        self._files.gone = set().union(*read) - {parsed.partition for parsed in found.values()}
        self._is_loaded = True
        self._unopened = {parsed.partition for parsed in found.values()}
        is_clean = self.last_shutdown is not None and RECOVERY_POINT not in (
            report.corrupt_checkpoints
        )
        for name, (partition, kind) in found.items():
            checkpoint = LogCheckpoint(
                is_clean=is_clean,
                recovery_point=read.recovery_points.get(partition, Offset(0)),
                log_start_offset=read.log_starts.get(partition, Offset(0)),
                high_watermark=read.high_watermarks.get(partition, Offset(0)),
                is_future=kind is DirectoryKind.FUTURE,
                keeps_inventory=True,
            )
            hosted = self._try_open(name, config_of(partition), checkpoint, report)
            if hosted is not None:
                hosted.log.set_high_watermark(read.high_watermarks.get(partition, Offset(0)))
                self._logs_of(kind)[partition] = hosted
            yield name
        self._unopened = {found[name].partition for name in report.failed}

    def _try_open(
        self, name: str, config: LogConfig, checkpoint: LogCheckpoint, report: OpenReport
    ) -> HostedLog | None:
        try:
            topic_id = self._read_topic_id(name, report)
            return self._open_log(name, config, checkpoint, topic_id)
        except StorageFailed as error:
            self.fail(error.reason)
            report.failed[name] = error.reason
        except Fault as error:
            report.failed[name] = str(error)
        return None

    def _read_topic_id(self, name: str, report: OpenReport) -> Uuid | None:
        try:
            with self._disk_work():
                return read_topic_id(self._ports.disk, f"{self.path}/{name}")
        except CorruptPartitionMetadata as error:
            report.corrupt_topic_ids.append(str(error))
            return None

    def _open_log(
        self, name: str, config: LogConfig, checkpoint: LogCheckpoint, topic_id: Uuid | None
    ) -> HostedLog:
        """Open a log; ``topic_id`` is what its file says, None if it says nothing."""
        ports, directory = self._ports, f"{self.path}/{name}"
        log = Log.open(
            ports.disk,
            directory,
            config,
            clock=ports.clock,
            checkpoint=checkpoint,
            random=ports.random,
        )
        return HostedLog(log, name, topic_id)

    def _logs_of(self, kind: DirectoryKind) -> dict[TopicPartition, HostedLog]:
        return self.future_logs if kind is DirectoryKind.FUTURE else self.logs

    # -- one log -------------------------------------------------------------

    def create_log(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        kind: DirectoryKind = DirectoryKind.CURRENT,
    ) -> HostedLog:
        """Create a log, recording its topic id. It is durable before its first batch is written.

        A future log is durable at once: it is the only trace of a move that was accepted.

        If a log of this name was deleted, writes a checkpoint without its lines first.

        Raises:
            StorageFailed: the disk failed, and the directory is offline.
            ValueError: an invalid topic name or partition number.
        """
        self.check_online()
        logs = self._logs_of(kind)
        assert partition not in logs, partition
        if partition in self._files.gone:
            self.write_checkpoints()
        is_current = kind is DirectoryKind.CURRENT
        name = format_name(partition, kind, None if is_current else self._ports.random.uuid())
        directory = f"{self.path}/{name}"
        disk = self._ports.disk
        with self._disk_work():
            is_new = is_current and not disk.exists(directory)
            if is_new:
                disk.make_dir(directory)
                write_new_topic_id(disk, directory, topic_id)
            else:  # a future log, or what is there could not be opened, and is recovered
                disk.make_dirs(directory)
                write_topic_id(disk, directory, topic_id)
        try:
            checkpoint = LogCheckpoint(is_new=is_new, keeps_inventory=True)
            hosted = self._open_log(name, config, checkpoint, topic_id)
        except StorageFailed as error:
            self.fail(error.reason)
            raise
        logs[partition] = hosted
        self._unopened.discard(partition)
        return hosted

    def claim_log(self, partition: TopicPartition, topic_id: Uuid) -> HostedLog:
        """Return a log after checking its topic id; a log without one is given it.

        Raises:
            InconsistentTopicId: the log belongs to an older topic with the same name.
        """
        hosted = self.logs[partition]
        if hosted.topic_id is None:
            with self._disk_work():
                write_topic_id(self._ports.disk, hosted.log.directory, topic_id)
            hosted.topic_id = topic_id
        if hosted.topic_id != topic_id:
            raise InconsistentTopicId(f"{hosted.log.directory} belongs to another topic")
        return hosted

    def delete_log(self, partition: TopicPartition) -> str:
        """Rename a log for deletion, durably; return the name to pass to `purge`."""
        return self._rename(partition, DirectoryKind.DELETE)

    def delete_logs(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Rename logs as `delete_log` does, with one sync for all; return their names in order."""
        disk = self._ports.disk
        names = [self._move_aside(each, DirectoryKind.DELETE, disk.replace) for each in partitions]
        with self._disk_work():
            disk.sync_dir(self.path)
        self._forget_removed()
        return names

    def mark_stray(self, partition: TopicPartition) -> None:
        """Rename a log that the metadata does not know to ``-stray``, for the operator."""
        self._rename(partition, DirectoryKind.STRAY)

    def _rename(
        self,
        partition: TopicPartition,
        kind: DirectoryKind,
        before: DirectoryKind = DirectoryKind.CURRENT,
    ) -> str:
        target = self._move_aside(partition, kind, self._ports.disk.rename, before)
        self._forget_removed()
        return target

    def _move_aside(
        self,
        partition: TopicPartition,
        kind: DirectoryKind,
        move: Callable[[str, str], None],
        before: DirectoryKind = DirectoryKind.CURRENT,
    ) -> str:
        """Close a log and rename its directory by ``move``; return the new name."""
        self.check_online()
        logs = self._logs_of(before)
        hosted = logs[partition]
        # A log that is to be removed need not become durable first.
        hosted.log.close(is_discarded=kind is DirectoryKind.DELETE)
        target = format_name(partition, kind, self._ports.random.uuid())
        with self._disk_work():
            move(hosted.log.directory, f"{self.path}/{target}")
        del logs[partition]
        self._files.gone.add(partition)
        return target

    def _forget_removed(self) -> None:
        """Write the checkpoints without the logs that were removed, once these are many."""
        if len(self._files.gone) > REMOVED_MAX:
            self.write_checkpoints()

    # -- moving a log here -------------------------------------------------------

    def create_future(
        self, partition: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> HostedLog:
        """Create a log that will replace one in another directory; see `log_move_steps.py`.

        Raises:
            StorageFailed: an unknown directory of this name exists here, or the disk failed.
            InvalidTopic: the topic's name is too long for the suffix of a future log.
        """
        self.check_online()
        if not has_room_for_future(partition):
            raise InvalidTopic(f"{partition.topic}: the name is too long to be moved")
        with self._disk_work():
            is_taken = self._ports.disk.exists(f"{self.path}/{format_name(partition)}")
        if is_taken:
            raise StorageFailed(self.path, f"{partition} exists and could not be opened")
        return self.create_log(partition, topic_id, config, DirectoryKind.FUTURE)

    def delete_future(self, partition: TopicPartition) -> str:
        """Rename a future log for deletion, durably; return the name to pass to `purge`."""
        return self._rename(partition, DirectoryKind.DELETE, DirectoryKind.FUTURE)

    def discard_future(self, partition: TopicPartition) -> None:
        """Drop a future log whose files can no longer be used."""
        self.future_logs.pop(partition).log.close(is_discarded=True)

    def promote(self, partition: TopicPartition, source: Log) -> HostedLog:
        """Make a future log the current one, durably, now that it holds all of ``source``.

        It takes over what batches do not record: leader epochs without a record, producers whose
        records were trimmed, the high watermark. Blocks while the last copied bytes are synced.
        Until it returns, ``source`` is the log; afterwards the caller deletes it.

        Raises:
            StorageFailed: the disk failed, and this directory is offline. ``source`` is unchanged.
        """
        self.check_online()
        future = self.future_logs[partition].log
        assert future.log_end_offset == source.log_end_offset, partition
        name, end = format_name(partition), source.log_end_offset
        checkpoint = LogCheckpoint(
            is_clean=True,
            recovery_point=end,
            log_start_offset=source.log_start_offset,
            keeps_inventory=True,
        )
        try:
            future.close()
            with self._disk_work():
                disk, epochs = self._ports.disk, source.epochs.entries
                write_epochs(disk, future.directory, epochs)
                inherit_start(disk, future.directory, source.log_start_offset, epochs)
                disk.rename(future.directory, f"{self.path}/{name}")
            topic_id = self.future_logs[partition].topic_id
            hosted = self._open_log(name, source.config, checkpoint, topic_id)
        except StorageFailed as error:
            self.fail(error.reason)
            raise
        assert hosted.log.log_end_offset == end, partition
        hosted.log.epochs = LeaderEpochs(source.epochs.entries)
        hosted.log.producers = source.producers
        hosted.log.set_high_watermark(source.high_watermark)
        del self.future_logs[partition]
        self.logs[partition] = hosted
        return hosted

    def purge(self, name: str) -> None:
        """Remove the files of a deleted log."""
        self.check_online()
        with self._disk_work():
            self._ports.disk.remove_tree(f"{self.path}/{name}")

    def purge_deleted(self) -> int:
        """Remove all deleted logs, including those of an earlier run; return how many."""
        self.check_online()
        disk = self._ports.disk
        with self._disk_work():
            names = [
                name
                for name in disk.list(self.path)
                if (parsed := parse_name(name)) and parsed.kind is DirectoryKind.DELETE
            ]
            for name in names:
                disk.remove_tree(f"{self.path}/{name}")
        return len(names)

    # -- checkpoints and closing ---------------------------------------------

    @property
    def gone(self) -> frozenset[TopicPartition]:
        """Logs that were removed and may still have lines in the checkpoints."""
        return frozenset(self._files.gone)

    def write_checkpoints(self) -> None:
        """Write the checkpoints now, blocking.

        Raises:
            StorageFailed: the disk failed, and the directory is offline.
        """
        writes = self.checkpoint_writes()
        with self._disk_work():
            for write in writes:
                write.sync()
        self._files.gone.clear()

    def checkpoint_writes(self) -> tuple[CheckpointWrite, CheckpointWrite, CheckpointWrite]:
        """Return the checkpoint writes for a `Committer`, to be carried out in this order.

        Raises:
            StorageFailed: the directory is offline.
        """
        self.check_online()
        tables = Checkpoints(
            *(
                {name: offset for name, offset in table.items() if name in self._unopened}
                for table in self._checkpoints_read
            )
        )
        for partition, hosted in (*self.future_logs.items(), *self.logs.items()):
            log = hosted.log
            tables.recovery_points[partition] = log.recovery_point
            tables.high_watermarks[partition] = log.high_watermark
            if log.config.is_tiered or log.log_start_offset > log.segments[0].base_offset:
                tables.log_starts[partition] = log.log_start_offset
        return self._files.writes(tables)

    def high_watermark_writes(self) -> tuple[CheckpointWrite, ...]:
        """Return the write of the high watermarks alone; nothing if none has moved since the last.

        Raises:
            StorageFailed: the directory is offline.
        """
        self.check_online()
        logs = (*self.logs.values(), *self.future_logs.values())
        names = (*self.logs, *self.future_logs)
        marks = _Marks(names, [hosted.log.high_watermark for hosted in logs])
        if marks == self._marks:
            return ()
        self._marks = marks
        return self.checkpoint_writes()[-1:]

    def close(self, broker_epoch: int = clean_shutdown.UNKNOWN_BROKER_EPOCH) -> None:
        """Close every log, write the checkpoints, then the marker, then release the lock.

        The marker is a promise about every log here. So it is not written after a failure or when
        a log could not be opened; where the logs were not opened at all, the directory is left as
        it was found.

        Raises:
            StorageFailed: something failed, now or before; everything is closed nevertheless.
        """
        try:
            if self._is_loaded:
                self._close_logs()
                self.write_checkpoints()
                self.last_shutdown = clean_shutdown.CleanShutdown(broker_epoch)
            if self.last_shutdown is not None and not self._unopened:
                with self._disk_work():
                    epoch = self.last_shutdown.broker_epoch
                    clean_shutdown.leave(self._ports.disk, self.path, epoch)
        finally:
            self._lock.release()

    def _close_logs(self) -> None:
        for hosted in (*self.logs.values(), *self.future_logs.values()):
            if hosted.log.is_failed:
                self.fail(f"{hosted.name} failed")
            try:
                hosted.log.close()
            except StorageFailed as error:
                self.fail(error.reason)


def _sort_out(names: Sequence[str], report: OpenReport) -> dict[str, PartitionDirectory]:
    """Return the directories that hold a log, by name; the rest goes to the report."""
    found: dict[str, PartitionDirectory] = {}
    for name in names:
        parsed = parse_name(name)
        if parsed is None or name in NOT_LOGS:
            report.unrecognized.append(name)
        elif parsed.kind is DirectoryKind.STRAY:
            report.strays.append(name)
        elif parsed.kind is not DirectoryKind.DELETE:
            found[name] = parsed
    return found


def format_directory(ports: LogDirPorts, path: str, *, node_id: NodeId, cluster_id: str) -> None:
    """Assign a directory to this node, once before its first start.

    Raises:
        MetaPropertiesRefused: it has an owner. OSError: the disk failed.
    """
    ports.disk.make_dirs(path)
    if meta_properties.read_meta_properties(ports.disk, path) is not None:
        raise MetaPropertiesRefused(f"{path}: is already formatted")
    meta = MetaProperties(node_id, cluster_id, ports.random.uuid())
    meta_properties.write_meta_properties(ports.disk, path, meta)


def _probe(disk: Disk, path: str) -> None:
    """Check that the directory can be written and synced."""
    probe = f"{path}/{PROBE_NAME}"
    file = disk.open(probe, OpenMode.CREATE)
    try:
        file.pwrite(b"ok", 0)
        file.sync()
        if file.pread(2, 0) != b"ok":
            raise OSError(f"{probe} does not contain what was written to it")
    finally:
        file.close()
    disk.remove(probe)


class OpenedDirectories(NamedTuple):
    """The usable directories, and the reasons why the others are not usable."""

    online: list[LogDirectory]
    offline: dict[str, str]


def open_directories(
    ports: LogDirPorts, paths: Sequence[str], *, node_id: NodeId, cluster_id: str | None = None
) -> OpenedDirectories:
    """Open all of ``log.dirs``. One whose disk fails is left out; the others are opened.

    Raises:
        DirectoryInUse, MetaPropertiesRefused: for any of them. The node must not start, and
            every directory is as it was.
    """
    online: list[LogDirectory] = []
    offline: dict[str, str] = {}
    try:
        for path in paths:
            try:
                directory = LogDirectory.open(ports, path, node_id=node_id, cluster_id=cluster_id)
            except StorageFailed as error:
                offline[path] = error.reason
                continue
            online.append(directory)
            # Without a given cluster id, the first directory determines it.
            cluster_id = cluster_id or directory.meta.cluster_id
            if sum(each.directory_id == directory.directory_id for each in online) > 1:
                raise MetaPropertiesRefused(f"{path}: has the directory.id of another directory")
    except (DirectoryInUse, MetaPropertiesRefused):
        for directory in online:
            directory.close()
        raise
    return OpenedDirectories(online, offline)
