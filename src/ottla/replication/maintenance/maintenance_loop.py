"""Periodic tasks of a broker for its logs: retention, file removal, flushing, checkpoints, expiry.

Each is a service of its own with Kafka's interval. Work that may wait for the disk goes through the
directory's committer, off the event loop; the rest is done log by log, letting the loop run in
between. A directory that fails is taken offline, and the work continues with the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import Millis
from ottla.replication.host import Host
from ottla.replication.maintenance.directory_work import DirectoryWork
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.log.flushing import by_path
from ottla.storage.log.log_maintenance import delete_old_segments

# How often logs are checked for something to flush or remove. Kafka uses a timer per log for
# both; checking a thousand logs takes a millisecond.
CHECK_MS: Final = 1000
NEVER_MS: Final = 2**63 - 1
"""``flush.ms`` of a topic that is not flushed by time."""
# A thousand logs at once would block clients for milliseconds.
LOGS_PER_TURN: Final = 100


class PeriodicTask(msgspec.Struct, frozen=True):
    """Service: runs ``work`` every ``interval_ms``, first after ``delay_ms``."""

    name: str
    interval_ms: int
    work: Callable[[], Awaitable[None]]
    delay_ms: int = 0

    async def run(self, ready: Callable[[], None]) -> None:
        """Run the task until cancelled."""
        ready()
        await asyncio.sleep(self.delay_ms / 1000)
        while True:
            await self.work()
            await asyncio.sleep(self.interval_ms / 1000)


class LogMaintenance:
    """The work of the tasks. One per broker."""

    def __init__(self, host: Host, replicas: Replicas) -> None:
        self._host = host
        self._replicas = replicas
        self._clock = host.clock
        self._flushed_at: dict[Partition, Millis] = {}

    def now(self) -> Millis:
        """Return the time that decides which records are old: a clock jump deletes nothing."""
        return self._clock.expiry()

    async def _each(
        self, work: Callable[[Partition], None], partitions: Iterable[Partition] | None = None
    ) -> None:
        """Run ``work`` for every online partition, of all or of those given."""
        for at, partition in enumerate(self._host.partitions if partitions is None else partitions):
            if at % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
            if partition.offline is None and not partition.log.is_failed:
                with DirectoryWork(self._host, partition.directory):
                    work(partition)

    # -- retention -------------------------------------------------------------

    async def delete_old(self) -> None:
        """Delete segments by ``retention.ms`` and ``retention.bytes``, and trimmed ones."""
        now = self.now()
        await self._each(lambda partition: _delete_old(partition, now))

    async def remove_files(self) -> None:
        """Remove the files of segments and logs that were deleted long enough ago."""
        self.now()  # so that a jump of the clock is noticed while it is small
        # Nearly always none of thousands: this scan and that of `flush_due` are most of what an
        # idle partition costs, so they read nothing but a flag.
        pending = [each for each in self._host.partitions if each.log.has_deleted_segments]
        await self._each(_purge, pending)
        for _ in self._replicas.purge():
            await asyncio.sleep(0)

    async def expire_producers(self) -> None:
        """Remove producers that have been idle for ``producer.id.expiration.ms``."""
        now = self.now()
        await self._each(lambda partition: _expire(partition, now))

    # -- flushing --------------------------------------------------------------

    async def flush_due(self) -> None:
        """Sync the logs that have rolled since the last sync, or whose ``flush.ms`` has passed."""
        now = self._clock.monotonic()
        for gone in [each for each in self._flushed_at if each.is_closed]:
            del self._flushed_at[gone]
        candidates = [
            each
            for each in self._host.partitions
            if each.log.has_unsynced_roll or each.config.flush_ms < NEVER_MS
        ]
        for partition in candidates:
            if partition.offline is None and self._is_flush_due(partition, now):
                await self.flush(partition)
                self._flushed_at[partition] = now

    def _is_flush_due(self, partition: Partition, now: Millis) -> bool:
        log = partition.log
        if log.recovery_point >= log.log_end_offset or log.is_failed:
            return False
        if log.segments[-1].base_offset > log.recovery_point:
            return True
        if partition.config.flush_ms >= NEVER_MS:
            return False
        last = self._flushed_at.setdefault(partition, now)
        return now - last >= partition.config.flush_ms

    async def write_starts(self) -> None:
        """Write the log starts that have advanced; records were deleted and files not yet."""
        for partition in [each for each in self._host.partitions if each.log.has_unwritten_start]:
            log = partition.log
            if partition.offline is not None or partition.is_closed or log.is_failed:
                continue
            with DirectoryWork(self._host, partition.directory):
                draft = log.start_draft()
                await self._host.directories.commit(partition.directory, [draft])
                if not log.is_failed:  # nor closed
                    log.place_start(draft)

    async def flush(self, partition: Partition) -> None:
        """Make everything in a log durable; a failure takes its directory offline."""
        log = partition.log
        try:
            plan = log.flush_plan()
            files = by_path(plan, self._host.ports.disk)
            await self._host.directories.commit(partition.directory, files)
        except StorageFailed:
            return
        log.flushed(plan)

    # -- checkpoints -----------------------------------------------------------

    async def write_checkpoints(self) -> None:
        """Write recovery points, log starts and high watermarks of every directory."""
        for directory in self._host.directories.online:
            with DirectoryWork(self._host, directory):
                await self._host.directories.commit(directory, directory.checkpoint_writes())

    async def write_high_watermarks(self) -> None:
        """Write the high watermarks only, of directories where one has moved."""
        for directory in self._host.directories.online:
            with DirectoryWork(self._host, directory):
                if writes := directory.high_watermark_writes():
                    await self._host.directories.commit(directory, writes)


def _delete_old(partition: Partition, now: Millis) -> None:
    if not delete_old_segments(partition.log, now).is_empty:
        partition.log_trimmed()


def _purge(partition: Partition) -> None:
    partition.log.purge_deleted()


def _expire(partition: Partition, now: Millis) -> None:
    partition.log.producers.expire(now)


def maintenance_tasks(
    maintenance: LogMaintenance, config: BrokerConfig
) -> tuple[PeriodicTask, ...]:
    """Return the tasks, in the order they start."""
    delay = config.log_initial_task_delay_ms
    retention = config.ottla_cleaner_interval_ms or config.log_retention_check_interval_ms
    expiry = config.producer_id_expiration_check_interval_ms
    checkpoint = config.log_flush_offset_checkpoint_interval_ms
    high_watermarks = config.replica_high_watermark_checkpoint_interval_ms
    return (
        PeriodicTask("retention", retention, maintenance.delete_old, min(delay, retention)),
        PeriodicTask("file-removal", CHECK_MS, maintenance.remove_files),
        PeriodicTask("log-flusher", CHECK_MS, maintenance.flush_due),
        PeriodicTask("log-starts", CHECK_MS, maintenance.write_starts),
        PeriodicTask(
            "checkpoints", checkpoint, maintenance.write_checkpoints, min(delay, checkpoint)
        ),
        PeriodicTask(
            "high-watermarks", high_watermarks, maintenance.write_high_watermarks, high_watermarks
        ),
        PeriodicTask("producer-expiry", expiry, maintenance.expire_producers, expiry),
    )
