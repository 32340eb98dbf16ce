"""A streams group under change: the records of a decision, and the group they make.

Each record is applied to the draft at once, by the code that will replay it, so that what is
decided next sees what was decided before, and the state afterwards is the draft.
"""

from typing import Final

from msgspec.structs import replace

from ottla.coordinators.decision import CancelTimer, SetTimer, TimerChange
from ottla.coordinators.groups.streams.assignor import (
    StreamsMemberSpec,
    StreamsSpec,
    assign_sticky,
)
from ottla.coordinators.groups.streams.context import Seen
from ottla.coordinators.groups.streams.group import NOT_VALIDATED, StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember, TaskState
from ottla.coordinators.groups.streams.reconcile import TaskGoal, reconcile_tasks
from ottla.coordinators.groups.streams.records import (
    epoch_record,
    member_record,
    placement_record,
    removal,
    replayed,
    target_epoch_record,
    target_record,
    topology_record,
)
from ottla.coordinators.groups.streams.settings import NUM_STANDBY_REPLICAS
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskRoles
from ottla.coordinators.groups.streams.topics import Configured
from ottla.coordinators.groups.streams.topology import Topology
from ottla.protocol.internal.framing import CoordinatorRecord

SESSION: Final = "streams-session"
REBALANCE: Final = "streams-rebalance"
# Until when a group that is being formed waits for more members.
FORMING: Final = "streams-forming"

# The first epoch of a group: 1 is for members that wait while it is formed.
FIRST_EPOCH: Final = 2


class StreamsDraft:
    """``before`` are records that make way for the group, as tombstones of another kind."""

    def __init__(self, group: StreamsGroup, before: list[CoordinatorRecord] | None = None) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = list(before or ())
        self.timers: list[TimerChange] = []

    def add(self, record: CoordinatorRecord) -> None:
        """Write a record."""
        self.records.append(record)
        value = None if record.value is None else record.value.message
        group = replayed(self.group, record.key, value)
        assert group is not None, "a draft does not delete its group"
        self.group = group

    def describe(self, member: StreamsMember) -> None:
        """Write what a member says of itself."""
        self.add(member_record(self.group.group_id, member))

    def run(self, topology: Topology) -> None:
        """Write what the group runs."""
        self.add(topology_record(self.group.group_id, topology))

    def raise_epoch(self, seen: Seen | None, configs: tuple[tuple[str, str], ...]) -> None:
        """Begin another epoch of the group; ``seen`` None: its topics are as they were."""
        group = self.group
        epoch = group.epoch + 1 if group.epoch else FIRST_EPOCH
        changed = replace(group, epoch=epoch, configs=configs)
        if seen is not None:
            validated = validated_epoch(seen.configured)
            changed = replace(changed, metadata_hash=seen.metadata_hash, validated_epoch=validated)
        self.add(epoch_record(changed))

    def remove(self, member_id: str) -> None:
        """Let go of a member and of whatever it is waited for."""
        for record in removal(self.group.group_id, member_id):
            self.add(record)
        for kind in (SESSION, REBALANCE):
            self.timers.append(CancelTimer((kind, self.group.group_id, member_id)))

    # -- targets -----------------------------------------------------------------

    def assign(self, configured: Configured) -> None:
        """Make the targets for the present epoch; only those that change are written.

        While topics are missing nobody shall have anything.
        """
        group = self.group
        targets = assign_sticky(_spec(group, configured)) if configured.is_ready() else {}
        for member_id in sorted(group.members):
            target = targets.get(member_id, NO_ROLES)
            if group.targets.get(member_id) != target:
                self.add(target_record(group.group_id, member_id, target))
        self.add(target_epoch_record(group.group_id, group.epoch))

    # -- reconciliation ------------------------------------------------------------

    def reconcile(
        self, member: StreamsMember, epoch: int, target: TaskRoles, owned: TaskRoles | None
    ) -> StreamsMember:
        """Move a member towards a target; return it as it is now."""
        group = self.group
        if member.is_reconciled_to(epoch):
            return member
        elsewhere = frozenset(
            task for task in target.active if group.owners.get(task) not in (None, member.member_id)
        )
        goal = TaskGoal(epoch, target, elsewhere, group.beside(member), owned)
        moved = reconcile_tasks(member, goal)
        if moved == member:
            return member
        self.add(placement_record(group.group_id, moved))
        self._expect_revocation(moved)
        return moved

    def _expect_revocation(self, member: StreamsMember) -> None:
        """Wait no longer for a member to give up than it asked to be waited for."""
        key = (REBALANCE, self.group.group_id, member.member_id)
        if member.state is TaskState.UNREVOKED_TASKS:
            self.timers.append(SetTimer(key, member.rebalance_timeout_ms))
        else:
            self.timers.append(CancelTimer(key))


def validated_epoch(configured: Configured) -> int:
    """Return the epoch of a topology whose topics are all there, or -1."""
    return configured.topology.epoch if configured.is_ready() else NOT_VALIDATED


def _spec(group: StreamsGroup, configured: Configured) -> StreamsSpec:
    """Return a group as the assignor sees it."""
    count = dict(group.configs).get(NUM_STANDBY_REPLICAS, "0")
    return StreamsSpec(
        {
            each: StreamsMemberSpec(group.members[each].process_id, group.target_of(each))
            for each in group.members
        },
        configured.task_counts,
        frozenset(
            each.subtopology_id for each in configured.topology.subtopologies if each.is_stateful()
        ),
        int(count) if count.isdigit() else 0,
    )
