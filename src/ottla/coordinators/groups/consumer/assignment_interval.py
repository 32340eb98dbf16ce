"""When the targets of a consumer group are computed for its newest epoch (KIP-848).

An assignor visits all members. In a small group it runs in the heartbeat that began the epoch, as
in Kafka. In a large group every join would run it again and block the event loop: there, targets
are computed at most once per interval, which grows with the group, for all epochs begun since.
Until then members stay at the epoch of the current targets; the first heartbeat of any member after
the interval computes the new ones.
"""

from typing import Final

from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import ConsumerDraft
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.protocol.types import Millis

SMALL_GROUP_MEMBERS_MAX: Final = 100
"""Up to this many members, targets are computed at once: it takes less than a millisecond."""

PAUSE_MS_PER_MEMBER: Final = 0.5
"""An assignor takes some 7 microseconds per member: it may use about a hundredth of the time."""

UNASSIGNED_MAX: Final = 1000
"""When this many members have no target, targets are computed at once and written in one batch."""


def assign_if_due(
    context: ConsumerContext, draft: ConsumerDraft, now: Millis, *, is_urgent: bool
) -> None:
    """Compute targets for the epoch of the group, unless they exist or the interval has not passed.

    ``is_urgent``: a member changed its subscription, and may have to stop reading a topic.
    """
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    if is_urgent or is_assignment_due(group, context.assigned_at(group.group_id), now):
        draft.assign(context.image(), context.settings.assignors[0])
        context.note_assigned(group.group_id, now)


def is_assignment_due(group: ConsumerGroup, assigned_at: Millis | None, now: Millis) -> bool:
    """Whether a group may get new targets; a clock that went back does not delay it."""
    size = len(group.members)
    if size <= SMALL_GROUP_MEMBERS_MAX or assigned_at is None:
        return True
    waited_ms = now - assigned_at
    is_overdue = not 0 <= waited_ms < size * PAUSE_MS_PER_MEMBER
    return is_overdue or size - len(group.targets) >= UNASSIGNED_MAX
