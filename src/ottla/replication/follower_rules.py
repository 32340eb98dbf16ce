"""Where a follower has to go when its log and its leader's differ.

Pure (KIP-101, KIP-279, KIP-595). Every fetch names the epoch of the follower's last record. A
leader whose history differs answers with the largest epoch it knows at or below that one, and
where it ends; the follower cuts back to there, or to where its own records of that epoch end,
and asks again. Each round gets at least one epoch further back, so it ends.
"""

import enum
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Offset
from ottla.storage.leader_epochs import LeaderEpochs


class DivergingEpoch(NamedTuple):
    """What the leader said: its epoch, and the offset behind the last record of it."""

    epoch: LeaderEpoch
    end_offset: Offset


def decide_cut(epochs: LeaderEpochs, log_end: Offset, leader: DivergingEpoch) -> Offset:
    """Return where to cut the log; at its end there is nothing to cut."""
    if leader.epoch < 0:
        return min(leader.end_offset, log_end)
    epoch, end = epochs.end_offset_for(leader.epoch, log_end)
    if end < 0:
        # All of ours is older than any epoch we have noted: only the leader's word is left.
        return min(leader.end_offset, log_end)
    if epoch != leader.epoch:
        # We have nothing of that epoch: what we have of the one before it may be shared.
        return min(end, log_end)
    return min(end, leader.end_offset, log_end)


class Range(NamedTuple):
    """What the leader has: its log start and its log end."""

    log_start: Offset
    log_end: Offset


class Reset(NamedTuple):
    """How to get back into the leader's range: cut to ``offset``, or begin anew there."""

    offset: Offset
    is_anew: bool


def decide_reset(log_end: Offset, leader: Range) -> Reset | None:
    """Decide after OFFSET_OUT_OF_RANGE; None when our end is within the leader's log after all.

    A leader that ends before us was elected uncleanly; one that starts behind us has deleted
    what we miss, and there is nothing of ours that it could continue.
    """
    if leader.log_end < log_end:
        return Reset(leader.log_end, is_anew=leader.log_start > leader.log_end)
    if leader.log_start > log_end:
        return Reset(leader.log_start, is_anew=True)
    return None


class FetchRound(NamedTuple):
    """What a fetch asked for of one partition, what it got, and how long that took."""

    bytes_asked: int
    bytes_got: int
    taken_ms: int


# How long a round may take that brings more of a partition than usual: all others wait for it.
_ROUND_MS_MAX: Final = 200


def decide_bytes(last: FetchRound, bytes_usual: int, bytes_max: int) -> int:
    """Decide how much of a partition to ask for next.

    ``bytes_usual`` (``replica.fetch.max.bytes``) of one that keeps up; twice as much each time of
    one that gets what it asks for, up to all that a response may hold, so that the round trips of
    a partition far behind cost little. On a slow line it stays with what comes in good time.
    """
    if last.bytes_got * 2 < last.bytes_asked:
        return bytes_usual
    if last.taken_ms > _ROUND_MS_MAX:
        return max(bytes_usual, last.bytes_asked // 2)
    if last.taken_ms * 2 > _ROUND_MS_MAX:
        return max(bytes_usual, last.bytes_asked)
    return max(bytes_usual, min(last.bytes_asked * 2, bytes_max))


class AfterError(enum.Enum):
    """What becomes of a partition whose fetch was refused."""

    DELAY = "ask again a little later"
    RESET = "ask the leader for its range"
    STOP = "the reign is over: wait for the image"


_AFTER: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: AfterError.RESET,
    ErrorCode.FENCED_LEADER_EPOCH: AfterError.STOP,
}


def decide_after_error(error: ErrorCode) -> AfterError:
    """Decide by the leader's answer for one partition."""
    return _AFTER.get(error, AfterError.DELAY)
