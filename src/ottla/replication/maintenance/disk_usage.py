"""How much disk each partition uses, all of its files together, measured periodically."""

import asyncio
from typing import Final

from ottla.protocol.types import TopicPartition
from ottla.replication.host import Host
from ottla.storage.directory.log_dir import LogDirectory

# Measuring a log takes several system calls; the event loop runs in between.
LOGS_PER_TURN: Final = 20


class DiskUsage:
    """``sizes`` are bytes by partition, as of the last scan; a moving partition counts twice."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.sizes: dict[TopicPartition, int] = {}

    async def scan(self) -> None:
        """Measure every log in the online directories."""
        found: dict[TopicPartition, int] = {}
        looked = 0
        for directory in self._host.directories.online:
            for partition, name in _logs(directory):
                found[partition] = found.get(partition, 0) + self._size(f"{directory.path}/{name}")
                looked += 1
                if looked % LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
        self.sizes = found

    def _size(self, path: str) -> int:
        """Return the bytes of a log's files; a log that is removed meanwhile counts partly."""
        disk, size = self._host.ports.disk, 0
        try:
            for name in disk.list(path):
                size += disk.size(f"{path}/{name}")
        except OSError:
            # Renamed or deleted meanwhile. Writers detect a failing disk.
            return size
        return size


def _logs(directory: LogDirectory) -> list[tuple[TopicPartition, str]]:
    every = (*directory.logs.items(), *directory.future_logs.items())
    return [(partition, hosted.name) for partition, hosted in every]
