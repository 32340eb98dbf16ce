"""Streams groups as a kind of group: their records and timers."""

from collections.abc import Mapping

from ottla.coordinators.decision import Decision, SetTimer, TimerChange, TimerKey
from ottla.coordinators.groups.epoch_group.kind import EpochKind, OnTimer
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.draft import FORMING, REBALANCE, SESSION
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.leaving import fence, on_formed
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.records import RECORDS
from ottla.protocol.types import Millis


class StreamsKind(EpochKind[StreamsContext, StreamsGroup, StreamsMember]):
    """The streams groups of one shard."""

    group_type = StreamsGroup
    format = RECORDS

    @property
    def timers(self) -> Mapping[str, OnTimer]:
        """The handlers of timers, by the first part of the key."""
        return {
            SESSION: self.on_member_timeout,
            REBALANCE: self._on_rebalance_timeout,
            FORMING: self._on_formed,
        }

    def first_timers(self, group_id: str, member: StreamsMember) -> list[TimerChange]:
        """Return the timers of a member in a group that was just loaded."""
        timeout_ms = self.context.session_timeout_ms(group_id)
        timers: list[TimerChange] = [SetTimer((SESSION, group_id, member.member_id), timeout_ms)]
        if member.state is MemberState.UNREVOKED:
            key = (REBALANCE, group_id, member.member_id)
            timers.append(SetTimer(key, member.rebalance_timeout_ms))
        return timers

    def fence(
        self, machine: GroupMachine, group: StreamsGroup, member: StreamsMember, now: Millis
    ) -> Decision:
        """Remove a member that did not act in time."""
        return fence(self.context, group, member)

    def on_replayed(self, group: StreamsGroup) -> None:
        """Note that a record has changed a group."""
        self.context.note_members(group)

    def on_group_loaded(self, group: StreamsGroup) -> None:
        """Take over a group from another coordinator."""
        self.context.take_over(group)

    def _on_rebalance_timeout(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        """Remove a member that has not revoked the tasks that others wait for."""
        return self.on_member_timeout(
            machine, key, now, lambda member: member.state is MemberState.UNREVOKED
        )

    def _on_formed(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        return on_formed(self.context, machine, key[1])
