"""Compare the leader epochs of a log with its batches, without reading all of them.

A leader answers a follower by these epochs where their histories diverge: with wrong ones it would
have followers truncate records that are committed.
"""

from collections.abc import Sequence
from contextlib import suppress

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.types import NO_EPOCH, LeaderEpoch, Offset
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.storage.log.segments import Segments


def are_epochs_true(entries: Sequence[EpochEntry], segments: Segments, log_end: Offset) -> bool:
    """Whether the batches on both sides of each entry, and the last one, have its epoch.

    Where compaction or damage has removed a batch, its neighbour must not contradict the entry.
    Entries without a batch, at or after the log's end, are not compared.

    Raises:
        OSError: a file cannot be read.
    """
    before: LeaderEpoch | None = None
    for epoch, start in entries:
        if start >= log_end:
            break
        first = _epoch_at(segments, start)
        if first is not None and 0 <= first < epoch:
            return False
        if before is not None:
            last = _epoch_before(segments, start)
            if last is not None and last > before:
                return False
        before = epoch
    last = _epoch_before(segments, log_end)
    return last is None or last == (NO_EPOCH if before is None else before)


def _epoch_at(segments: Segments, offset: Offset) -> LeaderEpoch | None:
    """Return the epoch of the batch with ``offset``, or of the next one; None if unreadable."""
    found = _find(segments, offset)
    return None if found is None else found.leader_epoch


def _epoch_before(segments: Segments, offset: Offset) -> LeaderEpoch | None:
    """Return the epoch of the batch that ends at ``offset``; None if it is gone."""
    found = _find(segments, Offset(offset - 1)) if offset else None
    is_there = found is not None and found.base_offset < offset and found.leader_epoch >= 0
    return found.leader_epoch if found is not None and is_there else None


def _find(segments: Segments, offset: Offset) -> BatchHeader | None:
    with suppress(CorruptBatch, UnsupportedMagic):
        for segment in segments.from_floor(offset):
            found = segment.find(offset)
            if found is not None:
                return found.header
    return None
