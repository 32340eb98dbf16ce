"""The decision of the share coordinator about each request, for one share partition.

A leader of a partition reads and writes with its leader epoch; an older epoch than the last one
seen is fenced. The state epoch rises when an operator resets a share partition, and fences writes
by a leader from before the reset.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from ottla.coordinators.decision import Decision
from ottla.coordinators.share_state.machine import ShareStateMachine, anew
from ottla.coordinators.share_state.state import (
    UNCHANGED,
    UNINITIALIZED,
    Run,
    ShareKey,
    ShareState,
    combined,
    kept,
    snapshot_record,
    tombstone,
    update_record,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import Millis, Uuid


class StateWrite(NamedTuple):
    """WriteShareGroupState of one share partition; -1 leaves an epoch or the start unchanged."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    runs: tuple[Run, ...]


class StateResult(NamedTuple):
    """A reply: an error, or the state."""

    code: ErrorCode
    state: ShareState = ShareState()


def decide_initialize(
    machine: ShareStateMachine, key: ShareKey, state_epoch: int, start_offset: int, now: Millis
) -> Decision:
    """InitializeShareGroupState: initialize, or reset to another offset."""
    present = machine.states.get(key)
    code = _check_key(key)
    if code is ErrorCode.NONE and present is not None and state_epoch < present.state_epoch:
        code = ErrorCode.FENCED_STATE_EPOCH
    if code is ErrorCode.NONE:
        code = _check_known(machine, key)
    if code is not ErrorCode.NONE:
        return Decision(reply=code)
    state = ShareState(
        state_epoch=state_epoch,
        start_offset=start_offset,
        delivery_complete_count=-1 if start_offset == UNINITIALIZED else 0,
        snapshot_epoch=0 if present is None else present.snapshot_epoch + 1,
        created_at=now,
        written_at=now,
    )
    return Decision([snapshot_record(key, state)], reply=ErrorCode.NONE)


def decide_read(
    machine: ShareStateMachine, key: ShareKey, leader_epoch: int, now: Millis
) -> Decision:
    """ReadShareGroupState by a new leader. Its epoch is stored, older ones are fenced."""
    present = machine.states.get(key)
    code = _check_key(key)
    if code is ErrorCode.NONE and present is None:
        code = ErrorCode.INVALID_REQUEST
    if code is ErrorCode.NONE:
        code = _check_leader(present, leader_epoch) or _check_known(machine, key)
    if code is not ErrorCode.NONE or present is None:
        return Decision(reply=StateResult(code))
    if leader_epoch <= present.leader_epoch:
        return Decision(reply=StateResult(code, present))
    count = present.delivery_complete_count
    write = StateWrite(UNCHANGED, leader_epoch, present.start_offset, count, ())
    return Decision([_record(machine, key, write, now)], reply=StateResult(code, present))


def decide_write(
    machine: ShareStateMachine, key: ShareKey, write: StateWrite, now: Millis
) -> Decision:
    """WriteShareGroupState: apply the change of a share partition."""
    present = machine.states.get(key)
    code = _check_key(key)
    if code is ErrorCode.NONE and present is None:
        code = ErrorCode.INVALID_REQUEST
    if code is ErrorCode.NONE:
        is_said = write.leader_epoch != UNCHANGED
        code = _check_leader(present, write.leader_epoch) if is_said else ErrorCode.NONE
    if code is ErrorCode.NONE and present is not None:
        is_older = UNCHANGED != write.state_epoch < present.state_epoch
        code = ErrorCode.FENCED_STATE_EPOCH if is_older else _check_known(machine, key)
    if code is not ErrorCode.NONE:
        return Decision(reply=code)
    return Decision([_record(machine, key, write, now)], reply=code)


def decide_delete(machine: ShareStateMachine, key: ShareKey) -> Decision:
    """DeleteShareGroupState. Missing state counts as deleted."""
    code = _check_key(key) or _check_known(machine, key)
    if code is not ErrorCode.NONE or key not in machine.states:
        return Decision(reply=code)
    return Decision([tombstone(key)], reply=code)


def decide_topics_deleted(machine: ShareStateMachine, topic_ids: Collection[Uuid]) -> Decision:
    """Delete all share partitions of deleted topics."""
    gone = sorted(key for key in machine.states if key.topic_id in topic_ids)
    return Decision([tombstone(key) for key in gone], may_split=True)


def decide_summary(machine: ShareStateMachine, key: ShareKey) -> Decision:
    """ReadShareGroupStateSummary: the start offset and epochs, to describe offsets."""
    code = _check_key(key) or _check_known(machine, key)
    if code is not ErrorCode.NONE:
        return Decision(reply=StateResult(code))
    return Decision(reply=StateResult(code, machine.states.get(key, ShareState())))


def _record(
    machine: ShareStateMachine, key: ShareKey, write: StateWrite, now: Millis
) -> CoordinatorRecord:
    """Return an update, or a snapshot after enough updates."""
    present = machine.states[key]
    change = ShareState(
        leader_epoch=write.leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        runs=combined(write.runs, write.start_offset),
        snapshot_epoch=present.snapshot_epoch,
    )
    is_newer = write.state_epoch > present.state_epoch  # an update cannot contain it
    if present.updates < machine.settings.updates_per_snapshot and not is_newer:
        return update_record(key, change)
    start = kept(write.start_offset, present.start_offset)
    whole = msgspec.structs.replace(
        anew(present, now),
        state_epoch=kept(write.state_epoch, present.state_epoch),
        leader_epoch=kept(write.leader_epoch, present.leader_epoch),
        start_offset=start,
        delivery_complete_count=write.delivery_complete_count,
        runs=combined((*present.runs, *write.runs), start),
    )
    return snapshot_record(key, whole)


def _check_key(key: ShareKey) -> ErrorCode:
    if not key.group_id or key.partition < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _check_leader(present: ShareState | None, leader_epoch: int) -> ErrorCode:
    if present is not None and leader_epoch < present.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def _check_known(machine: ShareStateMachine, key: ShareKey) -> ErrorCode:
    if machine.settings.is_known(key.topic_id, key.partition):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
