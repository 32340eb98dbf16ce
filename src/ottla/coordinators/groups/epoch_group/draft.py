"""A group with epochs while a decision is made: its records, and the group that they result in.

Each record is applied to the draft at once, by the code that will replay it. Later steps of the
decision see the earlier ones, and the state after replay equals the draft.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from ottla.coordinators.decision import Answer, CancelTimer, SetTimer, TimerChange
from ottla.coordinators.groups.epoch_group.group import EpochGroup
from ottla.coordinators.groups.epoch_group.member import (
    EpochMember,
    MemberState,
    ReconciledMember,
)
from ottla.coordinators.groups.epoch_group.records import EpochRecords
from ottla.protocol.internal.framing import CoordinatorRecord

GroupT = TypeVar("GroupT", bound=EpochGroup[Any, Any])
MemberT = TypeVar("MemberT", bound=EpochMember)
TargetT = TypeVar("TargetT")


class EpochDraft(Generic[GroupT, MemberT, TargetT]):
    """``before`` are records that precede the group's own, as tombstones of another kind."""

    format: EpochRecords[GroupT, MemberT, TargetT]
    member_timers: tuple[str, ...]

    def __init__(self, group: GroupT, before: Sequence[CoordinatorRecord] = ()) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = list(before)
        self.timers: list[TimerChange] = []
        self.answers: list[Answer] = []

    def add(self, record: CoordinatorRecord) -> None:
        """Write a record and apply it."""
        self.records.append(record)
        value = None if record.value is None else record.value.message
        group = self.format.replayed(self.group, record.key, value)
        assert group is not None, "a draft does not delete its group"
        self.group = group

    def write_member(self, member: MemberT) -> None:
        """Write the metadata of a member."""
        self.add(self.format.member_record(self.group.group_id, member))

    def write_assignment(self, member: MemberT) -> None:
        """Write the epoch and assignment of a member."""
        self.add(self.format.assignment_record(self.group.group_id, member))

    def write_targets(self, targets: Mapping[str, TargetT], default: TargetT) -> None:
        """Write the targets that changed, then the epoch they were computed for."""
        group = self.group
        for member_id in sorted(group.members):
            target = targets.get(member_id, default)
            if group.targets.get(member_id) != target:
                self.add(self.format.target_record(group.group_id, member_id, target))
        self.add(self.format.target_epoch_record(group.group_id, group.epoch))

    def remove(self, member_id: str) -> None:
        """Remove a member and cancel its timers."""
        for record in self.format.keys.member_removal(self.group.group_id, member_id):
            self.add(record)
        for timer in self.member_timers:
            self.timers.append(CancelTimer((timer, self.group.group_id, member_id)))

    def expect_revocation(self, timer: str, member: ReconciledMember) -> None:
        """Start the rebalance timeout of a member that must revoke, or cancel it."""
        key = (timer, self.group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED:
            self.timers.append(SetTimer(key, member.rebalance_timeout_ms))
        else:
            self.timers.append(CancelTimer(key))
