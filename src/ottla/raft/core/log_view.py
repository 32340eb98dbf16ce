"""The part of the log that the core may see, and how two logs compare.

The core never reads a record. Positions are ``(epoch, offset)``: the offset is that of the next
record, the epoch that of the record before it. They compare epoch first, which is what "at least as
up to date" means in a vote.

An empty log is at epoch 0, offset 0; the first leader has epoch 1.
"""

import enum
from typing import NamedTuple, Protocol

from ottla.protocol.types import LeaderEpoch, Offset


class LogPosition(NamedTuple):
    """An end of a log or of a snapshot: everything before ``offset``, last written in ``epoch``."""

    epoch: LeaderEpoch
    offset: Offset


# Written when a directory is formatted; it holds no state that a follower could be missing.
BOOTSTRAP_SNAPSHOT = LogPosition(LeaderEpoch(0), Offset(0))


class LogView(Protocol):
    """The replicated log, read-only. Valid between two steps, when all effects are performed."""

    def start_offset(self) -> Offset:
        """Return the offset of the first record in the log."""
        ...

    def end(self) -> LogPosition:
        """Return the end, unflushed records included; the latest snapshot's id when empty."""
        ...

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        """Return the largest epoch at or below ``epoch`` and its end offset.

        For an epoch newer than all, that is `end`; for one older than the log start, the id of the
        earliest snapshot.
        """
        ...

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch of the record before ``offset``, which is in the log or at its end.

        At the start of the log that is the epoch of the snapshot there, or 0.
        """
        ...

    def earliest_snapshot(self) -> LogPosition | None:
        """Return the oldest snapshot; it reaches at least to the start of the log."""
        ...

    def latest_snapshot(self) -> LogPosition | None:
        """Return the newest snapshot."""
        ...

    def snapshot_size(self, snapshot: LogPosition) -> int | None:
        """Return the size of a snapshot in bytes; None if it does not exist."""
        ...


class Match(enum.Enum):
    """How a follower's position relates to the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


def match_position(log: LogView, position: LogPosition) -> tuple[Match, LogPosition]:
    """Compare a follower's end with this log, the leader's.

    Returns VALID and the position; DIVERGING and the last position that both may share; or SNAPSHOT
    and the snapshot to load, for a follower that needs records the log no longer has. An empty
    follower is sent a snapshot if there is one: that is cheaper than replaying the log.
    """
    latest = log.latest_snapshot()
    if position.offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        return Match.SNAPSHOT, latest
    start = log.start_offset()
    if start == 0 and position == (0, 0):
        return Match.VALID, position
    earliest = log.earliest_snapshot()
    if earliest is not None and latest is not None and _is_before(position, start, earliest):
        return Match.SNAPSHOT, latest
    end = log.end_offset_for_epoch(position.epoch)
    if end.epoch != position.epoch or end.offset < position.offset:
        return Match.DIVERGING, end
    return Match.VALID, position


def _is_before(position: LogPosition, start: Offset, earliest: LogPosition) -> bool:
    if position.offset < start or position.epoch < earliest.epoch:
        return True
    return position.offset == start == earliest.offset and position.epoch != earliest.epoch


def truncation_offset(log: LogView, diverging: LogPosition) -> Offset:
    """Return where a follower truncates its log, given the last position both may share."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end().offset)
    own = log.end_offset_for_epoch(diverging.epoch)
    return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
