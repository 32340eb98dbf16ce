"""Moving a log to another directory of its broker: what is to be done next (KIP-113).

Pure. The log stays where it is, and in use, while a *future* log in the other directory takes
over its batches. Once both end at the same offset, and only then, the future one takes its place:

    source    log_start .................... log_end        in use all the time
    future    log_start ........ log_end -->                Restart | Cut | Copy ... | Swap

The source may be trimmed past the future log's end (retention, DeleteRecords) and cut below it
(a follower's leader has another history). Both are seen here, whatever the order of events.
"""

from typing import NamedTuple

import msgspec

from ottla.protocol.types import Offset


class Span(NamedTuple):
    """What a log holds: ``[log_start, log_end)``, a batch beginning at ``log_start``."""

    log_start: Offset
    log_end: Offset


class Restart(msgspec.Struct, frozen=True):
    """Throw away what the future log has: it begins at ``offset``."""

    offset: Offset


class Cut(msgspec.Struct, frozen=True):
    """Cut the future log back to ``offset``."""

    offset: Offset


class Copy(msgspec.Struct, frozen=True):
    """Copy batches from ``offset`` on."""

    offset: Offset


class Swap(msgspec.Struct, frozen=True):
    """The future log has everything: it takes the source's place, before anything is appended."""


Step = Restart | Cut | Copy | Swap


def decide_step(source: Span, future: Span) -> Step:
    """Return what brings a future log nearer to its source.

    A future log that would miss records is never swapped in: neither behind its end, nor before
    its start where the source begins earlier than it did.
    """
    if future.log_end < source.log_start or future.log_start > source.log_start:
        return Restart(source.log_start)
    if future.log_end > source.log_end:
        return Cut(source.log_end)
    if future.log_end < source.log_end:
        return Copy(future.log_end)
    return Swap()
