"""Consumer groups as a kind of group: their records, timers and classic members."""

from collections.abc import Mapping

from ottla.coordinators.decision import Decision, SetTimer, TimerChange, TimerKey
from ottla.coordinators.groups.classic.join import Joining
from ottla.coordinators.groups.consumer.classic_members import (
    heartbeat_classic_member,
    join_classic_member,
    leave_classic_members,
    sync_classic_member,
)
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import JOIN, REBALANCE, SESSION, SYNC
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.leaving import fence
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.consumer.records import RECORDS
from ottla.coordinators.groups.epoch_group.kind import EpochKind, OnTimer
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.machine import GroupMachine
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.types import Millis


class ConsumerKind(EpochKind[ConsumerContext, ConsumerGroup, ConsumerMember]):
    """The consumer groups of one shard; also serves classic members of a consumer group."""

    group_type = ConsumerGroup
    format = RECORDS

    @property
    def timers(self) -> Mapping[str, OnTimer]:
        """The handlers of timers, by the first part of the key."""
        return {
            SESSION: self._on_session_timeout,
            REBALANCE: self._on_rebalance_timeout,
            JOIN: self._on_session_timeout,
            SYNC: self._on_session_timeout,
        }

    def first_timers(self, group_id: str, member: ConsumerMember) -> list[TimerChange]:
        """Return the timers of a member in a group that was just loaded."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.context.session_timeout_ms(group_id)
        timers: list[TimerChange] = [SetTimer((SESSION, group_id, member.member_id), timeout_ms)]
        if member.state is MemberState.UNREVOKED and member.classic is None:
            key = (REBALANCE, group_id, member.member_id)
            timers.append(SetTimer(key, member.rebalance_timeout_ms))
        return timers

    def fence(
        self, machine: GroupMachine, group: ConsumerGroup, member: ConsumerMember, now: Millis
    ) -> Decision:
        """Remove a member that did not act in time."""
        return fence(self.context, machine, group, [member], now)

    def _on_session_timeout(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        """Remove a member that sent no heartbeat, or did not join or sync in time."""
        self.context.awaiting_join.discard((key[1], key[2]))
        return self.on_member_timeout(machine, key, now)

    def _on_rebalance_timeout(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        """Remove a member that has not revoked the partitions that others wait for."""
        return self.on_member_timeout(
            machine, key, now, lambda member: member.state is MemberState.UNREVOKED
        )

    # -- classic members in consumer groups ------------------------------------

    def hosts(self, machine: GroupMachine, group_id: str) -> bool:
        """Whether classic requests to this group are handled here."""
        group = machine.groups.get(group_id)
        return isinstance(group, ConsumerGroup) and not group.is_empty()

    def join(self, machine: GroupMachine, joining: Joining, now: Millis) -> Decision:
        """JoinGroup."""
        group = _group(machine, joining.request.group_id)
        return join_classic_member(self.context, machine, group, joining, now)

    def sync(self, machine: GroupMachine, request: SyncGroupRequest) -> Decision:
        """SyncGroup."""
        return sync_classic_member(self.context, _group(machine, request.group_id), request)

    def heartbeat(self, machine: GroupMachine, request: HeartbeatRequest) -> Decision:
        """Heartbeat."""
        return heartbeat_classic_member(self.context, _group(machine, request.group_id), request)

    def leave(self, machine: GroupMachine, request: LeaveGroupRequest, now: Millis) -> Decision:
        """LeaveGroup."""
        group = _group(machine, request.group_id)
        return leave_classic_members(self.context, machine, group, request, now)


def _group(machine: GroupMachine, group_id: str) -> ConsumerGroup:
    group = machine.groups[group_id]
    assert isinstance(group, ConsumerGroup), "asked for before `ConsumerKind.hosts`"
    return group
