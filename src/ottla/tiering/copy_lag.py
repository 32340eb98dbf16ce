"""Whether the copies of a partition fall behind, so that they need more of the CPU. Pure.

Copies run only while cores are idle. On a busy machine they may not run at all, and the disks of
the brokers would fill up: then they compete for the cores like everything else, until this backlog
is copied.
"""

from typing import Final, NamedTuple

from ottla.protocol.types import Millis, Offset

STALLED_MS: Final = 60_000
GROWTH_MAX: Final = 8
"""So many more segments may be due than the fewest since this backlog began."""
URGENT_STALLED_MS: Final = 10_000
URGENT_GROWTH_MAX: Final = 2
"""The limits while more than ``local.retention.bytes`` waits to be copied."""


class DueSegments(NamedTuple):
    """What is due to be copied now: segments and bytes; and how far remote storage reaches."""

    segments: int
    size: int
    remote_end: Offset


class CopyProgress(NamedTuple):
    """The backlog of a partition. ``since``: when a segment was last copied, or became due."""

    fewest: int
    remote_end: Offset
    since: Millis
    is_behind: bool = False


def follow_copies(
    before: CopyProgress | None, due: DueSegments, local_bytes: int, now: Millis
) -> CopyProgress | None:
    """Return the progress after a look at a partition; None if nothing is due.

    ``local_bytes``: what may stay on the disk, negative if there is no limit.
    """
    if not due.segments:
        return None
    if before is None:
        return CopyProgress(due.segments, due.remote_end, now)
    since = before.since if before.remote_end == due.remote_end else now
    is_urgent = 0 <= local_bytes < due.size
    growth_max = URGENT_GROWTH_MAX if is_urgent else GROWTH_MAX
    stalled_ms = URGENT_STALLED_MS if is_urgent else STALLED_MS
    fewest = min(before.fewest, due.segments)
    is_late = now - since > stalled_ms or due.segments > fewest + growth_max
    return CopyProgress(fewest, due.remote_end, since, before.is_behind or is_late)
