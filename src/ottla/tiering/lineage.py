"""Whether a remote segment belongs to the history of a log, by leader epochs (KIP-405). Pure.

After an unclean election the tier holds segments of a history that the log no longer has. Such a
segment must neither be read nor expired in place of one that counts.
"""

from collections.abc import Iterable
from itertools import pairwise

from ottla.protocol.types import LeaderEpoch, Offset
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.tiering.segment_metadata import SegmentMetadata

Epochs = dict[LeaderEpoch, Offset]
"""Start offsets by epoch, in ascending order."""


def epochs_with_records(entries: Iterable[EpochEntry]) -> Epochs:
    """Return the epochs that have records: of several that start together, the last."""
    by_start = {entry.start_offset: entry.epoch for entry in sorted(entries)}
    return {epoch: start for start, epoch in sorted(by_start.items())}


def is_within_lineage(metadata: SegmentMetadata, log_end: Offset, lineage: Epochs) -> bool:
    """Say whether all of a segment was written by the leader epochs of a log.

    The epochs of the segment must be consecutive epochs of the log with the same start offsets.
    Only where the log's history begins now, the segment may start earlier; the log has been
    trimmed since.
    """
    own = epochs_with_records(metadata.epochs)
    if not own or not lineage or metadata.end_offset >= log_end:
        return False
    first_known, last = next(iter(lineage)), max(own)
    kept = [epoch for epoch in own if epoch >= first_known]
    if not kept or last not in lineage:
        return False
    following = {epoch: after for epoch, after in _successors(lineage)}
    own_following = {epoch: after for epoch, after in _successors(own)}
    first = kept[0]
    if first not in lineage or (first != first_known and own[first] < lineage[first]):
        return False
    for epoch in kept:
        after = following.get(epoch)
        if epoch == last:
            return after is None or metadata.end_offset < after[1]
        if epoch not in lineage or after != own_following[epoch]:
            return False
    return False


def _successors(epochs: Epochs) -> Iterable[tuple[LeaderEpoch, tuple[LeaderEpoch, Offset]]]:
    entries = list(epochs.items())
    return ((epoch, after) for (epoch, _), after in pairwise(entries))
