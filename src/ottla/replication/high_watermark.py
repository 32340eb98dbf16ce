"""How far a led partition is replicated.

Pure. The high watermark is the smallest log end of the leader, of every follower in the maximal
ISR, and of every follower that is about to join it: without the last, a leader alone in its ISR
would run ahead of a follower that is as fast as can be, and never let it in. It never falls, and
it stands still while fewer than ``min.insync.replicas`` are in sync (KIP-966).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.protocol.types import Millis, Offset
from ottla.replication.follower_progress import FollowerProgress
from ottla.replication.isr_state import Eligible, Isr


class Lag(NamedTuple):
    """By which followers are judged: the time now and ``replica.lag.time.max.ms``."""

    now: Millis
    ms_max: int


def is_under_min_isr(isr: Isr, min_insync_replicas: int, replicas_count: int) -> bool:
    """Say whether too few replicas are in sync; no more can be asked for than there are."""
    return len(isr.committed) < min(min_insync_replicas, replicas_count)


def decide_high_watermark(
    log_end: Offset,
    isr: Isr,
    followers: Mapping[int, FollowerProgress],
    lag: Lag,
    is_eligible: Eligible,
) -> Offset:
    """Return how far all that count have got. The caller never lets its own fall."""
    lowest = log_end
    maximal = isr.maximal
    for broker, follower in followers.items():
        if follower.log_end >= lowest:
            continue
        if broker in maximal or (
            follower.is_caught_up(log_end, lag.now, lag.ms_max)
            and is_eligible(broker, follower.broker_epoch)
        ):
            lowest = follower.log_end
    return lowest
