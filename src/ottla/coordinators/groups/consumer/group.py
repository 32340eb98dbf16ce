"""A consumer group (KIP-848): its epochs, members, targets, and who holds which partition.

Immutable: a record makes another group of it (`records.py`), so that a view of what is
committed stays as it is. Three epochs say how far things are:

    epoch             rises when members, subscriptions or the topics themselves change
    assignment_epoch  the epoch that the targets were made for; never above ``epoch``
    member.epoch      the assignment epoch a member has come to

Invariant: a partition in ``owners`` has one holder, and every partition that a member holds,
assigned or yet to give up, names it there.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.classic.group import CONSUMER_PROTOCOL
from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Partitions
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.kind import Committer, GroupType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Uuid

# A consumer that commits must say its epoch in a form that only these versions have.
_COMMIT_VERSION_MIN = 9


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics that an expression matched, by which image and when."""

    topics: frozenset[str]
    version: int
    timestamp: Millis


class ConsumerGroup(msgspec.Struct, frozen=True, dict=True):
    """One consumer group. ``targets`` has members that shall have nothing as well.

    ``topic_counts``, ``expressions`` and ``classic_count`` say how many members subscribe to a
    topic by name, by an expression, and speak the classic protocol. They change with each member,
    so that no request has to go over all members for them.
    """

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: Map[str, ConsumerMember] = msgspec.field(default_factory=Map)
    static: Map[str, str] = msgspec.field(default_factory=Map)
    targets: Map[str, Partitions] = msgspec.field(default_factory=Map)
    owners: Map[tuple[Uuid, int], str] = msgspec.field(default_factory=Map)
    regexes: Map[str, ResolvedRegex] = msgspec.field(default_factory=Map)
    topic_counts: Map[str, int] = msgspec.field(default_factory=Map)
    expressions: Map[str, int] = msgspec.field(default_factory=Map)
    classic_count: int = 0

    # -- as any group --------------------------------------------------------

    @property
    def type(self) -> GroupType:
        """A consumer group."""
        return GroupType.CONSUMER

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

    def protocol_type(self) -> str:
        """Return what ListGroups says of it."""
        return CONSUMER_PROTOCOL

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def check_offset_commit(self, committer: Committer) -> ErrorCode:
        """Say whether offsets may be committed: by members at their epoch, or if there are none."""
        if committer.epoch < 0 and not self.members:
            return ErrorCode.NONE
        is_anonymous = not committer.member_id and committer.instance_id is None
        if committer.is_transactional and committer.epoch == -1 and is_anonymous:
            return ErrorCode.NONE
        member = self.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_old = committer.version < _COMMIT_VERSION_MIN
        if not committer.is_transactional and member.classic is None and is_old:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, committer.epoch)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Say whether offsets may be read; whoever does not name itself may."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _check_epoch(member, member_epoch)

    def check_offset_delete(self) -> ErrorCode:
        """Offsets of topics that nobody reads may be deleted at any time."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only an empty group may be deleted."""
        return ErrorCode.NONE if not self.members else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, by name or by expression."""
        return topic in self.subscribed

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Count from the commit; topics that are read are asked for beforehand."""
        return commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, those of the group itself last."""
        group_id, members = self.group_id, sorted(self.members)
        keys: list[Message] = [
            ConsumerGroupCurrentMemberAssignmentKey(group_id, each) for each in members
        ]
        keys += [ConsumerGroupTargetAssignmentMemberKey(group_id, each) for each in members]
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id))
        keys += [ConsumerGroupMemberMetadataKey(group_id, each) for each in members]
        keys += [ConsumerGroupRegularExpressionKey(group_id, each) for each in sorted(self.regexes)]
        keys.append(ConsumerGroupMetadataKey(group_id))
        return [CoordinatorRecord(key, None) for key in keys]

    # -- what its members want -------------------------------------------------

    @cached_property
    def subscribed(self) -> frozenset[str]:
        """The topics that members read, by name or by expression, whether or not they are there."""
        found = set(self.topic_counts)
        for expression in self.expressions:
            resolved = self.regexes.get(expression)
            if resolved is not None:
                found |= resolved.topics
        return frozenset(found)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that one member reads."""
        names = frozenset(member.topic_names)
        resolved = self.regexes.get(member.topic_regex)
        return names if resolved is None else names | resolved.topics

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members ask for; of several, the first by name."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=None)

    def target_of(self, member_id: str) -> Partitions:
        """Return what a member shall have."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether somebody still holds a partition that a member shall have."""
        return any(
            self.is_held_by_another(place, member.member_id)
            for place in places(self.target_of(member.member_id))
            if place[1] not in member.assigned.get(place[0], frozenset())
        )

    def is_held_by_another(self, place: tuple[Uuid, int], member_id: str) -> bool:
        """Whether a member other than this one holds a partition, or has yet to give it up."""
        return self.owners.get(place, member_id) != member_id

    # -- members that speak the classic protocol ---------------------------------

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member that has an instance id."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def supports_classic(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a classic member with these protocols can join: one must suit all others."""
        if protocol_type != CONSUMER_PROTOCOL:
            return False
        if not self.members:
            return bool(names)
        common = [
            frozenset(name for name, _ in each.classic.protocols)
            for each in self.members.values()
            if each.classic is not None
        ]
        return any(all(name in offered for offered in common) for name in names)

    # -- the next group --------------------------------------------------------

    def with_member(self, member: ConsumerMember) -> "ConsumerGroup":
        """Return the group with a member as it is now, and what it holds held by it."""
        old = self.members.get(member.member_id)
        static = self.static
        if member.instance_id is not None:
            static = static.set(member.instance_id, member.member_id)
        return replace(
            self,
            members=self.members.set(member.member_id, member),
            static=static,
            owners=_handed_over(self.owners, old, member),
            **_counted(self, old, member),
        )

    def without_member(self, member_id: str) -> "ConsumerGroup":
        """Return the group without a member; what it held is free."""
        old = self.members.get(member_id)
        if old is None:
            return self
        static = self.static
        if old.instance_id is not None and static.get(old.instance_id) == member_id:
            static = static.delete(old.instance_id)
        return replace(
            self,
            members=self.members.delete(member_id),
            static=static,
            owners=_handed_over(self.owners, old, None),
            **_counted(self, old, None),
        )


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def places(partitions: Partitions) -> Iterator[tuple[Uuid, int]]:
    """Yield single partitions."""
    for topic_id, numbers in partitions.items():
        for number in numbers:
            yield topic_id, number


