"""The parts of a log to scrub: each segment, with what the log knows about its batches."""

from typing import NamedTuple

from ottla.protocol.types import Offset
from ottla.storage.log.log import Log
from ottla.storage.log.segment import Segment
from ottla.storage.scrub.batch_check import Cursor, Part


class Span(NamedTuple):
    """A segment, the start of its check, and its end."""

    segment: Segment
    cursor: Cursor
    part: Part


def spans(log: Log) -> list[Span]:
    """Return all current segments of a log, oldest first."""
    segments = log.segments
    ends = [*(each.base_offset for each in segments[1:]), log.log_end_offset]
    return [_span(log, each, end) for each, end in zip(segments, ends, strict=True)]


def _span(log: Log, segment: Segment, end: Offset) -> Span:
    epochs, base = log.epochs, segment.base_offset
    lowest = epochs.epoch_for_offset(base)
    highest = epochs.epoch_for_offset(Offset(max(base, end - 1)))
    cursor = Cursor(0, base, -1 if lowest is None else lowest)
    return Span(segment, cursor, Part(segment.size, end, highest))
