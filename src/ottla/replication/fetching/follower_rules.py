"""Rules of a follower: where to truncate when its log and its leader's differ, what to fetch next.

Pure (KIP-101, KIP-279, KIP-595). Every fetch names the epoch of the follower's last record. A
leader whose history differs answers with the largest epoch it knows at or below that one, and its
end offset; the follower truncates to there, or to the end of its own records of that epoch, and
fetches again. Each round goes back at least one epoch, so it terminates.
"""

import enum
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Offset
from ottla.storage.log.leader_epochs import LeaderEpochs


class DivergingEpoch(NamedTuple):
    """The leader's answer: its epoch, and the offset after that epoch's last record."""

    epoch: LeaderEpoch
    end_offset: Offset


def decide_cut(epochs: LeaderEpochs, log_end: Offset, leader: DivergingEpoch) -> Offset:
    """Return where to truncate the log; its end if there is nothing to remove."""
    if leader.epoch < 0:
        return min(leader.end_offset, log_end)
    epoch, end = epochs.end_offset_for(leader.epoch, log_end)
    if end < 0:
        # Our log is older than any epoch we have recorded: only the leader's offset is left.
        return min(leader.end_offset, log_end)
    if epoch != leader.epoch:
        # We have no records of that epoch: those of the epoch before it may be shared.
        return min(end, log_end)
    return min(end, leader.end_offset, log_end)


class Range(NamedTuple):
    """The range of the leader's log."""

    log_start: Offset
    log_end: Offset


class Reset(NamedTuple):
    """How to get back into the leader's range: truncate to ``offset``, or restart there."""

    offset: Offset
    is_restart: bool


def decide_reset(log_end: Offset, leader: Range) -> Reset | None:
    """Decide after OFFSET_OUT_OF_RANGE; None when our end is within the leader's log after all.

    A leader that ends before us was elected uncleanly; one that starts after our end has deleted
    the records that we miss, and cannot continue our log.
    """
    if leader.log_end < log_end:
        return Reset(leader.log_end, is_restart=leader.log_start > leader.log_end)
    if leader.log_start > log_end:
        return Reset(leader.log_start, is_restart=True)
    return None


class FetchRound(NamedTuple):
    """What a fetch requested of one partition, what it received, and how long it took."""

    bytes_asked: int
    bytes_got: int
    taken_ms: int


# How long a round with more than the usual bytes may take: all other partitions wait for it.
_ROUND_MS_MAX: Final = 200


def decide_bytes(last: FetchRound, bytes_usual: int, bytes_max: int) -> int:
    """Decide how much of a partition to request next.

    ``bytes_usual`` (``replica.fetch.max.bytes``) for one that keeps up; twice as much each time for
    one that receives all it requests, up to the limit of a response, so that the round trips of a
    partition far behind cost little. On a slow connection, what arrives in good time.
    """
    if last.bytes_got * 2 < last.bytes_asked:
        return bytes_usual
    if last.taken_ms > _ROUND_MS_MAX:
        return max(bytes_usual, last.bytes_asked // 2)
    if last.taken_ms * 2 > _ROUND_MS_MAX:
        return max(bytes_usual, last.bytes_asked)
    return max(bytes_usual, min(last.bytes_asked * 2, bytes_max))


class AfterError(enum.Enum):
    """What to do with a partition whose fetch was rejected."""

    DELAY = "fetch again a little later"
    RESET = "ask the leader for its range"
    STOP = "the leader epoch is over: wait for the image"
    SKIP = "begin after the part of the log that is only in remote storage"


_AFTER: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: AfterError.RESET,
    ErrorCode.FENCED_LEADER_EPOCH: AfterError.STOP,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: AfterError.SKIP,
}


def decide_after_error(error: ErrorCode) -> AfterError:
    """Decide by the leader's error for one partition."""
    return _AFTER.get(error, AfterError.DELAY)
