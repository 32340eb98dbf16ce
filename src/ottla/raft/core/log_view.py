"""What the core may see of the log, and what follows from comparing two logs.

The core never reads a record. Positions are ``(epoch, offset)``: the offset is where the
next record goes, the epoch that of the record before it. They compare epoch first, which
is what "at least as up to date" means in a vote.

An empty log stands at epoch 0, offset 0; the first leader has epoch 1.
"""

import enum
from typing import NamedTuple, Protocol

from ottla.protocol.types import LeaderEpoch, Offset


class LogPosition(NamedTuple):
    """An end of a log or of a snapshot: everything before ``offset``, last written in ``epoch``."""

    epoch: LeaderEpoch
    offset: Offset


# Written when a directory is formatted; it holds no state that a follower could lack.
BOOTSTRAP_SNAPSHOT = LogPosition(LeaderEpoch(0), Offset(0))


class LogView(Protocol):
    """The replicated log, read-only. True between two steps: effects are carried out by then."""

    def start_offset(self) -> Offset:
        """Return the offset of the first record still there."""
        ...

    def end(self) -> LogPosition:
        """Return the end, unflushed records included; the latest snapshot's id when empty."""
        ...

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        """Return the largest epoch at or below ``epoch`` and where it ends.

        For an epoch newer than all it is `end`; for one from before the start, the id of the
        earliest snapshot.
        """
        ...

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch of the record before ``offset``, which lies in the log or at its end.

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
        """Return how many bytes a snapshot has; None when it is not there."""
        ...


class Match(enum.Enum):
    """How a follower's position stands to the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


def match_position(log: LogView, asked: LogPosition) -> tuple[Match, LogPosition]:
    """Compare a follower's end with this log, the leader's.

    Returns VALID and the position; DIVERGING and the last point both may share; or SNAPSHOT
    and the snapshot to load, for a follower that needs what the log no longer has. An empty
    follower is sent the snapshot where there is one: that is cheaper than replaying.
    """
    latest = log.latest_snapshot()
    if asked.offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        return Match.SNAPSHOT, latest
    start = log.start_offset()
    if start == 0 and asked == (0, 0):
        return Match.VALID, asked
    earliest = log.earliest_snapshot()
    if earliest is not None and latest is not None and _is_before(asked, start, earliest):
        return Match.SNAPSHOT, latest
    end = log.end_offset_for_epoch(asked.epoch)
    if end.epoch != asked.epoch or end.offset < asked.offset:
        return Match.DIVERGING, end
    return Match.VALID, asked


def _is_before(asked: LogPosition, start: Offset, earliest: LogPosition) -> bool:
    if asked.offset < start or asked.epoch < earliest.epoch:
        return True
    return asked.offset == start == earliest.offset and asked.epoch != earliest.epoch


def truncation_offset(log: LogView, diverging: LogPosition) -> Offset:
    """Return where a follower cuts its log, told the leader's last point both may share."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end().offset)
    own = log.end_offset_for_epoch(diverging.epoch)
    return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
