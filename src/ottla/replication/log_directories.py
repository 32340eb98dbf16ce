"""The log directories of a broker.

A directory that fails takes its partitions offline, at once and until the restart; the others are
not affected. After the last one has failed, `wait_all_failed` returns.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.runtime.ports import Committer, Syncable
from ottla.storage.directory.log_dir import LogDirectory

log = logging.getLogger(__name__)

# Preferred directories of replicas that are not hosted yet; the oldest entry is dropped first.
PREFERRED_MAX: Final = 10_000


class LogDirectories:
    """The directories that were online at start, and the partitions in them.

    ``committer`` creates the committer of a directory, by its path. ``has_offline_at_start`` says
    whether other directories were offline at start.
    """

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        partitions: Partitions,
        committer: Callable[[str], Committer],
        has_offline_at_start: bool,
    ) -> None:
        self.all = tuple(directories)
        self._partitions = partitions
        self._committer = committer
        self._has_offline_at_start = has_offline_at_start
        self._committers: dict[str, Committer] = {}
        self._lost: dict[str, str] = {}
        self._all_failed = asyncio.Event()
        self._on_failure: list[Callable[[LogDirectory], None]] = []
        self._preferred: dict[TopicPartition, LogDirectory] = {}

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that are online, in the order of ``log.dirs``."""
        return [directory for directory in self.all if not directory.is_failed]

    @property
    def has_offline(self) -> bool:
        """Whether a log that is not found may be in an offline directory."""
        return self._has_offline_at_start or len(self.online) < len(self.all)

    def find(self, directory_id: Uuid | None) -> LogDirectory | None:
        """Return an online directory by its id."""
        matching = (each for each in self.online if each.directory_id == directory_id)
        return next(matching, None)

    # -- where new replicas go -----------------------------------------------------

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

    # -- failures ------------------------------------------------------------------

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
        for partition in self._partitions.fail(fault):
            self._partitions.notify_unled(partition, partition.leader_epoch)
        if not self.online:
            self._all_failed.set()
        for callback in self._on_failure:
            callback(directory)

    def failures(self) -> str:
        """Return the failed directories and the reasons."""
        return "; ".join(f"{path}: {reason}" for path, reason in self._lost.items())

    async def wait_all_failed(self) -> None:
        """Return when no directory is online."""
        await self._all_failed.wait()

    # -- syncing -------------------------------------------------------------------

    async def commit(self, directory: LogDirectory, files: Sequence[Syncable]) -> None:
        """Sync files of a directory, off the event loop. A failure takes it offline.

        Raises:
            StorageFailed: it failed, now or before.
        """
        directory.check_online()
        committer = self._committers.get(directory.path)
        if committer is None:
            committer = self._committers[directory.path] = self._committer(directory.path)
        try:
            await committer.commit(files)
        except StorageFailed as fault:
            self.storage_failed(directory, fault.reason)
            raise

    async def close(self) -> None:
        """Wait for the committers to finish, before the directories are closed."""
        for committer in self._committers.values():
            await committer.close()
