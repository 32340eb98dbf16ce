"""The progress of one follower of a led partition, as its fetches show it.

Pure. Times are the leader's monotonic milliseconds. A follower is caught up at the time of a fetch
if it fetches from the leader's end, or from what was the end at its previous fetch: then it has
everything that existed at that time, and under steady load a follower cannot do better.
"""

from typing import Final

import msgspec

from ottla.protocol.types import Millis, Offset

UNKNOWN: Final = Offset(-1)
NO_BROKER_EPOCH: Final = -1
# Before any time that a monotonic clock can return, minus any lag that can be set.
NEVER: Final = Millis(-(2**62))


class FollowerProgress(msgspec.Struct):
    """The state of one follower since this node leads.

    ``log_end`` is the offset it fetched last: it has everything below. ``broker_epoch`` is its
    broker's registration (KIP-903): None before its first fetch, -1 if the fetch does not name it.
    """

    log_start: Offset = UNKNOWN
    log_end: Offset = UNKNOWN
    caught_up_at: Millis = NEVER
    fetched_at: Millis = NEVER
    leader_end_at_fetch: Offset = UNKNOWN
    broker_epoch: int | None = None

    def begin_epoch(
        self, leader_end: Offset, now: Millis, *, is_new_leader: bool, is_in_sync: bool
    ) -> None:
        """Start over for a new leader epoch: a follower in sync counts as caught up for now."""
        if is_new_leader:
            self.log_start = self.log_end = self.leader_end_at_fetch = UNKNOWN
            self.broker_epoch = None
            self.fetched_at = NEVER
        else:
            self.leader_end_at_fetch = leader_end
            self.fetched_at = now if is_in_sync else NEVER
        self.caught_up_at = now if is_in_sync else NEVER

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now: Millis) -> None:
        """Record a fetch from ``offset``; ``leader_end`` is the end of the leader's log."""
        if offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_start, self.log_end = log_start, offset
        self.leader_end_at_fetch = leader_end
        self.fetched_at = max(self.fetched_at, now)

    def rested(self, since: Millis) -> None:
        """Record that the follower kept fetching from the leader's end, last at ``since``.

        The end was still that of its previous fetch.
        """
        self.caught_up_at = max(self.caught_up_at, since)
        self.fetched_at = max(self.fetched_at, since)

    def is_caught_up(self, leader_end: Offset, now: Millis, lag_ms_max: int) -> bool:
        """Whether it has everything, or did within ``replica.lag.time.max.ms``."""
        return self.log_end == leader_end or now - self.caught_up_at <= lag_ms_max
