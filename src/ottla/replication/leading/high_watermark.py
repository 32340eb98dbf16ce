"""The high watermark of a led partition.

Pure. The high watermark is the smallest log end of the leader, of every follower in the maximal
ISR, and of every follower that is about to join it: otherwise a leader alone in its ISR would
run ahead of a follower that is as fast as possible, and never let it join. It never falls, and does
not advance while fewer than ``min.insync.replicas`` are in sync (KIP-966).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.protocol.types import Millis, Offset
from ottla.replication.leading.follower_progress import FollowerProgress
from ottla.replication.leading.isr_state import Eligible, Isr


class Lag(NamedTuple):
    """The time now and ``replica.lag.time.max.ms``, by which followers count as lagging."""

    now: Millis
    ms_max: int


def is_under_min_isr(isr: Isr, min_insync_replicas: int, replicas_count: int) -> bool:
    """Whether too few replicas are in sync; limited to the number of replicas."""
    return len(isr.committed) < min(min_insync_replicas, replicas_count)


def decide_high_watermark(
    log_end: Offset,
    isr: Isr,
    followers: Mapping[int, FollowerProgress],
    lag: Lag,
    is_eligible: Eligible,
) -> Offset:
    """Return the smallest log end of the replicas that count. May be below the current value."""
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
