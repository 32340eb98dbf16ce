"""The partitions that are not in step with the image yet, because an image changes many of them.

A request for one that is not created yet is answered with NOT_LEADER_OR_FOLLOWER, and the client
repeats it. One that exists is served as the image before had it, as on a broker that gets the image
a moment later.
"""

import asyncio
import enum
from collections import OrderedDict
from typing import NamedTuple

from ottla.protocol.types import Uuid

PendingReplica = tuple[Uuid, int]
"""The id of a topic and the index of a partition."""


class Urgency(enum.IntEnum):
    """Which partitions come first."""

    LEADER = 0  # led here now, or no longer
    REPLICA = 1  # created, or fetched from another leader
    WATERMARK = 2  # unchanged: a broker is alive or fenced, so its high watermark may advance


class Due(NamedTuple):
    """A partition whose turn has come."""

    replica: PendingReplica
    urgency: Urgency


class PendingReplicas:
    """Queues without duplicates, one for each urgency, in the order of the images.

    Bounded by the metadata.
    """

    def __init__(self) -> None:
        # Ordered ones: to take the first of a plain dict costs as much as were taken before.
        self._waiting: tuple[OrderedDict[PendingReplica, None], ...] = tuple(
            OrderedDict() for _ in Urgency
        )
        self._is_waiting = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def add(self, replica: PendingReplica, urgency: Urgency) -> None:
        """Add a replica, unless it waits already."""
        self._waiting[urgency][replica] = None
        self._is_waiting.set()

    def discard(self, replica: PendingReplica) -> bool:
        """Remove a replica; False if it does not wait."""
        is_found = any(replica in waiting for waiting in self._waiting)
        for waiting in self._waiting:
            waiting.pop(replica, None)
        return is_found

    def supersede(self, replica: PendingReplica) -> None:
        """Remove a replica that a newer image changes; its high watermark may advance still."""
        self._waiting[Urgency.LEADER].pop(replica, None)
        self._waiting[Urgency.REPLICA].pop(replica, None)

    def take(self) -> Due | None:
        """Remove and return the most urgent replica; None if none waits."""
        for urgency in Urgency:
            waiting = self._waiting[urgency]
            if waiting:
                return Due(waiting.popitem(last=False)[0], urgency)
        self._is_waiting.clear()
        return None

    async def wait(self) -> None:
        """Return once a replica waits."""
        if self:
            return
        self._is_waiting.clear()
        await self._is_waiting.wait()
