"""A streams group (KIP-1071): its topology, epochs, members, targets, and who runs which task.

Immutable: a record makes another group of it (`records.py`), so that a view of what is
committed stays as it is.

    epoch             rises when members, their topology's topics or the group's settings change;
                      the first is 2, so that a member can be at 1 while its group is formed
    assignment_epoch  the epoch that the targets were made for; never above ``epoch``
    member.epoch      the assignment epoch a member has come to
    validated_epoch   the epoch of the topology whose topics were all there, or -1

Invariant: an active task in ``owners`` has one holder, and every active task that a member holds,
assigned or yet to give up, names it there.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.kind import Committer, GroupType, PartitionCheck
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
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Uuid

STREAMS_PROTOCOL: Final = "streams"
NOT_VALIDATED: Final = -1
# A member that commits must say its epoch in a form that only these versions have.
_COMMIT_VERSION_MIN: Final = 9


class StreamsGroup(msgspec.Struct, frozen=True):
    """One streams group. ``configs`` are the settings its targets were made with, sorted."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    validated_epoch: int = NOT_VALIDATED
    configs: tuple[tuple[str, str], ...] = ()
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: Map[str, StreamsMember] = msgspec.field(default_factory=Map)
    targets: Map[str, TaskRoles] = msgspec.field(default_factory=Map)
    owners: Map[TaskId, str] = msgspec.field(default_factory=Map)

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
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(
            each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    def protocol_type(self) -> str:
        """Return what ListGroups says of it."""
        return STREAMS_PROTOCOL

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def check_offset_commit(self, committer: Committer) -> ErrorCode | PartitionCheck:
        """Say whether offsets may be committed: by members at their epoch, or if there are none.

        A member that was moved on meanwhile may still commit for tasks that it had at the epoch
        it says: each partition is asked about.
        """
        if committer.epoch < 0 and not self.members:
            return ErrorCode.NONE
        is_anonymous = not committer.member_id and committer.instance_id is None
        if committer.is_transactional and committer.epoch == -1 and is_anonymous:
            return ErrorCode.NONE
        member = self.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not committer.is_transactional and committer.version < _COMMIT_VERSION_MIN:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._check_epoch(member, committer.epoch)

    def _check_epoch(self, member: StreamsMember, epoch: int) -> ErrorCode | PartitionCheck:
        if epoch == member.epoch:
            return ErrorCode.NONE
        if epoch > member.epoch or self.topology is None:
            return ErrorCode.STALE_MEMBER_EPOCH
        return _check_tasks(member, self.topology, epoch)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Say whether offsets may be read; whoever does not name itself may."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = member_epoch == member.epoch
        return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        """Offsets of topics that nobody reads may be deleted at any time."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only an empty group may be deleted."""
        return ErrorCode.NONE if not self.members else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether tasks read the topic."""
        if not self.members or self.topology is None:
            return False
        return topic in self.topology.subtopology_of

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Count from the commit; topics that are read are asked for beforehand."""
        return commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, those of the group itself last."""
        group_id, members = self.group_id, sorted(self.members)
        keys: list[Message] = [
            StreamsGroupCurrentMemberAssignmentKey(group_id, each) for each in members
        ]
        keys += [StreamsGroupTargetAssignmentMemberKey(group_id, each) for each in members]
        keys.append(StreamsGroupTargetAssignmentMetadataKey(group_id))
        keys += [StreamsGroupMemberMetadataKey(group_id, each) for each in members]
        keys.append(StreamsGroupTopologyKey(group_id))
        keys.append(StreamsGroupMetadataKey(group_id))
        return [CoordinatorRecord(key, None) for key in keys]

    # -- tasks -----------------------------------------------------------------

    def target_of(self, member_id: str) -> TaskRoles:
        """Return what a member shall have."""
        return self.targets.get(member_id, NO_ROLES)

    def beside(self, member: StreamsMember) -> TaskRoles:
        """Return what the other threads of a member's process hold."""
        held = NO_ROLES
        for other in self.members.values():
            is_other = other.member_id != member.member_id
            if is_other and other.process_id == member.process_id:
                held |= other.held()
        return held

    # -- the next group --------------------------------------------------------

    def with_member(self, member: StreamsMember) -> "StreamsGroup":
        """Return the group with a member as it is now, and what it holds held by it."""
        old = self.members.get(member.member_id)
        return replace(
            self,
            members=self.members.set(member.member_id, member),
            owners=_handed_over(self.owners, old, member),
        )

    def without_member(self, member_id: str) -> "StreamsGroup":
        """Return the group without a member; what it held is free."""
        old = self.members.get(member_id)
        if old is None:
            return self
        return replace(
            self,
            members=self.members.delete(member_id),
            owners=_handed_over(self.owners, old, None),
        )


def _check_tasks(member: StreamsMember, topology: Topology, epoch: int) -> PartitionCheck:
    """Return whether a member of an older epoch may commit for a partition: what it had then."""

    def check(topic: str, topic_id: Uuid, partition: int) -> ErrorCode:
        subtopology_id = topology.subtopology_of.get(topic)
        since = None
        if subtopology_id is not None:
            since = member.task_epochs.get((subtopology_id, partition))
        may = since is not None and epoch >= since
        return ErrorCode.NONE if may else ErrorCode.STALE_MEMBER_EPOCH

    return check


def _handed_over(
    owners: Map[TaskId, str], old: StreamsMember | None, new: StreamsMember | None
) -> Map[TaskId, str]:
    """Let go of what a member ran, unless another has it by now, and take what it runs."""
    if old is not None and new is not None:
        is_same = old.assigned is new.assigned
        if is_same and old.pending_revocation is new.pending_revocation:
            return owners
    changed = owners.mutate()
    if old is not None:
        for task in _active_of(old):
            if changed.get(task) == old.member_id:
                del changed[task]
    if new is not None:
        for task in _active_of(new):
            changed[task] = new.member_id
    return changed.finish()


def _active_of(member: StreamsMember) -> Iterator[TaskId]:
    """Yield the tasks that a member may be running as active."""
    yield from member.assigned.active
    yield from member.pending_revocation.active
