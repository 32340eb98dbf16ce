"""How far one follower of a led partition has got, as its fetches show.

Pure. Times are the leader's monotonic milliseconds. A follower has caught up at the moment of a
fetch if it asks for the leader's end, or for what was the end when it fetched before: then it
has all that there was at that earlier moment, and under a steady load no more can be had.
"""

from typing import Final

import msgspec

from ottla.protocol.types import Millis, Offset

UNKNOWN: Final = Offset(-1)
NO_BROKER_EPOCH: Final = -1
# Before any time a monotonic clock can show, less any lag that can be set.
NEVER: Final = Millis(-(2**62))


class FollowerProgress(msgspec.Struct):
    """Of one follower, since this node leads.

    ``log_end`` is the offset it asked for last: it has everything below. ``broker_epoch`` is by
    which registration it fetches (KIP-903): None before its first fetch, -1 if it does not say.
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
        """Start over for a new leader epoch: one in sync counts as caught up for now."""
        if is_new_leader:
            self.log_start = self.log_end = self.leader_end_at_fetch = UNKNOWN
            self.broker_epoch = None
            self.fetched_at = NEVER
        else:
            self.leader_end_at_fetch = leader_end
            self.fetched_at = now if is_in_sync else NEVER
        self.caught_up_at = now if is_in_sync else NEVER

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now: Millis) -> None:
        """Take note of a fetch from ``offset``; ``leader_end`` is where the leader's log ends."""
        if offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_start, self.log_end = log_start, offset
        self.leader_end_at_fetch = leader_end
        self.fetched_at = max(self.fetched_at, now)

    def rested(self, since: Millis) -> None:
        """Take note that it went on asking for the leader's end, at ``since`` for the last time.

        The end was still the one of the fetch before.
        """
        self.caught_up_at = max(self.caught_up_at, since)
        self.fetched_at = max(self.fetched_at, since)

    def is_caught_up(self, leader_end: Offset, now: Millis, lag_ms_max: int) -> bool:
        """Say whether it has all, or had all there was within ``replica.lag.time.max.ms``."""
        return self.log_end == leader_end or now - self.caught_up_at <= lag_ms_max
