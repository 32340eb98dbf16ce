"""A consumer group under change: the records of a decision, and the group they make.

Each record is applied to the draft at once, by the code that will replay it, so that what is
decided next sees what was decided before, and the state afterwards is the draft.
"""

from typing import Final

from ottla.coordinators.decision import Answer, CancelTimer, SetTimer, TimerChange
from ottla.coordinators.groups.consumer.assignors.range_assignor import assign_range
from ottla.coordinators.groups.consumer.assignors.spec import Assignor, GroupSpec, MemberSpec
from ottla.coordinators.groups.consumer.assignors.uniform import assign_uniform
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember, MemberState
from ottla.coordinators.groups.consumer.reconcile import Goal, reconcile
from ottla.coordinators.groups.consumer.records import (
    epoch_record,
    member_record,
    placement_record,
    removal,
    replayed,
    target_epoch_record,
    target_record,
)
from ottla.metadata.image import Image
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import Uuid

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
# Classic members in a consumer group: until when one must join again, and ask for what it has.
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"
TIMERS: Final = (SESSION, REBALANCE, JOIN, SYNC)

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


class Draft:
    """``before`` are records that make way for the group, as tombstones of another kind."""

    def __init__(self, group: ConsumerGroup, before: list[CoordinatorRecord] | None = None) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = list(before or ())
        self.timers: list[TimerChange] = []
        self.answers: list[Answer] = []

    def add(self, record: CoordinatorRecord) -> None:
        """Write a record."""
        self.records.append(record)
        value = None if record.value is None else record.value.message
        group = replayed(self.group, record.key, value)
        assert group is not None, "a draft does not delete its group"
        self.group = group

    def describe(self, member: ConsumerMember) -> None:
        """Write what a member says of itself."""
        self.add(member_record(self.group.group_id, member))

    def place(self, member: ConsumerMember) -> None:
        """Write where a member stands."""
        self.add(placement_record(self.group.group_id, member))

    def raise_epoch(self, metadata_hash: int) -> None:
        """Begin another epoch of the group."""
        self.add(epoch_record(self.group.group_id, self.group.epoch + 1, metadata_hash))

    def remove(self, member_id: str) -> None:
        """Let go of a member and of whatever it is waited for."""
        for record in removal(self.group.group_id, member_id):
            self.add(record)
        for kind in TIMERS:
            self.timers.append(CancelTimer((kind, self.group.group_id, member_id)))

    def substitute(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Let a static member go on under another id, with what it has and shall have."""
        group_id, target = self.group.group_id, self.group.target_of(old.member_id)
        self.remove(old.member_id)
        self.describe(new)
        self.add(target_record(group_id, new.member_id, target))
        self.place(new)

    # -- targets -----------------------------------------------------------------

    def assign(self, image: Image, default_assignor: str) -> None:
        """Make the targets for the present epoch; only those that change are written."""
        group = self.group
        name = group.preferred_assignor() or default_assignor
        assignor = ASSIGNORS.get(name) or ASSIGNORS[default_assignor]
        targets = assignor(group_spec(group, image))
        for member_id in sorted(group.members):
            target = targets.get(member_id, {})
            if group.targets.get(member_id) != target:
                self.add(target_record(group.group_id, member_id, target))
        self.add(target_epoch_record(group.group_id, group.epoch))

    def topic_ids_of(self, member: ConsumerMember, image: Image) -> frozenset[Uuid]:
        """Return the topics that a member subscribes to, of those that exist."""
        ids = image.topics.ids
        return frozenset(ids[name] for name in self.group.topics_of(member) if name in ids)

    # -- reconciliation ------------------------------------------------------------

    def reconcile(
        self,
        member: ConsumerMember,
        owned: dict[Uuid, frozenset[int]] | None,
        subscribed: frozenset[Uuid] | None = None,
    ) -> ConsumerMember:
        """Move a member towards its target; return it as it is now.

        ``subscribed`` are its topics, where this heartbeat changed them. A partition that the
        member itself is about to give up is not held by another: it may keep it.
        """
        group, member_id = self.group, member.member_id
        if member.is_reconciled_to(group.assignment_epoch):
            return member
        goal = Goal(
            group.assignment_epoch,
            group.target_of(member_id),
            lambda topic_id, index: group.is_held_by_another((topic_id, index), member_id),
            owned,
            subscribed,
        )
        moved = reconcile(member, goal)
        if moved == member:
            return member
        self.place(moved)
        if moved.classic is None:
            self._expect_revocation(moved)
        return moved

    def _expect_revocation(self, member: ConsumerMember) -> None:
        """Wait no longer for a member to give up than it asked to be waited for."""
        key = (REBALANCE, self.group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.timers.append(SetTimer(key, member.rebalance_timeout_ms))
        else:
            self.timers.append(CancelTimer(key))


def group_spec(group: ConsumerGroup, image: Image) -> GroupSpec:
    """Return a group as assignors see it: topics that are not there are left out."""
    ids, by_id = image.topics.ids, image.topics.by_id
    seen: dict[tuple[tuple[str, ...], str], frozenset[Uuid]] = {}
    counts: dict[Uuid, int] = {}
    members: dict[str, MemberSpec] = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        wish = (member.topic_names, member.topic_regex)
        if wish not in seen:
            seen[wish] = frozenset(ids[name] for name in group.topics_of(member) if name in ids)
            counts.update((each, len(by_id[each].partitions)) for each in seen[wish])
        target = group.target_of(member_id)
        members[member_id] = MemberSpec(seen[wish], target, member.instance_id, member.rack_id)
    return GroupSpec(members, counts)
