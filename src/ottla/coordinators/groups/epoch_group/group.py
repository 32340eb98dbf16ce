"""The state that every group with epochs has, and the checks on it.

epoch             rises when members, subscriptions or the topics themselves change
assignment_epoch  the epoch that the targets were computed for; never above ``epoch``
member.epoch      the assignment epoch that a member has reached
"""

from collections.abc import Iterable
from typing import Final, Generic, Self, TypeVar

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.member import EpochMember, ReconciledMember
from ottla.coordinators.groups.kind import Committer, PartitionCheck
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis

# Only these versions of OffsetCommit carry a member epoch.
_COMMIT_VERSION_MIN: Final = 9

MemberT = TypeVar("MemberT", bound=EpochMember)
ReconciledT = TypeVar("ReconciledT", bound=ReconciledMember)
TargetT = TypeVar("TargetT")
HeldT = TypeVar("HeldT")


class EpochGroup(msgspec.Struct, Generic[MemberT, TargetT], frozen=True):
    """A group with epochs. ``targets`` contains members whose target is empty as well."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: Map[str, MemberT] = msgspec.field(default_factory=Map)
    targets: Map[str, TargetT] = msgspec.field(default_factory=Map)

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def member_count(self) -> int:
        """Return how many members it has."""
        return len(self.members)

    def check_delete(self) -> ErrorCode:
        """Return NON_EMPTY_GROUP for a group with members; any other may be deleted."""
        return ErrorCode.NONE if not self.members else ErrorCode.NON_EMPTY_GROUP

    def with_member(self, member: MemberT) -> Self:
        """Return the group with a member added or replaced."""
        return replace(self, members=self.members.set(member.member_id, member))

    def without_member(self, member_id: str) -> Self:
        """Return the group without a member."""
        if member_id not in self.members:
            return self
        return replace(self, members=self.members.delete(member_id))

    def with_target(self, member_id: str, target: TargetT | None) -> Self:
        """Return the group with the target of a member set, or removed."""
        if target is not None:
            return replace(self, targets=self.targets.set(member_id, target))
        if member_id in self.targets:
            return replace(self, targets=self.targets.delete(member_id))
        return self


class ExclusiveGroup(
    EpochGroup[ReconciledT, TargetT], Generic[ReconciledT, TargetT, HeldT], frozen=True
):
    """A group in which each partition or active task has one owner, and members commit offsets.

    Invariant: ``owners`` names one member for everything that a member holds, assigned or pending
    revocation.
    """

    owners: Map[HeldT, str] = msgspec.field(default_factory=Map)

    def state_name(self) -> str:
        """Return its state as Kafka prints it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(
            each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    # -- offsets -------------------------------------------------------------

    def check_offset_commit(self, committer: Committer) -> ErrorCode | PartitionCheck:
        """Allow commits by members at their epoch, and by anyone while there are no members."""
        if committer.epoch < 0 and not self.members:
            return ErrorCode.NONE
        is_anonymous = not committer.member_id and committer.instance_id is None
        if committer.is_transactional and committer.epoch == -1 and is_anonymous:
            return ErrorCode.NONE
        member = self.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_old = committer.version < _COMMIT_VERSION_MIN
        if not committer.is_transactional and is_old and self.must_send_epoch(member):
            return ErrorCode.UNSUPPORTED_VERSION
        return self.check_commit_epoch(member, committer.epoch)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Allow members at their epoch, and requests that name no member."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self.check_epoch(member, member_epoch)

    def must_send_epoch(self, member: ReconciledT) -> bool:
        """Whether a member's commits must have a version that carries its epoch."""
        return True

    def check_commit_epoch(self, member: ReconciledT, epoch: int) -> ErrorCode | PartitionCheck:
        """Check the epoch of a commit; an older one may be valid for some partitions."""
        return self.check_epoch(member, epoch)

    def check_epoch(self, member: ReconciledT, epoch: int) -> ErrorCode:
        """Return NONE for the epoch of the member, else an error."""
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        """Allow it at any time: offsets of topics that members read are checked apart."""
        return ErrorCode.NONE

    def may_expire(self) -> bool:
        """Allow it: nothing is left of a group without members and offsets."""
        return True

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Count retention from the commit; topics that members read are checked before."""
        return commit_timestamp

    # -- the next group ------------------------------------------------------

    def held_by(self, member: ReconciledT) -> Iterable[HeldT]:
        """Return everything that a member may be using, assigned or pending revocation."""
        raise NotImplementedError

    def owners_after(self, old: ReconciledT | None, new: ReconciledT | None) -> Map[HeldT, str]:
        """Return the owners once ``new`` replaces ``old``.

        What ``old`` held becomes free unless another member owns it by now.
        """
        if old is not None and new is not None:
            is_same = old.assigned is new.assigned
            if is_same and old.pending_revocation is new.pending_revocation:
                return self.owners
        changed = self.owners.mutate()
        if old is not None:
            for held in self.held_by(old):
                if changed.get(held) == old.member_id:
                    del changed[held]
        if new is not None:
            for held in self.held_by(new):
                changed[held] = new.member_id
        return changed.finish()

    def with_member(self, member: ReconciledT) -> Self:
        """Return the group with a member added or replaced, as the owner of what it holds."""
        owners = self.owners_after(self.members.get(member.member_id), member)
        return replace(self, members=self.members.set(member.member_id, member), owners=owners)

    def without_member(self, member_id: str) -> Self:
        """Return the group without a member; what it held is free."""
        old = self.members.get(member_id)
        if old is None:
            return self
        owners = self.owners_after(old, None)
        return replace(self, members=self.members.delete(member_id), owners=owners)
