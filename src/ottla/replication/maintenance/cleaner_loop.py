"""Compact the logs hosted here, of leaders and followers alike.

Cleans the dirtiest log of a directory, in steps of a few milliseconds. After each it rests, the
longer the more requests use the event loop (`cleaner_pace.py`), or as long as
``log.cleaner.io.max.bytes.per.second`` requires. When no log is dirty enough, it pauses for
``log.cleaner.backoff.ms``.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.config.generated import BrokerConfig
from ottla.protocol.faults import CorruptBatch, Fault, StorageFailed, UnsupportedMagic
from ottla.protocol.types import Millis
from ottla.replication.event_wait import wait_or_timeout
from ottla.replication.host import Host
from ottla.replication.maintenance.cleaner_pace import CleanerPace
from ottla.replication.maintenance.directory_work import DirectoryWork
from ottla.replication.partition import Partition
from ottla.storage.cleaner.compactor import CleaningAborted, OffsetMapTooSmall
from ottla.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner, LogToClean
from ottla.storage.directory.log_dir import LogDirectory

log = logging.getLogger(__name__)


class LogCleanerService:
    """Service: cleans until cancelled. ``now`` is the time that decides which tombstones expire."""

    name = "log-cleaner"

    def __init__(self, host: Host, config: BrokerConfig, now: Callable[[], Millis]) -> None:
        self._host = host
        self._now = now
        self._cleaners: dict[str, LogCleaner] = {}
        self._paces: dict[str, CleanerPace] = {}
        self._configured = asyncio.Event()
        self.configure(config)
        host.log_events.on_truncated(self._cut)
        host.log_events.on_deleted(self._gone)
        host.log_events.on_moved(self._moved)
        host.log_events.on_repaired(self._repaired)

    def configure(self, config: BrokerConfig) -> None:
        """Apply new settings: the rate at once, memory from the next log on.

        Ends a pause that is in progress. A rate that is not above 0 is unlimited, as in Kafka.
        """
        self._backoff_ms = config.ottla_cleaner_interval_ms or config.log_cleaner_backoff_ms
        self._bytes_per_second = config.log_cleaner_io_max_bytes_per_second
        self._settings = CleanerSettings(
            config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_load_factor
        )
        for cleaner in self._cleaners.values():
            cleaner.configure(self._settings)
        self._configured.set()

    def describe(self) -> dict[str, float]:
        """Return the current settings, by key."""
        return {
            "log.cleaner.backoff.ms": self._backoff_ms,
            "log.cleaner.io.max.bytes.per.second": self._bytes_per_second,
            "log.cleaner.dedupe.buffer.size": self._settings.dedupe_buffer_bytes,
            "log.cleaner.io.buffer.load.factor": self._settings.load_factor,
        }

    async def run(self, ready: Callable[[], None]) -> None:
        """Clean what is dirty, then pause, until cancelled."""
        for directory in self._host.directories.online:
            with DirectoryWork(self._host, directory):
                self._load(directory)
        ready()
        while True:
            has_cleaned = False
            for directory in self._host.directories.online:
                with DirectoryWork(self._host, directory):
                    has_cleaned |= await self._clean_one(directory)
            await self._pause(0 if has_cleaned else self._backoff_ms)

    async def _pause(self, pause_ms: int) -> None:
        self._configured.clear()
        await wait_or_timeout(self._configured, pause_ms)

    def _load(self, directory: LogDirectory) -> None:
        ports = self._host.ports
        cleaner = LogCleaner(ports.disk, directory.path, ports.random, self._settings)
        if not cleaner.load():
            log.warning("cleaner checkpoint is corrupt, all logs count as dirty path=%s",
                        directory.path)  # fmt: skip
        self._cleaners[directory.path] = cleaner
        self._paces[directory.path] = CleanerPace()

    async def _clean_one(self, directory: LogDirectory) -> bool:
        """Clean the dirtiest log of a directory; False when there was nothing to do."""
        cleaner = self._cleaners.get(directory.path)
        if cleaner is None:
            return False
        logs = {name: hosted.log for name, hosted in directory.logs.items()}
        choice = cleaner.choose(logs, self._now())
        pace = self._paces[directory.path]
        if choice is None:
            pace.caught_up()
            return False
        pace.begin(choice.backlog, is_overdue=choice.dirty.overdue_ms > 0)
        try:
            await self._work(directory, cleaner, choice)
        except CleaningAborted:
            return True
        except StorageFailed:
            raise
        except (Fault, OffsetMapTooSmall) as error:
            log.warning("log cannot be cleaned partition=%s reason=%s", choice.partition, error)
            if isinstance(error, (CorruptBatch, UnsupportedMagic)):
                self._host.suspect_log(choice.partition)
        return True

    async def _work(self, directory: LogDirectory, cleaner: LogCleaner, choice: LogToClean) -> None:
        steps = cleaner.run(choice, self._now(), self._host.clock.stamp())
        loop, pace = asyncio.get_running_loop(), self._paces[directory.path]
        cpu_s = self._host.ports.thread_cpu_s
        began = loop.time()
        try:
            for moved in steps:
                ended, used = loop.time(), cpu_s()
                await asyncio.sleep(pace.rest_s(ended - began, moved, self._bytes_per_second))
                if cleaner.unsynced:
                    await self._host.directories.commit(directory, cleaner.unsynced)
                began = loop.time()
                pace.rested(cpu_s() - used, began - ended)
        finally:
            steps.close()  # type: ignore[attr-defined]  # a generator

    # -- events of logs ----------------------------------------------------------

    def _cut(self, partition: Partition) -> None:
        """Mark what is written after the truncation as dirty, before anything is appended."""
        cleaner = self._cleaners.get(partition.directory.path)
        if cleaner is not None and not partition.directory.is_failed:
            with DirectoryWork(self._host, partition.directory):
                cleaner.truncated(partition.name, partition.log.log_end_offset)

    def _repaired(self, partition: Partition) -> None:
        cleaner = self._cleaners.get(partition.directory.path)
        if cleaner is not None:
            cleaner.repaired(partition.name)

    def _gone(self, partition: Partition) -> None:
        cleaner = self._cleaners.get(partition.directory.path)
        if cleaner is not None and not partition.directory.is_failed:
            with DirectoryWork(self._host, partition.directory):
                cleaner.forget(partition.name)

    def _moved(self, partition: Partition, left: LogDirectory) -> None:
        """Carry the clean part over to the new directory."""
        old, new = self._cleaners.get(left.path), self._cleaners.get(partition.directory.path)
        cleaned = None if old is None else old.checkpoint.get(partition.name)
        if new is not None:
            with DirectoryWork(self._host, partition.directory):
                new.adopt(partition.name, cleaned)
        if old is not None and not left.is_failed:
            with DirectoryWork(self._host, left):
                old.forget(partition.name)
