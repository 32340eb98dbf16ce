"""When copies fall behind, and so compete for the CPU."""

import pytest

from ottla.protocol.types import Millis, Offset
from ottla.tiering.copy_lag import (
    GROWTH_MAX,
    STALLED_MS,
    URGENT_GROWTH_MAX,
    URGENT_STALLED_MS,
    CopyProgress,
    DueSegments,
    follow_copies,
)

UNLIMITED = -1
KEPT = 500


def due(segments: int, remote_end: int = 0) -> DueSegments:
    return DueSegments(segments, segments * 100, Offset(remote_end))


def follow(looks: list[tuple[int, DueSegments]], local_bytes: int = UNLIMITED) -> bool:
    """Look at a partition at given times; say whether it is behind at the end."""
    progress: CopyProgress | None = None
    for now, found in looks:
        progress = follow_copies(progress, found, local_bytes, Millis(now))
    return progress is not None and progress.is_behind


@pytest.mark.parametrize(
    ("after_ms", "local_bytes", "behind"),
    [
        (STALLED_MS, UNLIMITED, False),
        (STALLED_MS + 1, UNLIMITED, True),
        (URGENT_STALLED_MS + 1, UNLIMITED, False),
        (URGENT_STALLED_MS, KEPT, False),
        (URGENT_STALLED_MS + 1, KEPT, True),
        (URGENT_STALLED_MS + 1, 600, False),
    ],
)
def test_copies_that_finish_no_segment_in_time_are_behind(
    after_ms: int, local_bytes: int, *, behind: bool
) -> None:
    assert follow([(5, due(6)), (5 + after_ms, due(6))], local_bytes) is behind


def test_large_backlog_that_shrinks_is_not_behind() -> None:
    looks = [(minute * 50_000, due(100 - minute, minute)) for minute in range(90)]
    assert not follow(looks)


@pytest.mark.parametrize(("local_bytes", "more"), [(UNLIMITED, GROWTH_MAX), (0, URGENT_GROWTH_MAX)])
def test_backlog_that_grows_although_segments_are_copied_is_behind(
    local_bytes: int, more: int
) -> None:
    looks = [(0, due(7, 0)), (1, due(5, 1))]
    assert not follow([*looks, (2, due(5 + more, 2))], local_bytes)
    assert follow([*looks, (2, due(6 + more, 2))], local_bytes)


def test_partition_stays_behind_until_its_backlog_is_copied() -> None:
    """Otherwise the copies would be held up again after each segment."""
    looks = [(0, due(6)), (STALLED_MS + 1, due(6)), (STALLED_MS + 2, due(1, 5))]
    assert follow(looks)
    assert not follow([*looks, (STALLED_MS + 3, due(0, 6)), (STALLED_MS + 4, due(1, 6))])
