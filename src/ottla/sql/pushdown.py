"""Narrows the offsets that a scan must fetch to those that its filter may keep. Pure.

DuckDB passes the part of WHERE that concerns one table to its scan, as an expression of Arrow.
This module does not interpret the expression: it asks Arrow whether the expression can be true at
all for records of which something is known, for example that their partition is 3 and their offsets
are between 0 and 4,999. Only if Arrow proves that it cannot are the records left out. A filter that
Arrow does not understand therefore costs fetches, but never a row. The scan applies the whole
filter to what it has fetched.

Timestamps do not increase with offsets: a producer sets them. "At or after T" still gives a first
offset, because ListOffsets returns the first record that is at or after T. "Before T" gives no last
offset, unless the user states how late records may be (`TopicFilter.time_end`).
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs

Expression: TypeAlias = Any
"""A ``pyarrow.compute.Expression``."""

TIME_MAX_MS: Final = (2**63 - 1) // 1000
"""The last millisecond that a column of microseconds can hold."""
# Gaps between the matching offsets of one partition (``offset IN (5, 9000000)``) are looked for in
# this many halvings, unless what is left is this small.
_HALVINGS_MAX: Final = 6
_GAP_RECORDS_MIN: Final = 20_000

_FORMAT: Final = ds.IpcFileFormat()
_NO_FILES: Final = pa.fs.LocalFileSystem()  # fragments need one; nothing is opened


class TopicFilter:
    """What the filter of a scan says about one partition.

    ``schema`` has the columns of the scan, those of the source among them.
    """

    def __init__(self, filter_: Expression, schema: pa.Schema, topic: str, partition: int) -> None:
        self._filter = filter_
        self._schema = schema
        self._known = (ds.field("topic") == topic) & (
            ds.field("partition") == pa.scalar(partition, pa.int32())
        )

    @property
    def may_match(self) -> bool:
        """Whether any record of the partition may be kept."""
        return self._may(self._known)

    def offset_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return parts of ``[start, end)`` that contain every record to be kept, in order."""
        if start >= end or not self._may_in(start, end):
            return []
        first, last = start, end
        if not self._may_in(start, start + 1):
            first = _last_true(start, end, lambda stop: not self._may_in(start, stop))
        if not self._may_in(end - 1, end):
            last = _first_true(first, end, lambda begin: not self._may_in(begin, end))
        if (first, last) == (start, end) and "offset" not in str(self._filter):
            return [(start, end)]
        return _joined(self._halves(first, last, _HALVINGS_MAX))

    def time_start(self) -> int:
        """Return a time in ms before which no record is kept; 0 if there is none."""
        if self._may_before(1):
            return 0
        return _last_true(1, TIME_MAX_MS, lambda time: not self._may_before(time))

    def time_end(self) -> int | None:
        """Return a time in ms from which on no record is kept; None if there is none."""
        if self._may_from(TIME_MAX_MS):
            return None
        return _first_true(0, TIME_MAX_MS, lambda time: not self._may_from(time))

    def _halves(self, start: int, end: int, halvings: int) -> list[tuple[int, int]]:
        if not self._may_in(start, end):
            return []
        if not halvings or end - start <= _GAP_RECORDS_MIN:
            return [(start, end)]
        middle = (start + end) // 2
        return [
            *self._halves(start, middle, halvings - 1),
            *self._halves(middle, end, halvings - 1),
        ]

    def _may_in(self, start: int, end: int) -> bool:
        offset = ds.field("offset")
        first, last = pa.scalar(start, pa.int64()), pa.scalar(end - 1, pa.int64())
        return self._may(self._known & (offset >= first) & (offset <= last))

    def _may_before(self, time_ms: int) -> bool:
        return self._may(self._known & (ds.field("timestamp") < _moment(time_ms)))

    def _may_from(self, time_ms: int) -> bool:
        return self._may(self._known & (ds.field("timestamp") >= _moment(time_ms)))

    def _may(self, known: Expression) -> bool:
        """Return False if Arrow proves that no record with these properties is kept."""
        fragment = _FORMAT.make_fragment("none", _NO_FILES, partition_expression=known)
        dataset = ds.FileSystemDataset([fragment], self._schema, _FORMAT, _NO_FILES)
        try:
            return any(True for _ in dataset.get_fragments(self._filter))
        except (pa.ArrowException, KeyError):
            return True  # not decidable


def _moment(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1000, pa.timestamp("us", "UTC"))


def _last_true(low: int, high: int, is_true: Callable[[int], bool]) -> int:
    """Return the largest number found in ``[low, high]`` for which a predicate holds.

    It holds for ``low``; where it is not monotone, a smaller number is returned.
    """
    while low < high:
        middle = (low + high + 1) // 2
        if is_true(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _first_true(low: int, high: int, is_true: Callable[[int], bool]) -> int:
    """Return the smallest number found in ``[low, high]`` for which a predicate holds.

    It holds for ``high``; where it is not monotone, a larger number is returned.
    """
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
