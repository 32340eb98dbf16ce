"""How members of a streams group leave or are fenced, and how a forming group starts."""

from typing import Any

from ottla.coordinators.decision import NOTHING, Decision
from ottla.coordinators.groups.errors import GroupIdNotFound, UnknownMember
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.draft import StreamsDraft
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.reply import StreamsHeartbeatResult
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def leave(
    context: StreamsContext, machine: GroupMachine, request: StreamsGroupHeartbeatRequest
) -> Decision:
    """Remove a member; it may request the shutdown of the whole application."""
    group = machine.groups.get(request.group_id)
    if not isinstance(group, StreamsGroup):
        why = "not found" if group is None else "is not a streams group"
        raise GroupIdNotFound(f"Group {request.group_id} {why}.")
    member = group.members.get(request.member_id)
    if member is None:
        raise UnknownMember(
            f"Member {request.member_id} is not a member of group {request.group_id}."
        )
    if request.shutdown_application:
        context.shutdowns.setdefault(request.group_id, request.member_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    return fence(context, group, member, StreamsHeartbeatResult(response))


def fence(
    context: StreamsContext,
    group: StreamsGroup,
    member: StreamsMember,
    reply: Any = None,  # noqa: ANN401 - as `Decision`
) -> Decision:
    """Remove a member. The others get its tasks, in another epoch."""
    draft = StreamsDraft(group)
    draft.remove(member.member_id)
    draft.raise_epoch(None, group.configs)
    if member.endpoint is not None:
        context.note_endpoint(group.group_id)
    return Decision(draft.records, reply, timers=draft.timers)


# -- timers ------------------------------------------------------------------------------


def on_formed(context: StreamsContext, machine: GroupMachine, group_id: str) -> Decision:
    """Compute the first targets. If the log rejects them, the next heartbeat computes them."""
    context.forming.discard(group_id)
    group = machine.groups.get(group_id)
    if not isinstance(group, StreamsGroup) or group.is_empty() or group.topology is None:
        return NOTHING
    if group.epoch <= group.assignment_epoch:
        return NOTHING
    draft = StreamsDraft(group)
    draft.assign(context.look(group_id, group.topology).configured)
    return Decision(draft.records, refused=lambda fault: Decision())
