"""How much disk each partition takes, all of its files together, measured now and then."""

import asyncio
from typing import Final

from ottla.protocol.types import TopicPartition
from ottla.replication.host import Host
from ottla.storage.log_dir import LogDirectory

# A look at one log is some system calls; others get a turn between.
LOGS_PER_TURN: Final = 20


class DiskUsage:
    """``sizes`` are bytes by partition, as of the last scan; one that moves counts twice."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.sizes: dict[TopicPartition, int] = {}

    async def scan(self) -> None:
        """Measure every log in the directories that work."""
        found: dict[TopicPartition, int] = {}
        looked = 0
        for directory in self._host.online:
            for partition, name in _logs(directory):
                found[partition] = found.get(partition, 0) + self._size(f"{directory.path}/{name}")
                looked += 1
                if looked % LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
        self.sizes = found

    def _size(self, path: str) -> int:
        """Return the bytes of a log's files; one that goes meanwhile counts as none."""
        disk, size = self._host.ports.disk, 0
        try:
            for name in disk.list(path):
                size += disk.size(f"{path}/{name}")
        except OSError:
            # Renamed or deleted since. A disk that fails is noticed by those who write to it.
            return size
        return size


def _logs(directory: LogDirectory) -> list[tuple[TopicPartition, str]]:
    every = (*directory.logs.items(), *directory.future_logs.items())
    return [(partition, hosted.name) for partition, hosted in every]
