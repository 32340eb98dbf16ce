"""How members of a consumer group leave or are fenced."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ottla.coordinators.decision import CancelTimer, Decision
from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import REBALANCE, ConsumerDraft
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.consumer.migration import downgrade, may_downgrade
from ottla.coordinators.groups.consumer.subscription import drop_unused_expressions
from ottla.coordinators.groups.epoch_group.member import LEAVE_STATIC_EPOCH
from ottla.coordinators.groups.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    UnknownMember,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.types import Millis


def leave(
    context: ConsumerContext,
    machine: GroupMachine,
    request: ConsumerGroupHeartbeatRequest,
    now: Millis,
) -> Decision:
    """Remove a member, for good (-1) or until it comes back (-2, static members)."""
    group = machine.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise GroupIdNotFound(f"Group {request.group_id} is not a consumer group.")
    member = member_named(group, request.member_id, request.instance_id)
    reply = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    if request.member_epoch != LEAVE_STATIC_EPOCH:
        return fence(context, machine, group, [member], now, reply)
    draft = ConsumerDraft(group)
    draft.write_assignment(
        replace(member, epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_PARTITIONS)
    )
    # The session timeout keeps running: a member that does not return within it is removed.
    draft.timers.append(CancelTimer((REBALANCE, group.group_id, member.member_id)))
    return Decision(draft.records, reply, timers=draft.timers)


def member_named(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return a member by its id, which must still be the one of its instance id."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise UnknownMember(f"Member {member_id} is not a member of group {group.group_id}.")
        return member
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMember(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}."
        )
    return member


def fence(
    context: ConsumerContext,
    machine: GroupMachine,
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    now: Millis,
    reply: Any = None,  # noqa: ANN401 - as `Decision`
) -> Decision:
    """Remove members. The others get their partitions, in another epoch.

    A group with only classic members left becomes a classic group.
    """
    draft = ConsumerDraft(group)
    is_downgrade = may_downgrade(context, machine, group, members)
    for member in members:
        draft.remove(member.member_id)
        context.awaiting_join.discard((group.group_id, member.member_id))
    if is_downgrade:
        return downgrade(machine, draft, context.image(), now, reply, must_rebalance=True)
    drop_unused_expressions(draft)
    draft.raise_epoch(context.metadata_hash(draft.group))
    return Decision(draft.records, reply, timers=draft.timers)
