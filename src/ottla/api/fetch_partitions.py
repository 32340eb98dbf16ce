"""The partitions of a fetch session: which have to be looked at, and which rest until they change.

Pure. Most partitions of a cluster are quiet, and a follower or consumer of thousands asks for all
of them twice a second. So one that has nothing for its fetcher, and nothing to tell, rests: it is
not looked at again before it grows, is trimmed, or changes hands, and wakes those that rest then.

    awake --nothing new, at its end--> resting --on_appended, or asked for otherwise--> awake

Invariant: a partition is awake or it rests; whoever rests listens, and whoever is awake does not.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.api.fetch_reply import NO_REPLICA, Row
from ottla.api.fetch_request import FetchPartition, Topic
from ottla.protocol.types import Offset
from ottla.replication.partition import Partition
from ottla.replication.waiters import Unsubscribe

_UNKNOWN: Final = Offset(-1)
Key = tuple[Topic, int]

RESTING_MAX: Final = 200_000
"""Partitions of all sessions that rest: each listens, which takes half a kilobyte."""


class FetchedPartition(msgspec.Struct, eq=False):
    """A partition that is fetched, with what its fetcher was told last.

    ``name`` is None for a topic id that nobody knew so far.
    """

    topic: Topic
    requested: FetchPartition
    name: str | None = None
    high_watermark: Offset = _UNKNOWN
    log_start_offset: Offset = _UNKNOWN

    @property
    def key(self) -> Key:
        """Its place in a session."""
        return self.topic, self.requested.partition

    def is_news(self, row: Row) -> bool:
        """Say whether its fetcher has to be told of ``row``."""
        return (
            row.size > 0
            or row.error != 0
            or row.preferred_replica != NO_REPLICA
            or row.diverging is not None
            or self.high_watermark != row.high_watermark
            or self.log_start_offset != row.log_start_offset
        )

    def learn(self, row: Row) -> bool:
        """Take note of what is about to be told; say whether it has to be."""
        is_news = self.is_news(row)
        # After an error nothing counts as known, so that its end is told as well.
        self.high_watermark = _UNKNOWN if row.error else row.high_watermark
        self.log_start_offset = row.log_start_offset
        return is_news


class Rest(msgspec.Struct):
    """How many partitions rest, in all sessions."""

    count: int = 0
    count_max: int = RESTING_MAX


class SessionPartitions:
    """Those of one session. The awake ones are in the order in which they are read."""

    __slots__ = ("_all", "_awake", "_rest", "_resting", "on_roused")

    def __init__(self, rest: Rest) -> None:
        self._all: dict[Key, FetchedPartition] = {}
        self._awake: dict[Key, FetchedPartition] = {}
        self._resting: dict[FetchedPartition, Unsubscribe] = {}
        self._rest = rest
        self.on_roused: Callable[[FetchedPartition, Partition], None] | None = None
        """PartitionRow of every one that wakes by itself: by whoever waits for the session."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def awake(self) -> Iterable[FetchedPartition]:
        """Those to look at."""
        return self._awake.values()

    @property
    def resting(self) -> Iterable[FetchedPartition]:
        """Those that have nothing new."""
        return self._resting

    def put(self, fetched: FetchedPartition) -> None:
        """Add one, or fetch a known one as is asked for now."""
        known = self._all.get(fetched.key)
        if known is None:
            self._all[fetched.key] = self._awake[fetched.key] = fetched
        else:
            known.requested = fetched.requested
            self._wake(known)

    def drop(self, key: Key) -> None:
        """Remove one, if it is there."""
        fetched = self._all.pop(key, None)
        if fetched is not None:
            self._wake(fetched)
            del self._awake[key]

    def to_end(self, fetched: FetchedPartition) -> None:
        """Read it last from now on: the others come first next time."""
        if self._awake.pop(fetched.key, None) is not None:
            self._awake[fetched.key] = fetched

    def rest(
        self, fetched: FetchedPartition, partition: Partition, woken: Callable[[Partition], None]
    ) -> bool:
        """Let one rest until ``partition`` changes; ``woken`` is called then, before anybody else.

        False where too many rest already, or it is no longer in the session.
        """
        if self._rest.count >= self._rest.count_max or fetched.key not in self._awake:
            return False

        def rouse() -> None:
            self._wake(fetched)
            woken(partition)
            if self.on_roused is not None:
                self.on_roused(fetched, partition)

        del self._awake[fetched.key]
        self._resting[fetched] = partition.on_appended(rouse)
        self._rest.count += 1
        return True

    def _wake(self, fetched: FetchedPartition) -> None:
        unsubscribe = self._resting.pop(fetched, None)
        if unsubscribe is not None:
            unsubscribe()
            self._rest.count -= 1
            self._awake[fetched.key] = fetched

    def wake_all(self) -> None:
        """Look at every one again; also before a session is let go, so that nobody listens."""
        for fetched in list(self._resting):
            self._wake(fetched)
