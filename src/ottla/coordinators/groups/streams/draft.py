"""A streams group while a decision is made: epochs, targets, and reconciliation of members."""

from typing import Final

from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.draft import EpochDraft
from ottla.coordinators.groups.streams.assignor import (
    StreamsMemberSpec,
    StreamsSpec,
    assign_sticky,
)
from ottla.coordinators.groups.streams.context import Seen
from ottla.coordinators.groups.streams.group import NOT_VALIDATED, StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.reconcile import TaskGoal, reconcile_tasks
from ottla.coordinators.groups.streams.records import RECORDS, epoch_record, topology_record
from ottla.coordinators.groups.streams.settings import NUM_STANDBY_REPLICAS
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskRoles
from ottla.coordinators.groups.streams.topics import Configured
from ottla.coordinators.groups.streams.topology import Topology

SESSION: Final = "streams-session"
REBALANCE: Final = "streams-rebalance"
# The timer of a group that is forming: until when it waits for more members.
FORMING: Final = "streams-forming"

# The first epoch of a group: members have 1 while it is forming.
FIRST_EPOCH: Final = 2


class StreamsDraft(EpochDraft[StreamsGroup, StreamsMember, TaskRoles]):
    """A streams group while a decision is made."""

    format = RECORDS
    member_timers = (SESSION, REBALANCE)

    def run(self, topology: Topology) -> None:
        """Write the topology of the group."""
        self.add(topology_record(self.group.group_id, topology))

    def raise_epoch(self, seen: Seen | None, configs: tuple[tuple[str, str], ...]) -> None:
        """Begin another epoch of the group; ``seen`` is None if its topics are unchanged."""
        group = self.group
        epoch = group.epoch + 1 if group.epoch else FIRST_EPOCH
        changed = replace(group, epoch=epoch, configs=configs)
        if seen is not None:
            validated = validated_epoch(seen.configured)
            changed = replace(changed, metadata_hash=seen.metadata_hash, validated_epoch=validated)
        self.add(epoch_record(changed))

    # -- targets -----------------------------------------------------------------

    def assign(self, configured: Configured) -> None:
        """Compute the targets for the current epoch; only changed ones are written.

        While topics are missing all targets are empty.
        """
        group = self.group
        targets = assign_sticky(_spec(group, configured)) if configured.is_ready() else {}
        self.write_targets(targets, NO_ROLES)

    # -- reconciliation ------------------------------------------------------------

    def reconcile(
        self, member: StreamsMember, epoch: int, target: TaskRoles, owned: TaskRoles | None
    ) -> StreamsMember:
        """Move a member towards a target; return its new state."""
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
        self.write_assignment(moved)
        self.expect_revocation(REBALANCE, moved)
        return moved


def validated_epoch(configured: Configured) -> int:
    """Return the epoch of a topology whose topics all exist, or -1."""
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
