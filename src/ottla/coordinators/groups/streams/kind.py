"""Streams groups as a kind of group: what a shard's machine needs of them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from ottla.coordinators.decision import Decision, SetTimer, TimerChange, TimerKey
from ottla.coordinators.groups.machine import GroupMachine, ReplayKind
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.draft import FORMING, REBALANCE, SESSION
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.leaving import on_formed, on_silence, on_unrevoked
from ottla.coordinators.groups.streams.member import StreamsMember, TaskState
from ottla.coordinators.groups.streams.records import replayed
from ottla.protocol.internal.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis

_KEYS: Final = (
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTopologyKey,
)
# What a timer asked for and the log refused is tried again after this.
_RETRY_MS: Final = 500


class StreamsKind:
    """The streams groups of one shard."""

    def __init__(self, context: StreamsContext) -> None:
        self.context = context
        self._timers = MappingProxyType(
            {
                SESSION: self._on_silence,
                REBALANCE: self._on_unrevoked,
                FORMING: self._on_formed,
            }
        )

    @property
    def replays(self) -> Mapping[type[Message], ReplayKind]:
        """By the type of key: how a record changes the machine."""
        return dict.fromkeys(_KEYS, self._replay)

    def _replay(self, machine: GroupMachine, key: Message, value: Message | None) -> None:
        """Take a record. One that sets something begins a group that is not there yet.

        A classic group that is there was only made for offsets that stand before it in the
        log, or its tombstone was compacted away: it gives way.
        """
        assert isinstance(key, _KEYS)
        group = machine.groups.get(key.group_id)
        if not isinstance(group, StreamsGroup):
            if value is None:
                return
            group = StreamsGroup(key.group_id)
        changed = replayed(group, key, value)
        if changed is None:
            self.context.forget(key.group_id)
            machine.forget(key.group_id)
        else:
            self.context.note_members(changed)
            machine.put(changed)

    def on_loaded(self, machine: GroupMachine, now: Millis) -> Sequence[TimerChange]:
        """Give every member its whole session, and those that are waited for their whole time."""
        timers: list[TimerChange] = []
        for group_id in sorted(machine.groups):
            group = machine.groups[group_id]
            if isinstance(group, StreamsGroup):
                self.context.take_over(group)
                for member_id in sorted(group.members):
                    timers.extend(self._first_timers(group_id, group.members[member_id]))
        return timers

    def _first_timers(self, group_id: str, member: StreamsMember) -> list[TimerChange]:
        timeout_ms = self.context.session_timeout_ms(group_id)
        timers: list[TimerChange] = [SetTimer((SESSION, group_id, member.member_id), timeout_ms)]
        if member.state is TaskState.UNREVOKED_TASKS:
            key = (REBALANCE, group_id, member.member_id)
            timers.append(SetTimer(key, member.rebalance_timeout_ms))
        return timers

    @property
    def timers(self) -> Mapping[str, Callable[[GroupMachine, TimerKey, Millis], Decision]]:
        """By the first part of the key: what to do when a timer rings."""
        return self._timers

    def _on_silence(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        return _again(on_silence(self.context, machine, key[1], key[2]), key)

    def _on_unrevoked(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        return _again(on_unrevoked(self.context, machine, key[1], key[2]), key)

    def _on_formed(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        return on_formed(self.context, machine, key[1])


def streams_kind(machine: GroupMachine) -> StreamsKind:
    """Return the kind of a machine that has streams groups."""
    return next(kind for kind in machine.kinds if isinstance(kind, StreamsKind))


def _again(decision: Decision, key: TimerKey) -> Decision:
    """Ring again where the log does not take what a timer led to."""
    retry = Decision(timers=[SetTimer(key, _RETRY_MS)])
    return replace(decision, refused=lambda fault: retry)
