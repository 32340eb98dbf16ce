"""A share group while a decision is made: epochs, targets, and reconciliation of members."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from ottla.coordinators.decision import TimerChange
from ottla.coordinators.groups.epoch_group.draft import EpochDraft
from ottla.coordinators.groups.share.assignor import assign_shared
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.group import (
    NO_PARTITIONS,
    Partitions,
    ShareGroup,
    ShareMember,
    by_topic,
)
from ottla.coordinators.groups.share.records import RECORDS, epoch_record, initialized_record
from ottla.metadata.image import Image
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import TopicIdPartition

SESSION: Final = "share-session"


class ShareDraft(EpochDraft[ShareGroup, ShareMember, Partitions]):
    """A share group while a decision is made."""

    format = RECORDS
    member_timers = (SESSION,)

    def __init__(self, context: ShareContext, group: ShareGroup) -> None:
        super().__init__(group)
        self.context = context

    def update_member(self, member: ShareMember) -> None:
        """Write the metadata of a member if it changed; other topics begin another epoch."""
        present = self.group.members.get(member.member_id)
        if present == member:
            return
        self.write_member(member)
        if present is None or present.topic_names != member.topic_names:
            self.raise_epoch()

    def raise_epoch_if_topics_changed(self) -> None:
        """Begin another epoch if the topics that the group reads have changed."""
        if self._metadata_hash() != self.group.metadata_hash:
            self.raise_epoch()

    def _metadata_hash(self) -> int:
        return self.context.hashes.of_group(self.context.image(), self.group.subscribed())

    def raise_epoch(self) -> None:
        """Begin another epoch, with targets computed for it."""
        group = self.group
        self.add(epoch_record(group.group_id, group.epoch + 1, self._metadata_hash()))
        self.write_targets(_targets(self.group, self.context.image()), NO_PARTITIONS)

    def set_initialized(self, partitions: Partitions) -> None:
        """Write which partitions have state, with the names that topics have or had."""
        topics = self.context.image().topics.by_id
        names = dict(self.group.topic_names)
        names.update({t: topics[t].name for t, _ in partitions if t in topics})
        self.add(initialized_record(self.group.group_id, partitions, names))

    def reconcile(self, member_id: str) -> bool:
        """Assign a member its target; return whether that changed what it reads."""
        member = self.group.members[member_id]
        target = self.group.targets.get(member_id, NO_PARTITIONS)
        if member.epoch == self.group.assignment_epoch and member.assigned == target:
            return False
        epoch = self.group.assignment_epoch
        self.write_assignment(
            replace(member, epoch=epoch, previous_epoch=member.epoch, assigned=target)
        )
        return member.assigned != target


def remove_member(
    context: ShareContext, group: ShareGroup, member_id: str
) -> tuple[list[CoordinatorRecord], list[TimerChange]]:
    """Return the tombstones of a member and a new epoch for the others, and its timers."""
    draft = ShareDraft(context, group)
    draft.remove(member_id)
    draft.raise_epoch()
    return draft.records, draft.timers


def partitions_of(image: Image, names: Iterable[str]) -> Partitions:
    """Return all partitions of topics that exist."""
    topics = (image.topics.named(name) for name in names)
    return frozenset(
        TopicIdPartition(topic.id, index)
        for topic in topics
        if topic is not None
        for index in topic.partitions
    )


def _targets(group: ShareGroup, image: Image) -> dict[str, Partitions]:
    ids = image.topics.ids
    subscriptions = {
        member.member_id: frozenset(ids[name] for name in member.topic_names if name in ids)
        for member in group.members.values()
    }
    known = partitions_of(image, group.subscribed()) & group.initialized
    return assign_shared(subscriptions, dict(by_topic(known)))
