"""Which offset of the source became which offset of the target, for one partition. Pure.

A run is a range of source offsets without gaps that was copied to a range of the target. The
target has no gaps, the source has them where markers, aborted records or compacted records are. A
map is a tuple of runs, ascending; the last one grows. A map of one run that begins at the same
offset on both sides means that offsets are preserved.

Old runs are thinned out, so that a map is bounded. An offset in a range that is not mapped any more
is translated to the end of the run before it: a consumer reads some records again and skips none.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

RUNS_MAX: Final = 2000
"""Runs of a map before the older half is thinned out: about 50 KiB in the state topic."""
EXACT_PER_BATCH_MAX: Final = 64
"""Runs that one batch with holes adds; the rest of such a batch is not mapped."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """``length`` records from ``source`` on, at ``target``."""

    source: int
    target: int
    length: int


OffsetMap = tuple[Run, ...]


class MapDiverged(Exception):
    """The target does not end where the map says that it may."""


def begin(source: int, target: int) -> OffsetMap:
    """Return the map of a partition of which nothing was copied yet."""
    return (Run(source, target, 0),)


def is_identity(runs: OffsetMap) -> bool:
    """Say whether every offset is preserved."""
    return len(runs) == 1 and runs[0].source == runs[0].target


def source_end(runs: OffsetMap) -> int:
    """Return the source offset to copy next."""
    return runs[-1].source + runs[-1].length


def target_end(runs: OffsetMap) -> int:
    """Return the target offset that the next record gets."""
    return runs[-1].target + runs[-1].length


def extend(runs: OffsetMap, offsets: Iterable[tuple[int, int]], following: int) -> OffsetMap:
    """Add records that are appended together: ranges of (first source offset, count), ascending.

    ``following`` is the source offset to read after them.
    """
    found = list(runs)
    ranges = list(offsets)
    total = sum(count for _, count in ranges)
    end = target_end(runs) + total
    kept = ranges if len(ranges) <= EXACT_PER_BATCH_MAX else ranges[:1]
    for source, count in kept:
        last = found[-1]
        at = last.target + last.length
        if last.source + last.length == source:
            found[-1] = Run(last.source, last.target, last.length + count)
        elif last.length == 0 and len(found) > 1:
            found[-1] = Run(source, at, count)
        else:
            found.append(Run(source, at, count))
    last = found[-1]
    if (last.source + last.length, last.target + last.length) != (following, end):
        found.append(Run(following, end, 0))
    return thin(tuple(found))


def thin(runs: OffsetMap, runs_max: int = RUNS_MAX) -> OffsetMap:
    """Drop every second run of the older half if there are too many; the first one stays."""
    if len(runs) <= runs_max:
        return runs
    half = len(runs) // 2
    return (runs[0], *runs[2:half:2], *runs[half:])


def recover(runs: OffsetMap, end: int) -> OffsetMap:
    """Return the map of what the target really has, which ends at ``end``.

    The stored map is written before the records, so its last runs may not have been copied; and it
    is not written for records without a gap, so its last run may have grown.

    Raises:
        MapDiverged: the target ends before the copy began, or where no batch of the copy ended.
    """
    kept = [each for each in runs if each.target <= end]
    if not kept:
        raise MapDiverged(f"the target ends at {end}, the copy began at {runs[0].target}")
    last = kept[-1]
    length = end - last.target
    if len(kept) < len(runs) and length > last.length:
        raise MapDiverged(f"the target ends at {end}, inside a range that is not mapped any more")
    return (*kept[:-1], Run(last.source, last.target, length))


def translate(runs: Sequence[Run], offset: int) -> int:
    """Return the target offset of the first record at or after a source offset.

    It is never after that record: an offset that was not copied yet becomes the end of the target.
    """
    if offset <= runs[0].source:
        return runs[0].target
    low, high = 0, len(runs)
    while high - low > 1:  # the last run that begins at or before the offset
        middle = (low + high) // 2
        if runs[middle].source <= offset:
            low = middle
        else:
            high = middle
    run = runs[low]
    return run.target + min(offset - run.source, run.length)
