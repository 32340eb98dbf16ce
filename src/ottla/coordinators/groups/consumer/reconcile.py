"""Move a member from its assignment to its target (KIP-848), one heartbeat at a time.

First it revokes what is not in the target, at its old epoch, while the group waits; then it moves
to the new epoch and gets the partitions that no other member holds; the rest follows as others
revoke.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Partitions
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.errors import FencedMemberEpoch
from ottla.protocol.types import Uuid


class Goal(msgspec.Struct, frozen=True):
    """The goal of a member. ``is_held`` says whether another member holds a partition.

    ``owned`` are the partitions that the member says it reads; None if it did not say.
    ``subscribed`` are the topics that it subscribes to, if this heartbeat has changed them; else
    None.
    """

    epoch: int
    target: Partitions
    is_held: Callable[[Uuid, int], bool]
    owned: Mapping[Uuid, frozenset[int]] | None
    subscribed: frozenset[Uuid] | None = None


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Return the member one step further, or unchanged where it has to wait.

    Raises `FencedMemberEpoch` for a member in an unknown state, until it owns nothing.
    """
    match member.state:
        case MemberState.STABLE:
            return member if member.epoch == goal.epoch else _next(member, member.epoch, goal)
        case MemberState.UNREVOKED:
            if _reads_any(goal, member.pending_revocation):
                return _unsubscribed(member, goal)
            return _next(member, member.epoch, goal)
        case MemberState.UNRELEASED:
            return _next(member, member.epoch, goal)
        case _:
            if goal.owned is None or goal.owned:
                raise FencedMemberEpoch("The member's state is not known: it must join again.")
            return _next(member, goal.epoch, goal)


def _reads_any(goal: Goal, partitions: Partitions) -> bool:
    """Whether the member may still read any of these; True if it does not say what it reads."""
    if goal.owned is None:
        return True
    return any(partitions.get(each, _NONE) & numbers for each, numbers in goal.owned.items())


def _unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Revoke topics that the member has unsubscribed from while it still has others to revoke.

    The member does not wait for its next epoch to learn that it must stop reading them.
    """
    if goal.subscribed is None:
        return member
    kept: dict[Uuid, frozenset[int]] = {}
    revoked = dict(member.pending_revocation)
    for topic_id, numbers in member.assigned.items():
        if topic_id in goal.subscribed:
            kept[topic_id] = numbers
        else:
            revoked[topic_id] = revoked.get(topic_id, _NONE) | numbers
    if len(kept) == len(member.assigned):
        return member
    return replace(member, assigned=kept, pending_revocation=revoked)


def _next(member: ConsumerMember, epoch: int, goal: Goal) -> ConsumerMember:
    kept: dict[Uuid, frozenset[int]] = {}
    given: dict[Uuid, frozenset[int]] = {}
    revoked: dict[Uuid, frozenset[int]] = {}
    must_wait = False
    for topic_id in sorted({*goal.target, *member.assigned}):
        target = goal.target.get(topic_id, _NONE)
        assigned = member.assigned.get(topic_id, _NONE)
        wanted = target - assigned
        free = frozenset(each for each in wanted if not goal.is_held(topic_id, each))
        must_wait = must_wait or free != wanted
        _put(kept, topic_id, assigned & target)
        _put(given, topic_id, (assigned & target) | free)
        _put(revoked, topic_id, assigned - target)
    if revoked and _reads_any(goal, revoked):
        state = MemberState.UNREVOKED
        return _moved(member, epoch, state, kept, revoked)
    state = MemberState.UNRELEASED if must_wait else MemberState.STABLE
    return _moved(member, goal.epoch, state, given, NO_PARTITIONS)


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoked: Partitions,
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=revoked,
    )


def _put(partitions: dict[Uuid, frozenset[int]], topic_id: Uuid, numbers: frozenset[int]) -> None:
    if numbers:
        partitions[topic_id] = numbers


_NONE: frozenset[int] = frozenset()
