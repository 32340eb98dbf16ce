"""A consumer group (KIP-848): its epochs, members, targets, and the owner of each partition.

Immutable: a record creates another group from it (`records.py`), so that committed views do not
change. `epoch_group/group.py` describes the epochs.

Invariant: a partition in ``owners`` has one owner, and every partition that a member holds,
assigned or pending revocation, is there with that member.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.coordinators.groups.classic.group import CONSUMER_PROTOCOL
from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Partitions
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.epoch_group.group import ExclusiveGroup
from ottla.coordinators.groups.epoch_group.record_keys import RecordKeys
from ottla.coordinators.groups.kind import GroupType
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
from ottla.protocol.types import Millis, TopicIdPartition

KEYS: Final = RecordKeys(
    group=ConsumerGroupMetadataKey,
    member=ConsumerGroupMemberMetadataKey,
    target_epoch=ConsumerGroupTargetAssignmentMetadataKey,
    target=ConsumerGroupTargetAssignmentMemberKey,
    assignment=ConsumerGroupCurrentMemberAssignmentKey,
    other=(ConsumerGroupRegularExpressionKey,),
)


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics that an expression matched, in which image and when."""

    topics: frozenset[str]
    version: int
    timestamp: Millis


class ConsumerGroup(
    ExclusiveGroup[ConsumerMember, Partitions, TopicIdPartition], frozen=True, dict=True
):
    """One consumer group. ``static`` has the member id of each instance id.

    ``topic_counts``, ``expressions`` and ``classic_count`` count the members that subscribe to a
    topic by name, use an expression, and use the classic protocol. They are updated with each
    member, so that no request has to visit all members.
    """

    static: Map[str, str] = msgspec.field(default_factory=Map)
    regexes: Map[str, ResolvedRegex] = msgspec.field(default_factory=Map)
    topic_counts: Map[str, int] = msgspec.field(default_factory=Map)
    expressions: Map[str, int] = msgspec.field(default_factory=Map)
    classic_count: int = 0

    # -- as any group --------------------------------------------------------

    @property
    def type(self) -> GroupType:
        """A consumer group."""
        return GroupType.CONSUMER

    def protocol_type(self) -> str:
        """Return its protocol type for ListGroups."""
        return CONSUMER_PROTOCOL

    def must_send_epoch(self, member: ConsumerMember) -> bool:
        """Whether a member's commits must carry its epoch: not those of classic members."""
        return member.classic is None

    def check_epoch(self, member: ConsumerMember, epoch: int) -> ErrorCode:
        """Return NONE for the epoch of the member, else an error of its protocol."""
        if epoch == member.epoch:
            return ErrorCode.NONE
        is_classic = member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, by name or by expression."""
        return topic in self.subscribed

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, that of the group itself last."""
        regexes = [
            ConsumerGroupRegularExpressionKey(self.group_id, each) for each in sorted(self.regexes)
        ]
        return KEYS.group_removal(self.group_id, self.members, regexes)

    # -- what its members want -------------------------------------------------

    @cached_property
    def subscribed(self) -> frozenset[str]:
        """The topics that members read, by name or by expression, existing or not."""
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
        """Return the assignor that most members prefer; of several, the first by name."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=None)

    def target_of(self, member_id: str) -> Partitions:
        """Return the target of a member."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still holds a partition of a member's target."""
        return any(
            self.is_held_by_another(place, member.member_id)
            for place in places(self.target_of(member.member_id))
            if place[1] not in member.assigned.get(place[0], frozenset())
        )

    def is_held_by_another(self, place: TopicIdPartition, member_id: str) -> bool:
        """Whether another member holds a partition, assigned or pending revocation."""
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

    def held_by(self, member: ConsumerMember) -> Iterator[TopicIdPartition]:
        """Yield every partition that a member may be reading."""
        yield from places(member.assigned)
        yield from places(member.pending_revocation)

    def with_member(self, member: ConsumerMember) -> "ConsumerGroup":
        """Return the group with a member added or replaced, as the owner of what it holds."""
        old = self.members.get(member.member_id)
        static = self.static
        if member.instance_id is not None:
            static = static.set(member.instance_id, member.member_id)
        return replace(
            self,
            members=self.members.set(member.member_id, member),
            static=static,
            owners=self.owners_after(old, member),
            **_changed_counts(self, old, member),
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
            owners=self.owners_after(old, None),
            **_changed_counts(self, old, None),
        )


def places(partitions: Partitions) -> Iterator[TopicIdPartition]:
    """Yield the single partitions."""
    for topic_id, numbers in partitions.items():
        for number in numbers:
            yield TopicIdPartition(topic_id, number)


def _changed_counts(
    group: ConsumerGroup, old: ConsumerMember | None, new: ConsumerMember | None
) -> dict[str, Any]:
    """Return the counts of a group that change when ``new`` replaces ``old``."""
    before, after = _subscription_of(old), _subscription_of(new)
    if before == after:
        return {}
    return {
        "topic_counts": _recount(group.topic_counts, before[0], after[0]),
        "expressions": _recount(group.expressions, before[1], after[1]),
        "classic_count": group.classic_count + after[2] - before[2],
    }


def _subscription_of(
    member: ConsumerMember | None,
) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return the topics and expressions a member subscribes to, and whether it is classic."""
    if member is None:
        return (), (), False
    expressions = (member.topic_regex,) if member.topic_regex else ()
    return member.topic_names, expressions, member.classic is not None


def _recount(
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
