"""The partitions assigned to this node that are not hosted yet, because an image has many of them.

A request for one of them is answered with NOT_LEADER_OR_FOLLOWER, and the client repeats it.
"""

import asyncio
from itertools import islice

from ottla.protocol.types import Uuid

PendingReplica = tuple[Uuid, int]
"""The id of a topic and the index of a partition."""


class PendingReplicas:
    """A queue without duplicates, in the order of the images. Bounded by the metadata."""

    def __init__(self) -> None:
        self._waiting: dict[PendingReplica, None] = {}
        self._is_waiting = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, replica: PendingReplica) -> None:
        """Add a replica, unless it waits already."""
        self._waiting[replica] = None
        self._is_waiting.set()

    def discard(self, replica: PendingReplica) -> bool:
        """Remove a replica; False if it does not wait."""
        is_found = replica in self._waiting
        self._waiting.pop(replica, None)
        return is_found

    def take(self, count: int) -> list[PendingReplica]:
        """Remove and return the first ``count``."""
        taken = list(islice(self._waiting, count))
        for replica in taken:
            del self._waiting[replica]
        if not self._waiting:
            self._is_waiting.clear()
        return taken

    async def wait(self) -> None:
        """Return once a replica waits."""
        await self._is_waiting.wait()
