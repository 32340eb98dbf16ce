"""ConsumerGroupHeartbeat (KIP-848): join, stay, and reconcile with the target.

One heartbeat may begin an epoch, compute its targets and reconcile its member, in this order, in
one batch of records. A heartbeat without news from a member that has its target writes nothing.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ottla.coordinators.decision import Decision, SetTimer
from ottla.coordinators.groups.consumer.assignment_interval import assign_if_due
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import SESSION, ConsumerDraft
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.leaving import leave
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.consumer.migration import open_group
from ottla.coordinators.groups.consumer.regex import Matches
from ottla.coordinators.groups.consumer.subscription import (
    drop_unused_expressions,
    is_resolved_later,
    raise_epoch_if_changed,
    resolve_expressions,
)
from ottla.coordinators.groups.epoch_group.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.coordinators.groups.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidHeartbeat,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from ottla.protocol.types import Millis, Uuid

# From this version on clients generate their member ids.
_CLIENT_MAKES_ID_SINCE = 1


class Heartbeat(msgspec.Struct, frozen=True):
    """A heartbeat and its sender. ``fresh_id`` is for a member without an id.

    ``matches`` is what expressions were found to match after `MatchingTakesLong`.
    """

    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    fresh_id: str
    may_see: Callable[[str], bool]
    matches: Matches = msgspec.field(default_factory=Matches)


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]
) -> None:
    """Raise `InvalidHeartbeat` or `UnsupportedAssignor` for errors that need no group."""
    epoch = request.member_epoch
    is_id_needed = version >= _CLIENT_MAKES_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH
    if is_id_needed and not request.member_id.strip():
        raise InvalidHeartbeat("MemberId can't be empty.")
    for text, name in (
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            raise InvalidHeartbeat(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidHeartbeat("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise InvalidHeartbeat("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}."
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidHeartbeat("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidHeartbeat("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidHeartbeat(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def decide_consumer_heartbeat(
    context: ConsumerContext, machine: GroupMachine, heartbeat: Heartbeat, now: Millis
) -> Decision:
    """Decide about a heartbeat that `check_heartbeat` accepted."""
    request = heartbeat.request
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return leave(context, machine, request, now)
    draft = open_group(context, machine, request, now)
    member_id = request.member_id or heartbeat.fresh_id
    check_room(context, draft.group, member_id)
    owned = _owned(request)
    member = _member(draft, member_id, request, owned)
    moved = _advance(context, draft, member, heartbeat, now)
    timeout_ms = context.session_timeout_ms(request.group_id)
    draft.timers.append(SetTimer((SESSION, request.group_id, member_id), timeout_ms))
    reply = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms(request.group_id),
    )
    if _is_full(request) or moved.assigned != member.assigned:
        reply.assignment = _assignment(moved)
    return Decision(draft.records, reply, answers=draft.answers, timers=draft.timers)


def check_room(context: ConsumerContext, group: ConsumerGroup, member_id: str) -> None:
    """Raise `GroupMaxSizeReached` for a new member of a full group."""
    if len(group.members) >= context.settings.max_size and member_id not in group.members:
        raise GroupMaxSizeReached(
            "The consumer group has reached its maximum capacity of "
            f"{context.settings.max_size} members."
        )


def _advance(
    context: ConsumerContext,
    draft: ConsumerDraft,
    member: ConsumerMember,
    heartbeat: Heartbeat,
    now: Millis,
) -> ConsumerMember:
    """Apply what the member sent, then advance the group, its targets and the member."""
    updated = _updated(member, heartbeat)
    is_new = member.member_id not in draft.group.members
    if updated is not member or is_new:
        draft.write_member(updated)
    is_changed = updated.topic_names != member.topic_names
    has_other_regex = updated.topic_regex != member.topic_regex
    is_put_off = has_other_regex and is_resolved_later(draft, updated)
    if has_other_regex:
        drop_unused_expressions(draft)
    if draft.group.expressions and not is_put_off:
        may_see, matches = heartbeat.may_see, heartbeat.matches
        is_changed = resolve_expressions(context, draft, may_see, now, matches) or is_changed
    is_changed = is_changed or (has_other_regex and not is_put_off)
    raise_epoch_if_changed(context, draft, is_changed=is_changed)
    assign_if_due(context, draft, now, is_urgent=is_changed and not is_new)
    is_other = is_changed or has_other_regex
    subscribed = draft.topic_ids_of(updated, context.image()) if is_other else None
    return draft.reconcile(updated, _owned(heartbeat.request), subscribed)


def _updated(member: ConsumerMember, heartbeat: Heartbeat) -> ConsumerMember:
    """Return the member with the fields it sent; the others stay unchanged."""
    request = heartbeat.request
    new: dict[str, Any] = {
        "client_id": heartbeat.client_id,
        "client_host": heartbeat.client_host,
        "classic": None,
    }
    if request.instance_id is not None:
        new["instance_id"] = request.instance_id
    if request.rack_id is not None:
        new["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        new["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        new["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        new["topic_names"] = tuple(sorted(set(request.subscribed_topic_names)))
    if request.subscribed_topic_regex is not None:
        new["topic_regex"] = request.subscribed_topic_regex
    changed = {name: value for name, value in new.items() if getattr(member, name) != value}
    return replace(member, **changed) if changed else member


# -- who sends it ------------------------------------------------------------------------


def _member(
    draft: ConsumerDraft,
    member_id: str,
    request: ConsumerGroupHeartbeatRequest,
    owned: dict[Uuid, frozenset[int]] | None,
) -> ConsumerMember:
    """Return the member of a heartbeat, or a new one that joins. Raises if it is unknown."""
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        member = _static(draft, member_id, request.instance_id, is_joining=is_joining)
    else:
        member = draft.group.members.get(member_id)
    if member is None:
        if not is_joining:
            raise UnknownMember(f"Member {member_id} is not a member of {request.group_id}.")
        return ConsumerMember(member_id)
    if not is_joining:
        _check_epoch(member, request.member_epoch, owned)
    return member


def _static(
    draft: ConsumerDraft, member_id: str, instance_id: str, *, is_joining: bool
) -> ConsumerMember | None:
    """Return the member of an instance id, which a new process may replace."""
    present = draft.group.static_member(instance_id)
    if present is None:
        if not is_joining:
            raise UnknownMember(f"Instance id {instance_id} is unknown.")
        return draft.group.members.get(member_id)
    if present.member_id == member_id:
        return present
    if not is_joining:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{present.member_id}."
        )
    if present.classic is None and present.epoch != LEAVE_STATIC_EPOCH:
        raise UnreleasedInstanceId(
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {present.member_id} member."
        )
    return succeed(draft, present, member_id)


def succeed(draft: ConsumerDraft, present: ConsumerMember, member_id: str) -> ConsumerMember:
    """Let a new process replace a static member, with its assignment."""
    successor = replace(present, member_id=member_id, epoch=0, previous_epoch=0)
    draft.substitute(present, successor)
    return successor


def _check_epoch(
    member: ConsumerMember, epoch: int, owned: dict[Uuid, frozenset[int]] | None
) -> None:
    """Raise `FencedMemberEpoch` unless the member has its current epoch, or the previous one.

    The previous epoch is accepted if the member owns nothing outside its assignment: the reply with
    the new epoch may have been lost.
    """
    if epoch == member.epoch:
        return
    is_behind = epoch < member.epoch
    if is_behind and epoch == member.previous_epoch and _is_subset(owned, member):
        return
    raise FencedMemberEpoch(
        f"The consumer group member has a {'smaller' if is_behind else 'greater'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin."
    )


def _is_subset(owned: dict[Uuid, frozenset[int]] | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(each in member.assigned and owned[each] <= member.assigned[each] for each in owned)


def _owned(request: ConsumerGroupHeartbeatRequest) -> dict[Uuid, frozenset[int]] | None:
    if request.topic_partitions is None:
        return None
    found: dict[Uuid, frozenset[int]] = {}
    for each in request.topic_partitions:
        found[each.topic_id] = found.get(each.topic_id, frozenset()) | frozenset(each.partitions)
    return found


# -- the reply -----------------------------------------------------------------------------


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields set, as after an error: then the reply has, too."""
    has_subscription = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and has_subscription
        and request.topic_partitions is not None
    )


def _assignment(member: ConsumerMember) -> Assignment:
    return Assignment(
        [
            ResponseTopicPartitions(topic_id, sorted(member.assigned[topic_id]))
            for topic_id in sorted(member.assigned)
        ]
    )
