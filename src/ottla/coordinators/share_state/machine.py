"""The state machine of one shard of ``__share_group_state``.

The timer ``("cold",)`` writes new snapshots of idle share partitions, so that the log before them
is redundant and can be deleted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from immutables import Map

from ottla.coordinators.decision import NOTHING, Decision, Origin, ReplyFuture, SetTimer, TimerKey
from ottla.coordinators.share_state.state import (
    ShareKey,
    ShareState,
    loaded,
    snapshot_record,
    tombstone,
)
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.runtime.trusted_time import Times

COLD: Final = "cold"


class ShareStateSettings(msgspec.Struct, frozen=True):
    """``updates_per_snapshot``: ``share.coordinator.snapshot.update.records.per.snapshot``.

    ``cold_ms``: ``share.coordinator.cold.partition.snapshot.interval.ms``. ``is_known`` says
    whether the cluster has a partition.
    """

    is_known: Callable[[Uuid, int], bool]
    updates_per_snapshot: int = 500
    cold_ms: int = 300_000


class ShareStateMachine:
    """The share partitions of one shard. ``states`` is immutable: readers use it as the view."""

    def __init__(self, settings: ShareStateSettings) -> None:
        self.settings = settings
        self.states: Map[ShareKey, ShareState] = Map()
        self._newest = Offset(-1)

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Replay a record. An update without a snapshot before it is ignored."""
        self._newest = origin.offset
        value = None if record.value is None else record.value.message
        match record.key:
            case ShareSnapshotKey() as key:
                self._replay_snapshot(_key(key), value, origin.offset)
            case ShareUpdateKey() as key:
                present = self.states.get(_key(key))
                if present is not None and isinstance(value, ShareUpdateValue):
                    self.states = self.states.set(_key(key), present.merged(value))

    def _replay_snapshot(self, key: ShareKey, value: object, offset: Offset) -> None:
        if isinstance(value, ShareSnapshotValue):
            self.states = self.states.set(key, loaded(value, offset))
        elif key in self.states:
            self.states = self.states.delete(key)

    def on_marker(self, producer: Producer, marker: EndTxnMarker, offset: Offset) -> None:
        """Do nothing: share state is never written inside a transaction."""

    def view(self) -> Map[ShareKey, ShareState]:
        """Return the current state for readers."""
        return self.states

    # -- life ----------------------------------------------------------------

    def on_loaded(self, now: Millis) -> Decision:
        """Start the timer that looks for idle share partitions."""
        return Decision(timers=[SetTimer((COLD,), self.settings.cold_ms)])

    def on_timer(self, key: TimerKey, times: Times) -> Decision:
        """Write snapshots of idle share partitions; delete those of deleted topics."""
        if key[0] != COLD:
            return NOTHING
        again = [SetTimer((COLD,), self.settings.cold_ms)]
        records = []
        is_worth_it = self._has_redundant()
        for share_key, state in sorted(self.states.items()):
            if not self.settings.is_known(share_key.topic_id, share_key.partition):
                records.append(tombstone(share_key))
            elif is_worth_it and state.written_at <= times.expiry - self.settings.cold_ms:
                records.append(snapshot_record(share_key, anew(state, times.stamp)))
        refused = Decision(timers=again)
        return Decision(records, timers=again, may_split=True, refused=lambda fault: refused)

    def _has_redundant(self) -> bool:
        """Whether the log has more than one record per share partition from the oldest snapshot on.

        In a quiet shard it has not: new snapshots would only move the state.
        """
        oldest = redundant_below(self.states, Offset(self._newest + 1))
        return self._newest - oldest + 1 > len(self.states)

    def on_unloaded(self) -> Sequence[ReplyFuture]:
        """Return nothing: requests are answered at once."""
        return ()


def redundant_below(states: Mapping[ShareKey, ShareState], end: Offset) -> Offset:
    """Return the offset below which the log, up to ``end``, is redundant.

    ``states`` are those committed at ``end``: a snapshot that may yet be lost makes nothing before
    it redundant.
    """
    return min((state.snapshot_at for state in states.values()), default=end)


def anew(state: ShareState, now: Millis) -> ShareState:
    """Return the state with the counters of a new snapshot."""
    return msgspec.structs.replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_at=now)


def _key(key: ShareSnapshotKey | ShareUpdateKey) -> ShareKey:
    return ShareKey(key.group_id, key.topic_id, key.partition)
