"""When a consumer group's targets are made for its newest epoch (KIP-848).

An assignor goes over all members. In a small group that is done in the heartbeat that began the
epoch, as in Kafka. In a large one every join would do so again, and the loop would do nothing
else: there, targets are made at most once in a time that grows with the group, for all epochs
begun since. Until then members stay at the epoch of the present targets; the first heartbeat of
any member after that time makes the new ones.
"""

from typing import Final

from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import ConsumerDraft
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.protocol.types import Millis

SMALL_GROUP_MEMBERS_MAX: Final = 100
"""Up to so many members, targets are made at once: it takes less than a millisecond."""

PAUSE_MS_PER_MEMBER: Final = 0.5
"""An assignor takes some 7 microseconds for a member: it may have about a hundredth of the time."""

UNASSIGNED_MAX: Final = 1000
"""So many members without a target are not kept waiting: theirs are written in one batch."""


def assign_if_due(
    context: ConsumerContext, draft: ConsumerDraft, now: Millis, *, is_urgent: bool
) -> None:
    """Make targets for the group's epoch, unless they are, or have to wait for others.

    ``is_urgent``: a member changed its subscription, and may have to stop reading a topic.
    """
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    if is_urgent or is_assignment_due(group, context.assigned_at(group.group_id), now):
        draft.assign(context.image(), context.settings.assignors[0])
        context.note_assigned(group.group_id, now)


def is_assignment_due(group: ConsumerGroup, assigned_at: Millis | None, now: Millis) -> bool:
    """Whether a group may have new targets; a clock that went back does not make it wait."""
    size = len(group.members)
    if size <= SMALL_GROUP_MEMBERS_MAX or assigned_at is None:
        return True
    waited_ms = now - assigned_at
    is_overdue = not 0 <= waited_ms < size * PAUSE_MS_PER_MEMBER
    return is_overdue or size - len(group.targets) >= UNASSIGNED_MAX
