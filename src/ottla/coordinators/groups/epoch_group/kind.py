"""A kind of group with epochs, as the state machine of a shard uses it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from msgspec.structs import replace

from ottla.coordinators.decision import NOTHING, Decision, SetTimer, TimerChange, TimerKey
from ottla.coordinators.groups.epoch_group.context import EpochContext
from ottla.coordinators.groups.epoch_group.group import EpochGroup
from ottla.coordinators.groups.epoch_group.records import EpochRecords
from ottla.coordinators.groups.kind import Group
from ottla.coordinators.groups.machine import GroupMachine, ReplayKind
from ottla.protocol.faults import Fault
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis

# How long to wait before a timer is retried whose records the log rejected.
_RETRY_MS: Final = 500

ContextT = TypeVar("ContextT", bound=EpochContext[Any])
GroupT = TypeVar("GroupT", bound=EpochGroup[Any, Any])
MemberT = TypeVar("MemberT")

OnTimer = Callable[[GroupMachine, TimerKey, Millis], Decision]


class EpochKind(Generic[ContextT, GroupT, MemberT]):
    """The groups of one kind in one shard."""

    group_type: type[GroupT]
    format: EpochRecords[GroupT, Any, Any]

    def __init__(self, context: ContextT) -> None:
        self.context = context

    # -- each kind -----------------------------------------------------------

    @property
    def timers(self) -> Mapping[str, OnTimer]:
        """The handlers of timers, by the first part of the key."""
        raise NotImplementedError

    def first_timers(self, group_id: str, member: MemberT) -> list[TimerChange]:
        """Return the timers of a member in a group that was just loaded."""
        raise NotImplementedError

    def fence(self, machine: GroupMachine, group: GroupT, member: MemberT, now: Millis) -> Decision:
        """Remove a member that did not act in time."""
        raise NotImplementedError

    def on_replayed(self, group: GroupT) -> None:
        """Note that a record has changed a group."""

    def on_group_loaded(self, group: GroupT) -> None:
        """Note that a group was loaded from the log."""

    # -- all kinds -----------------------------------------------------------

    @property
    def replays(self) -> Mapping[type[Message], ReplayKind]:
        """By the type of key: how a record changes the machine."""
        return dict.fromkeys(self.format.keys.all(), self._replay)

    def _replay(self, machine: GroupMachine, key: Any, value: Message | None) -> None:  # noqa: ANN401
        """Replay a record. One that is no tombstone creates a group that is missing.

        A classic group of that id is replaced: it was only created for offsets that precede the
        record in the log, or its tombstone was compacted away.
        """
        group = self.group(machine, key.group_id)
        if group is None:
            if value is None:
                return
            group = self.format.new_group(key.group_id)
        changed = self.format.replayed(group, key, value)
        if changed is None:
            self.context.forget(key.group_id)
            machine.forget(key.group_id)
        else:
            self.on_replayed(changed)
            machine.put(cast(Group, changed))

    def group(self, machine: GroupMachine, group_id: str) -> GroupT | None:
        """Return a group if it exists and is of this kind."""
        group: object = machine.groups.get(group_id)
        return group if isinstance(group, self.group_type) else None

    def on_loaded(self, machine: GroupMachine, now: Millis) -> Sequence[TimerChange]:
        """Give every member its whole session timeout, and its whole time to revoke."""
        timers: list[TimerChange] = []
        for group_id in sorted(machine.groups):
            group = self.group(machine, group_id)
            if group is not None:
                self.on_group_loaded(group)
                for member_id in sorted(group.members):
                    timers.extend(self.first_timers(group_id, group.members[member_id]))
        return timers

    def on_member_timeout(
        self,
        machine: GroupMachine,
        key: TimerKey,
        now: Millis,
        must_fence: Callable[[MemberT], bool] = lambda member: True,
    ) -> Decision:
        """Fence the member of a timer, if it is there and ``must_fence``.

        The timer is set again where the log rejects the records.
        """
        group = self.group(machine, key[1])
        member = None if group is None else group.members.get(key[2])
        if group is None or member is None or not must_fence(member):
            return NOTHING
        return _retried(self.fence(machine, group, member, now), key)


def _retried(decision: Decision, key: TimerKey) -> Decision:
    """Set the timer again where the log rejects the records of the decision."""
    undo = decision.refused

    def refused(fault: Fault) -> Decision:
        undone = Decision() if undo is None else undo(fault)
        return replace(undone, timers=[*undone.timers, SetTimer(key, _RETRY_MS)])

    return replace(decision, refused=refused)
