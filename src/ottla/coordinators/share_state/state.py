"""The stored state of one share partition.

The log of a shard has, for each share partition, a snapshot and the updates since:

    ShareSnapshot  the whole state                    value: state epoch, start, every run
    ShareUpdate    changed runs, a newer start        value: no state epoch

A run is a range of offsets in one delivery state. Runs of a later record override those of an
earlier one; records below the start are finished and not stored. After enough updates a new
snapshot is written, so that everything before it can be deleted.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.protocol.uuids import uuid_text

UNINITIALIZED: Final = -1
"""The start offset of a share partition whose leader has not chosen one yet."""

UNCHANGED: Final = -1
"""In an update or a request: the epoch or offset is unchanged."""


class ShareKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: Uuid
    partition: int

    def coordinator_key(self) -> str:
        """Return its key for FindCoordinator, which also determines its shard."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class Run(NamedTuple):
    """Offsets ``first`` to ``last``, inclusive, in one delivery state."""

    first: int
    last: int
    state: int
    deliveries: int


class ShareState(msgspec.Struct, frozen=True):
    """The state of one share partition. Immutable.

    ``updates``: the number of records since the snapshot, which is at offset ``snapshot_at`` of the
    shard's log. ``delivery_complete_count`` is -1 if it is unknown.
    """

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED
    delivery_complete_count: int = -1
    runs: tuple[Run, ...] = ()
    snapshot_epoch: int = 0
    updates: int = 0
    snapshot_at: Offset = Offset(0)
    created_at: Millis = Millis(0)
    written_at: Millis = Millis(0)

    def merged(self, update: ShareUpdateValue) -> "ShareState":
        """Return the state after an update."""
        start = kept(update.start_offset, self.start_offset)
        return msgspec.structs.replace(
            self,
            leader_epoch=kept(update.leader_epoch, self.leader_epoch),
            start_offset=start,
            delivery_complete_count=update.delivery_complete_count,
            runs=combined((*self.runs, *runs_of(update.state_batches)), start),
            updates=self.updates + 1,
        )


def kept(value: int, present: int) -> int:
    """Return a new epoch or offset, or the current one if it is unchanged."""
    return present if value == UNCHANGED else value


def runs_of(batches: Iterable[StateBatch]) -> tuple[Run, ...]:
    """Return the runs of a record."""
    return tuple(
        Run(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
    )


def combined(layers: Sequence[Run], start: int) -> tuple[Run, ...]:
    """Return runs in order and without overlap: the later one in ``layers`` overrides.

    Nothing below ``start`` is kept; adjacent equal runs are merged.
    """
    rising = sorted(
        (max(run.first, start), -order, run)
        for order, run in enumerate(layers)
        if run.first <= run.last and run.last >= start
    )
    cuts = sorted({first for first, _, _ in rising} | {run.last + 1 for _, _, run in rising})
    found: list[Run] = []
    above: list[tuple[int, Run]] = []
    next_up = 0
    for cut, until in pairwise(cuts):
        while next_up < len(rising) and rising[next_up][0] <= cut:
            heapq.heappush(above, rising[next_up][1:])
            next_up += 1
        while above and above[0][1].last < cut:
            heapq.heappop(above)
        if above:
            _append(found, above[0][1]._replace(first=cut, last=until - 1))
    return tuple(found)


def _append(found: list[Run], run: Run) -> None:
    last = found[-1] if found else None
    if last is not None and last.last + 1 == run.first and last[2:] == run[2:]:
        found[-1] = last._replace(last=run.last)
    else:
        found.append(run)


# -- records -----------------------------------------------------------------------------


def snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    """Return the record with the whole state of a share partition."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_at,
        write_timestamp=state.written_at,
        state_batches=_batches(state.runs),
    )
    return CoordinatorRecord(ShareSnapshotKey(*key), Versioned(value, 0))


def update_record(key: ShareKey, change: ShareState) -> CoordinatorRecord:
    """Return the record with a change; ``change`` has the epoch of the snapshot."""
    value = ShareUpdateValue(
        snapshot_epoch=change.snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=_batches(change.runs),
    )
    return CoordinatorRecord(ShareUpdateKey(*key), Versioned(value, 0))


def tombstone(key: ShareKey) -> CoordinatorRecord:
    """Return the record that deletes a share partition."""
    return CoordinatorRecord(ShareSnapshotKey(*key), None)


def loaded(value: ShareSnapshotValue, offset: Offset) -> ShareState:
    """Return the state in a snapshot at ``offset`` of the log."""
    return ShareState(
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        runs=runs_of(value.state_batches),
        snapshot_epoch=value.snapshot_epoch,
        snapshot_at=offset,
        created_at=Millis(value.create_timestamp),
        written_at=Millis(value.write_timestamp),
    )


def _batches(runs: Iterable[Run]) -> list[StateBatch]:
    return [StateBatch(*run) for run in runs]
