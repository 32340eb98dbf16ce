"""Which segments of a log to copy to remote storage next. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState

GROUP_BYTES_MAX: Final = 256 << 20
GROUP_SEGMENTS_MAX: Final = 8
"""How much is copied together; a failure repeats it. Larger segments are copied alone."""
_UNFINISHED = frozenset({SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED})


class LocalSegment(Protocol):
    """The properties of a local segment that the rule needs."""

    size: int

    @property
    def base_offset(self) -> Offset:
        """Its first offset."""
        ...

    @property
    def largest_timestamp(self) -> Millis:
        """The largest timestamp of its records."""
        ...


class CopyLag(NamedTuple):
    """How long a sealed segment waits for its copy (KIP-1241): until it is so old, or until there
    are so many newer bytes, whatever comes first. 0 is at once, -1 is never.
    """

    ms: int
    size: int


class Candidate(NamedTuple):
    """A segment to copy: its base offset, and the base offset of the next one."""

    base_offset: Offset
    next_offset: Offset


class CopyState(NamedTuple):
    """The state of a log that decides what is copied.

    Everything below ``remote_end`` has been copied.
    """

    remote_end: Offset
    log_start: Offset
    last_stable: Offset


def plan_copy(
    segments: Sequence[LocalSegment], state: CopyState, lag: CopyLag, now: Millis
) -> list[Candidate]:
    """Return the sealed segments that are due, oldest first; never the active one.

    A segment is due once all of it is below the last stable offset: it is replicated, and every
    transaction in it has ended, so its transaction index is complete; and once ``lag`` is over for
    it and for all before it. The segment that holds ``max(remote_end, log_start)`` is the first.
    """
    start = max(state.remote_end, state.log_start)
    due: list[Candidate] = []
    newer = sum(segment.size for segment in segments)
    for segment, after in pairwise(segments):
        newer -= segment.size
        if after.base_offset <= start:
            continue
        if after.base_offset > state.last_stable or not _is_lag_over(segment, newer, lag, now):
            break
        due.append(Candidate(segment.base_offset, after.base_offset))
    return due


def _is_lag_over(segment: LocalSegment, newer: int, lag: CopyLag, now: Millis) -> bool:
    if lag.ms == 0 or lag.size == 0 or 0 < lag.size <= newer:
        return True
    if lag.ms < 0:
        return False
    age = now - segment.largest_timestamp
    return age >= lag.ms or age < 0  # a timestamp in the future says nothing about the age


def group_copies(
    candidates: Iterable[Candidate], sizes: Mapping[Offset, int], bytes_max: int
) -> Iterator[list[Candidate]]:
    """Yield the segments to copy together: at most ``bytes_max``, and at least one segment.

    ``sizes`` has the sizes of segments by base offset.
    """
    group: list[Candidate] = []
    held = 0
    for each in candidates:
        size = sizes.get(each.base_offset, 0)
        if group and (held + size > bytes_max or len(group) == GROUP_SEGMENTS_MAX):
            yield group
            group, held = [], 0
        group.append(each)
        held += size
    if group:
        yield group


def highest_remote_offset(
    epochs: LeaderEpochs,
    log_end: Offset,
    highest: Callable[[LeaderEpoch], Offset | None],
) -> Offset:
    """Return the last offset of the log's own history that is in remote storage, or -1.

    Looks from the newest epoch to the oldest. What was copied of an epoch beyond its end in this
    log belongs to another history.
    """
    for entry in reversed(epochs.entries):
        found = highest(entry.epoch)
        if found is not None:
            end = epochs.end_offset_for(entry.epoch, log_end)[1]
            return Offset(min(found, end - 1))
    return Offset(-1)


def segment_epochs(epochs: LeaderEpochs, start: Offset, upto: Offset) -> tuple[EpochEntry, ...]:
    """Return the epochs that wrote ``[start, upto)``; the first starts at ``start``."""
    found: list[EpochEntry] = []
    for entry in epochs.entries:
        if entry.start_offset >= upto:
            break
        if entry.start_offset <= start:
            found = [EpochEntry(entry.epoch, start)]
        else:
            found.append(entry)
    return tuple(found)


def first_remote_offset(
    epochs: LeaderEpochs, segments: Callable[[LeaderEpoch], Sequence[SegmentMetadata]]
) -> Offset | None:
    """Return the first offset in remote storage of the log's own history; None if there is none."""
    for entry in epochs.entries:
        for metadata in segments(entry.epoch):
            if metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
                return metadata.start_offset
    return None


class Abandoned(NamedTuple):
    """How long the copies of other brokers are watched after they were given up.

    A broker that does not know yet that it was replaced goes on storing objects, and may crash
    before it can delete them. So the metadata of its copy stays for ``grace_ms``, and then the
    objects are deleted once more.
    """

    node_id: NodeId
    grace_ms: int
    now: Millis

    def may_grow(self, metadata: SegmentMetadata) -> bool:
        """Say whether another broker may still be storing objects of a copy that never finished."""
        if metadata.custom is not None:
            return False
        if metadata.state is SegmentState.COPY_SEGMENT_STARTED:
            return metadata.broker_id != self.node_id and self.grace_ms > 0
        return self.now - metadata.event_timestamp < self.grace_ms

    def is_due(self, metadata: SegmentMetadata) -> bool:
        """Say whether there is something to delete now."""
        return metadata.state is not SegmentState.DELETE_SEGMENT_STARTED or not self.may_grow(
            metadata
        )


def unfinished(
    segments: Iterable[SegmentMetadata], copying: Iterable[object]
) -> list[SegmentMetadata]:
    """Return the segments to delete: copies that no one continues, and interrupted deletions.

    They were begun by an earlier leader, or before a crash or a failure of the store. The leader
    alone copies, and ``copying`` are the ids of its copies in progress.
    """
    in_progress = set(copying)
    return [
        metadata
        for metadata in segments
        if metadata.state in _UNFINISHED and metadata.segment_id not in in_progress
    ]
