"""A streams group (KIP-1071): its topology, epochs, members, targets, and the owner of each task.

Immutable: a record creates another group from it (`records.py`), so that committed views do not
change.

    epoch             rises when members, the topology's topics or the group's settings change;
                      the first is 2, so that members have 1 while the group is forming
    assignment_epoch  the epoch that the targets were computed for; never above ``epoch``
    member.epoch      the assignment epoch that a member has reached
    validated_epoch   the epoch of the topology whose topics all existed, or -1

Invariant: an active task in ``owners`` has one owner, and every active task that a member holds,
assigned or pending revocation, is there with that member.
"""

from collections.abc import Iterator
from typing import Final

from ottla.coordinators.groups.epoch_group.group import ExclusiveGroup
from ottla.coordinators.groups.epoch_group.record_keys import RecordKeys
from ottla.coordinators.groups.kind import GroupType, PartitionCheck
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskId, TaskRoles
from ottla.coordinators.groups.streams.topology import Topology
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from ottla.protocol.types import Uuid

STREAMS_PROTOCOL: Final = "streams"
NOT_VALIDATED: Final = -1
KEYS: Final = RecordKeys(
    group=StreamsGroupMetadataKey,
    member=StreamsGroupMemberMetadataKey,
    target_epoch=StreamsGroupTargetAssignmentMetadataKey,
    target=StreamsGroupTargetAssignmentMemberKey,
    assignment=StreamsGroupCurrentMemberAssignmentKey,
    other=(StreamsGroupTopologyKey,),
)


class StreamsGroup(ExclusiveGroup[StreamsMember, TaskRoles, TaskId], frozen=True):
    """One streams group. ``configs`` are the settings its targets are based on, sorted."""

    validated_epoch: int = NOT_VALIDATED
    configs: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None

    # -- as any group --------------------------------------------------------

    @property
    def type(self) -> GroupType:
        """A streams group."""
        return GroupType.STREAMS

    def state_name(self) -> str:
        """Return its state as Kafka prints it."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return "NotReady"
        return ExclusiveGroup.state_name(self)

    def protocol_type(self) -> str:
        """Return its protocol type for ListGroups."""
        return STREAMS_PROTOCOL

    def check_commit_epoch(self, member: StreamsMember, epoch: int) -> ErrorCode | PartitionCheck:
        """Check the epoch of a commit.

        A member that has moved on may still commit for tasks that it had at an older epoch: each
        partition is checked.
        """
        if epoch < member.epoch and self.topology is not None:
            return _check_tasks(member, self.topology, epoch)
        return self.check_epoch(member, epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a task reads the topic."""
        if not self.members or self.topology is None:
            return False
        return topic in self.topology.subtopology_of

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, that of the group itself last."""
        topology = StreamsGroupTopologyKey(self.group_id)
        return KEYS.group_removal(self.group_id, self.members, [topology])

    # -- tasks -----------------------------------------------------------------

    def target_of(self, member_id: str) -> TaskRoles:
        """Return the target of a member."""
        return self.targets.get(member_id, NO_ROLES)

    def beside(self, member: StreamsMember) -> TaskRoles:
        """Return the tasks that the other threads of a member's process hold."""
        held = NO_ROLES
        for other in self.members.values():
            is_other = other.member_id != member.member_id
            if is_other and other.process_id == member.process_id:
                held |= other.held()
        return held

    def held_by(self, member: StreamsMember) -> Iterator[TaskId]:
        """Yield the tasks that a member may be running as active."""
        yield from member.assigned.active
        yield from member.pending_revocation.active


def _check_tasks(member: StreamsMember, topology: Topology, epoch: int) -> PartitionCheck:
    """Return a check for commits at an older epoch: a member may commit for tasks it had then."""

    def check(topic: str, topic_id: Uuid, partition: int) -> ErrorCode:
        subtopology_id = topology.subtopology_of.get(topic)
        since = None
        if subtopology_id is not None:
            since = member.task_epochs.get((subtopology_id, partition))
        may = since is not None and epoch >= since
        return ErrorCode.NONE if may else ErrorCode.STALE_MEMBER_EPOCH

    return check