def _counted(
    group: ConsumerGroup, old: ConsumerMember | None, new: ConsumerMember | None
) -> dict[str, Any]:
    """Return the counts of a group that change when one member takes the place of another."""
    before, after = _wishes(old), _wishes(new)
    if before == after:
        return {}
    return {
        "topic_counts": _recounted(group.topic_counts, before[0], after[0]),
        "expressions": _recounted(group.expressions, before[1], after[1]),
        "classic_count": group.classic_count + after[2] - before[2],
    }


def _wishes(member: ConsumerMember | None) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return the topics and expressions a member subscribes to, and whether it is classic."""
    if member is None:
        return (), (), False
    expressions = (member.topic_regex,) if member.topic_regex else ()
    return member.topic_names, expressions, member.classic is not None


def _recounted(
    counts: Map[str, int], before: tuple[str, ...], after: tuple[str, ...]
) -> Map[str, int]:
    if before == after:
        return counts
    changed = counts.mutate()
    for names, step in ((before, -1), (after, 1)):
        for name in dict.fromkeys(names):
            count = changed.get(name, 0) + step
            if count:
                changed[name] = count
            else:
                del changed[name]
    return changed.finish()


def _handed_over(
    owners: Map[tuple[Uuid, int], str], old: ConsumerMember | None, new: ConsumerMember | None
) -> Map[tuple[Uuid, int], str]:
    """Let go of what a member held, unless another has it by now, and take what it holds."""
    if old is not None and new is not None:
        is_same = old.assigned is new.assigned
        if is_same and old.pending_revocation is new.pending_revocation:
            return owners
    changed = owners.mutate()
    if old is not None:
        for place in held_by(old):
            if changed.get(place) == old.member_id:
                del changed[place]
    if new is not None:
        for place in held_by(new):
            changed[place] = new.member_id
    return changed.finish()


def held_by(member: ConsumerMember) -> Iterator[tuple[Uuid, int]]:
    """Yield all that a member may be reading."""
    yield from places(member.assigned)
    yield from places(member.pending_revocation)
