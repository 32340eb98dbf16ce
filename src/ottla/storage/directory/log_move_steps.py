"""The next step of moving a log to another directory of its broker (KIP-113).

Pure. The log stays in use in its directory while a *future* log in the other directory copies its
batches. Once both end at the same offset, and only then, the future log replaces it:

    source    log_start .................... log_end        in use all the time
    future    log_start ........ log_end -->                Restart | Cut | Copy ... | Swap

The source may be trimmed past the future log's end (retention, DeleteRecords) and truncated below
it (its leader has another history). Both are handled here, in whatever order they happen.
"""

from typing import NamedTuple

import msgspec

from ottla.protocol.types import Offset


class Span(NamedTuple):
    """The offsets of a log: ``[log_start, log_end)``; a batch begins at ``log_start``."""

    log_start: Offset
    log_end: Offset


class Restart(msgspec.Struct, frozen=True):
    """Discard what the future log has, and start it at ``offset``."""

    offset: Offset


class Cut(msgspec.Struct, frozen=True):
    """Truncate the future log to ``offset``."""

    offset: Offset


class Copy(msgspec.Struct, frozen=True):
    """Copy batches from ``offset`` on."""

    offset: Offset


class Swap(msgspec.Struct, frozen=True):
    """Replace the source by the future log, which is complete, before anything is appended."""


Step = Restart | Cut | Copy | Swap


def decide_step(source: Span, future: Span) -> Step:
    """Return the next step that brings a future log closer to its source.

    A future log that would miss records is never swapped in: neither at its end, nor at its
    start where the source begins earlier.
    """
    if future.log_end < source.log_start or future.log_start > source.log_start:
        return Restart(source.log_start)
    if future.log_end > source.log_end:
        return Cut(source.log_end)
    if future.log_end < source.log_end:
        return Copy(future.log_end)
    return Swap()
