"""Share groups as a kind of group: their records and timers."""

from collections.abc import Mapping

from ottla.coordinators.decision import Decision, SetTimer, TimerChange
from ottla.coordinators.groups.epoch_group.kind import EpochKind, OnTimer
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.draft import SESSION, remove_member
from ottla.coordinators.groups.share.group import ShareGroup, ShareMember
from ottla.coordinators.groups.share.records import RECORDS
from ottla.protocol.types import Millis


class ShareKind(EpochKind[ShareContext, ShareGroup, ShareMember]):
    """The share groups of one shard."""

    group_type = ShareGroup
    format = RECORDS

    @property
    def timers(self) -> Mapping[str, OnTimer]:
        """The handlers of timers, by the first part of the key."""
        return {SESSION: self.on_member_timeout}

    def first_timers(self, group_id: str, member: ShareMember) -> list[TimerChange]:
        """Return the session timer of a member in a group that was just loaded."""
        key = (SESSION, group_id, member.member_id)
        return [SetTimer(key, self.context.session_timeout_ms(group_id))]

    def fence(
        self, machine: GroupMachine, group: ShareGroup, member: ShareMember, now: Millis
    ) -> Decision:
        """Remove a member that sent no heartbeat within its session."""
        records, _ = remove_member(self.context, group, member.member_id)
        return Decision(records)
