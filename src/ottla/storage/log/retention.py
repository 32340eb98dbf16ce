"""Decide which segments of a log to delete (``cleanup.policy=delete``).

Pure. A segment is deleted when it lies below the log's start, when the log is larger than
``retention.bytes`` without it, or when its newest record is older than ``retention.ms``. Only whole
segments are deleted, only from the front, and only when all of a segment is below the high
watermark: records that are not replicated yet must not be deleted. A segment that is to be copied
to remote storage is deleted only once it is there, or below the log's start (KIP-405).

Time is the caller's ``now``; pass `TrustedClock.expiry`, so that a clock set to the wrong year
deletes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from ottla.protocol.types import Millis, Offset

UNLIMITED = -1
# How far the clocks of a leader and a follower may differ.
_CLOCK_ROOM_MS: Final = 60_000


class RetainedSegment(Protocol):
    """The properties of a segment that the rules need; the newest one is last and active."""

    @property
    def base_offset(self) -> Offset:
        """The first offset it may hold."""
        ...

    @property
    def size(self) -> int:
        """Bytes of record batches."""
        ...

    @property
    def largest_timestamp(self) -> Millis:
        """The largest of all its records; when the file was last written if they have none."""
        ...


class Policy(NamedTuple):
    """The topic settings that decide; -1 is unlimited.

    ``is_deleted``: ``cleanup.policy`` includes "delete". Without it only segments below the log's
    start are deleted; compaction does the rest.
    """

    is_deleted: bool
    retention_ms: int
    retention_bytes: int


class RetentionPlan(msgspec.Struct, frozen=True):
    """Delete the segments with these base offsets; the log then starts at ``log_start``.

    ``is_roll_needed``: the active segment is among them, so a new one must be created first.
    """

    base_offsets: tuple[Offset, ...]
    log_start: Offset
    is_roll_needed: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not self.base_offsets


class LogState(NamedTuple):
    """The offsets of a log. ``log_end`` is the next offset to be written.

    ``remote_end``: everything below is in remote storage; None if segments are not copied there.
    """

    log_start: Offset
    high_watermark: Offset
    log_end: Offset
    remote_end: Offset | None = None


def plan_retention(
    segments: Sequence[RetainedSegment], policy: Policy, state: LogState, now: Millis
) -> RetentionPlan:
    """Decide what to delete. ``segments`` are oldest first.

    The three rules apply in turn, each to what the previous one left. The active segment may be
    deleted by time or size too, if it is not empty; never by an offset.
    """
    count = _expired(segments, state, 0, lambda at: _is_below_start(segments, at, state.log_start))
    if policy.is_deleted:
        count = _oversized(segments, state, policy, count)
        count = _expired(segments, state, count, lambda at: _is_old(segments[at], policy, now))
    gone = segments[:count]
    log_start = state.log_start
    if gone:
        log_start = max(log_start, _upper_bound(segments, count - 1, state))
    return RetentionPlan(
        base_offsets=tuple(segment.base_offset for segment in gone),
        log_start=log_start,
        is_roll_needed=0 < count == len(segments),
    )


def is_start_explained(
    segments: Sequence[RetainedSegment], policy: Policy, state: LogState, now: Millis
) -> bool:
    """Decide whether the settings allow deleting every segment below ``state.log_start``.

    Then a leader with the same records and settings may have deleted them; its clock may be a
    little ahead. Without such segments there is nothing to explain.
    """
    if state.log_start > state.log_end:
        count = len(segments) - (segments[-1].size == 0)
    else:
        count = sum(_is_below_start(segments, at, state.log_start) for at in range(len(segments)))
    unmoved = LogState(segments[0].base_offset, state.high_watermark, state.log_end)
    allowed = plan_retention(segments, policy, unmoved, Millis(now + _CLOCK_ROOM_MS))
    return len(allowed.base_offsets) >= count


def _expired(
    segments: Sequence[RetainedSegment], state: LogState, first: int, is_due: Callable[[int], bool]
) -> int:
    """Return the index of the first segment at or after ``first`` that is kept."""
    for at in range(first, len(segments)):
        is_last_and_empty = at == len(segments) - 1 and segments[at].size == 0
        upper = _upper_bound(segments, at, state)
        is_replicated = upper <= state.high_watermark
        is_copied = state.remote_end is None or upper <= max(state.remote_end, state.log_start)
        if is_last_and_empty or not is_replicated or not is_copied or not is_due(at):
            return at
    return len(segments)


def _oversized(
    segments: Sequence[RetainedSegment], state: LogState, policy: Policy, first: int
) -> int:
    """Like `_expired`, by size: delete a segment if the rest still reaches the limit."""
    if policy.retention_bytes == UNLIMITED:
        return first
    excess = sum(segment.size for segment in segments[first:]) - policy.retention_bytes

    def is_due(at: int) -> bool:
        nonlocal excess
        if excess < segments[at].size:
            return False
        excess -= segments[at].size
        return True

    return _expired(segments, state, first, is_due)


def _is_old(segment: RetainedSegment, policy: Policy, now: Millis) -> bool:
    if policy.retention_ms == UNLIMITED:
        return False
    # A segment that compaction has emptied has no young record, and must not block later ones.
    return segment.size == 0 or now - segment.largest_timestamp > policy.retention_ms


def _is_below_start(segments: Sequence[RetainedSegment], at: int, log_start: Offset) -> bool:
    return at + 1 < len(segments) and segments[at + 1].base_offset <= log_start


def _upper_bound(segments: Sequence[RetainedSegment], at: int, state: LogState) -> Offset:
    """Return the offset after the last one of a segment."""
    return segments[at + 1].base_offset if at + 1 < len(segments) else state.log_end
