"""A consumer group while a decision is made: epochs, targets, and reconciliation of members."""

from typing import Final

from ottla.coordinators.groups.consumer.assignors.range_assignor import assign_range
from ottla.coordinators.groups.consumer.assignors.spec import (
    NO_PARTITIONS,
    Assignor,
    GroupSpec,
    MemberSpec,
    Partitions,
)
from ottla.coordinators.groups.consumer.assignors.uniform import assign_uniform
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.consumer.reconcile import Goal, reconcile
from ottla.coordinators.groups.consumer.records import RECORDS, epoch_record
from ottla.coordinators.groups.epoch_group.draft import EpochDraft
from ottla.metadata.image import Image
from ottla.protocol.types import TopicIdPartition, Uuid

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
# Classic members in a consumer group: how long one may take to rejoin, and to send SyncGroup.
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"
TIMERS: Final = (SESSION, REBALANCE, JOIN, SYNC)

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


class ConsumerDraft(EpochDraft[ConsumerGroup, ConsumerMember, Partitions]):
    """A consumer group while a decision is made."""

    format = RECORDS
    member_timers = TIMERS

    def raise_epoch(self, metadata_hash: int) -> None:
        """Begin another epoch of the group."""
        self.add(epoch_record(self.group.group_id, self.group.epoch + 1, metadata_hash))

    def substitute(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Move a static member to another id, with its assignment and target."""
        group_id, target = self.group.group_id, self.group.target_of(old.member_id)
        self.remove(old.member_id)
        self.write_member(new)
        self.add(RECORDS.target_record(group_id, new.member_id, target))
        self.write_assignment(new)

    # -- targets -----------------------------------------------------------------

    def assign(self, image: Image, default_assignor: str) -> None:
        """Compute the targets for the current epoch; only changed ones are written."""
        group = self.group
        name = group.preferred_assignor() or default_assignor
        assignor = ASSIGNORS.get(name) or ASSIGNORS[default_assignor]
        targets = assignor(group_spec(group, image))
        self.write_targets(targets, NO_PARTITIONS)

    def topic_ids_of(self, member: ConsumerMember, image: Image) -> frozenset[Uuid]:
        """Return the existing topics that a member subscribes to."""
        ids = image.topics.ids
        return frozenset(ids[name] for name in self.group.topics_of(member) if name in ids)

    # -- reconciliation ------------------------------------------------------------

    def reconcile(
        self,
        member: ConsumerMember,
        owned: dict[Uuid, frozenset[int]] | None,
        subscribed: frozenset[Uuid] | None = None,
    ) -> ConsumerMember:
        """Move a member towards its target; return its new state.

        ``subscribed`` are its topics, if this heartbeat changed them. A partition that the member
        itself is about to revoke is not held by another member: it may keep it.
        """
        group, member_id = self.group, member.member_id
        if member.is_reconciled_to(group.assignment_epoch):
            return member
        goal = Goal(
            group.assignment_epoch,
            group.target_of(member_id),
            lambda topic_id, index: group.is_held_by_another(
                TopicIdPartition(topic_id, index), member_id
            ),
            owned,
            subscribed,
        )
        moved = reconcile(member, goal)
        if moved == member:
            return member
        self.write_assignment(moved)
        if moved.classic is None:
            self.expect_revocation(REBALANCE, moved)
        return moved


def group_spec(group: ConsumerGroup, image: Image) -> GroupSpec:
    """Return a group as assignors see it: topics that do not exist are left out."""
    ids, by_id = image.topics.ids, image.topics.by_id
    seen: dict[tuple[tuple[str, ...], str], frozenset[Uuid]] = {}
    counts: dict[Uuid, int] = {}
    members: dict[str, MemberSpec] = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        targets = (member.topic_names, member.topic_regex)
        if targets not in seen:
            seen[targets] = frozenset(ids[name] for name in group.topics_of(member) if name in ids)
            counts.update((each, len(by_id[each].partitions)) for each in seen[targets])
        target = group.target_of(member_id)
        members[member_id] = MemberSpec(seen[targets], target, member.instance_id, member.rack_id)
    return GroupSpec(members, counts)
