"""The partitions of a fetch session: active ones are read, idle ones wait until they change.

Pure. Most partitions of a cluster are idle, and a follower or consumer of thousands fetches all of
them twice a second. A partition with no records and no news for its fetcher becomes idle: it is not
read again until its log grows or is trimmed or its leader changes, which makes it active again.

    active --nothing new, at its end--> idle --on_appended, or a changed request--> active

Invariant: a partition is either active (``awake``) or idle (``resting``); exactly the idle ones are
subscribed to changes of their partition.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.api.fetch.reply import NO_REPLICA, Row
from ottla.api.fetch.request import FetchPartition, Topic
from ottla.protocol.types import Offset
from ottla.replication.leading.waiters import Unsubscribe
from ottla.replication.partition import Partition

_UNKNOWN: Final = Offset(-1)
Key = tuple[Topic, int]

RESTING_MAX: Final = 200_000
"""Idle partitions of all sessions: each subscription takes half a kilobyte."""


class FetchedPartition(msgspec.Struct, eq=False):
    """A fetched partition, with the values last sent to its fetcher.

    ``name`` is None for a topic id that has been unknown so far.
    """

    topic: Topic
    requested: FetchPartition
    name: str | None = None
    high_watermark: Offset = _UNKNOWN
    log_start_offset: Offset = _UNKNOWN

    @property
    def key(self) -> Key:
        """Its key in a session."""
        return self.topic, self.requested.partition

    def is_news(self, row: Row) -> bool:
        """Return whether ``row`` has to be sent to the fetcher."""
        return (
            row.size > 0
            or row.error != 0
            or row.preferred_replica != NO_REPLICA
            or row.diverging is not None
            or self.high_watermark != row.high_watermark
            or self.log_start_offset != row.log_start_offset
        )

    def learn(self, row: Row) -> bool:
        """Store the values of ``row``; return whether it has to be sent."""
        is_news = self.is_news(row)
        # After an error no value counts as sent, so that the recovery is sent as well.
        self.high_watermark = _UNKNOWN if row.error else row.high_watermark
        self.log_start_offset = row.log_start_offset
        return is_news


class Rest(msgspec.Struct):
    """The number of idle partitions in all sessions."""

    count: int = 0
    count_max: int = RESTING_MAX


class SessionPartitions:
    """The partitions of one session. Active ones are in the order in which they are read."""

    __slots__ = ("_all", "_awake", "_rest", "_resting", "on_roused")

    def __init__(self, rest: Rest) -> None:
        self._all: dict[Key, FetchedPartition] = {}
        self._awake: dict[Key, FetchedPartition] = {}
        self._resting: dict[FetchedPartition, Unsubscribe] = {}
        self._rest = rest
        self.on_roused: Callable[[FetchedPartition, Partition], None] | None = None
        """Called with every partition that a change made active; set by the waiting fetch."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def awake(self) -> Iterable[FetchedPartition]:
        """The partitions to read."""
        return self._awake.values()

    @property
    def awake_count(self) -> int:
        """How many partitions there are to read."""
        return len(self._awake)

    @property
    def only_awake(self) -> FetchedPartition | None:
        """The partition to read, if it is the only one."""
        return next(iter(self._awake.values())) if len(self._awake) == 1 else None

    @property
    def resting(self) -> Iterable[FetchedPartition]:
        """The partitions without news."""
        return self._resting

    def put(self, fetched: FetchedPartition) -> None:
        """Add a partition, or update the request of a known one."""
        known = self._all.get(fetched.key)
        if known is None:
            self._all[fetched.key] = self._awake[fetched.key] = fetched
        else:
            known.requested = fetched.requested
            self._wake(known)

    def drop(self, key: Key) -> None:
        """Remove a partition, if it is in the session."""
        fetched = self._all.pop(key, None)
        if fetched is not None:
            self._wake(fetched)
            del self._awake[key]

    def to_end(self, fetched: FetchedPartition) -> None:
        """Read it after all others from the next request on."""
        if self._awake.pop(fetched.key, None) is not None:
            self._awake[fetched.key] = fetched

    def rest(
        self, fetched: FetchedPartition, partition: Partition, woken: Callable[[Partition], None]
    ) -> bool:
        """Make one idle until ``partition`` changes; ``woken`` is the first callback called then.

        Return False if too many are idle already, or it is no longer in the session.
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
        """Make all active; also called before a session is dropped, to remove its subscriptions."""
        for fetched in list(self._resting):
            self._wake(fetched)
