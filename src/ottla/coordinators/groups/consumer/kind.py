"""Consumer groups as a kind of group: what a shard's machine needs of them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec.structs import replace

from ottla.coordinators.decision import Decision, SetTimer, TimerChange, TimerKey
from ottla.coordinators.groups.classic.join import Joining
from ottla.coordinators.groups.consumer.classic_members import (
    guest_heartbeat,
    guest_join,
    guest_leave,
    guest_sync,
)
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import JOIN, REBALANCE, SESSION, SYNC
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.leaving import on_silence, on_unrevoked
from ottla.coordinators.groups.consumer.member import ConsumerMember, MemberState
from ottla.coordinators.groups.consumer.records import replayed
from ottla.coordinators.groups.machine import GroupMachine, ReplayKind
from ottla.protocol.faults import Fault
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis

ConsumerKey: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
_KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
# What a timer asked for and the log refused is tried again after this.
_RETRY_MS: Final = 500


class ConsumerKind:
    """The consumer groups of one shard; also serves classic members that are in one."""

    def __init__(self, context: ConsumerContext) -> None:
        self.context = context
        self._timers = MappingProxyType(
            {
                SESSION: self._on_silence,
                REBALANCE: self._on_unrevoked,
                JOIN: self._on_silence,
                SYNC: self._on_silence,
            }
        )

    # -- the log -------------------------------------------------------------

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
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = ConsumerGroup(key.group_id)
        changed = replayed(group, key, value)
        if changed is None:
            self.context.forget(key.group_id)
            machine.forget(key.group_id)
        else:
            machine.put(changed)

    # -- life ----------------------------------------------------------------

    def on_loaded(self, machine: GroupMachine, now: Millis) -> Sequence[TimerChange]:
        """Give every member its whole session, and those that are waited for their whole time."""
        timers: list[TimerChange] = []
        for group_id in sorted(machine.groups):
            group = machine.groups[group_id]
            if isinstance(group, ConsumerGroup):
                for member_id in sorted(group.members):
                    timers.extend(self._first_timers(group_id, group.members[member_id]))
        return timers

    def _first_timers(self, group_id: str, member: ConsumerMember) -> list[TimerChange]:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.context.session_timeout_ms(group_id)
        timers: list[TimerChange] = [SetTimer((SESSION, group_id, member.member_id), timeout_ms)]
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            key = (REBALANCE, group_id, member.member_id)
            timers.append(SetTimer(key, member.rebalance_timeout_ms))
        return timers

    @property
    def timers(self) -> Mapping[str, Callable[[GroupMachine, TimerKey, Millis], Decision]]:
        """By the first part of the key: what to do when a timer rings."""
        return self._timers

    def _on_silence(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        return _again(on_silence(self.context, machine, key[1], key[2], now), key)

    def _on_unrevoked(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        return _again(on_unrevoked(self.context, machine, key[1], key[2], now), key)

    # -- classic members in consumer groups ------------------------------------

    def hosts(self, machine: GroupMachine, group_id: str) -> bool:
        """Whether requests of the classic protocol to this group are answered here."""
        group = machine.groups.get(group_id)
        return isinstance(group, ConsumerGroup) and not group.is_empty()

    def join(self, machine: GroupMachine, joining: Joining, now: Millis) -> Decision:
        """JoinGroup."""
        group = _group(machine, joining.request.group_id)
        return guest_join(self.context, machine, group, joining, now)

    def sync(self, machine: GroupMachine, request: SyncGroupRequest) -> Decision:
        """SyncGroup."""
        return guest_sync(self.context, _group(machine, request.group_id), request)

    def heartbeat(self, machine: GroupMachine, request: HeartbeatRequest) -> Decision:
        """Heartbeat."""
        return guest_heartbeat(self.context, _group(machine, request.group_id), request)

    def leave(self, machine: GroupMachine, request: LeaveGroupRequest, now: Millis) -> Decision:
        """LeaveGroup."""
        group = _group(machine, request.group_id)
        return guest_leave(self.context, machine, group, request, now)


def consumer_kind(machine: GroupMachine) -> ConsumerKind:
    """Return the kind of a machine that has consumer groups."""
    return next(kind for kind in machine.kinds if isinstance(kind, ConsumerKind))


def _group(machine: GroupMachine, group_id: str) -> ConsumerGroup:
    group = machine.groups[group_id]
    assert isinstance(group, ConsumerGroup), "asked for before `ConsumerKind.hosts`"
    return group


def _again(decision: Decision, key: TimerKey) -> Decision:
    """Ring again where the log does not take what a timer led to."""
    undo = decision.refused

    def refused(fault: Fault) -> Decision:
        undone = Decision() if undo is None else undo(fault)
        return replace(undone, timers=[*undone.timers, SetTimer(key, _RETRY_MS)])

    return replace(decision, refused=refused)
