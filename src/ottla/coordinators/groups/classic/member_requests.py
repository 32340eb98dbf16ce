"""SyncGroup, Heartbeat and LeaveGroup of a classic group, and session timeouts."""

from ottla.coordinators.decision import ReplyFuture
from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinators.groups.classic.rebalance import (
    UNKNOWN_MEMBER,
    Effects,
    after_removal,
    complete_if_all_joined,
    complete_join,
    drop_member,
    note_sync,
    rebalance_or_complete,
    settle,
    sync_refused,
    sync_reply,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.leave_group import (
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest

# -- sync --------------------------------------------------------------------------


def sync(
    group: ClassicGroup, request: SyncGroupRequest, future: ReplyFuture, effects: Effects
) -> None:
    """Send a member its assignment, once the leader has sent it."""
    code = _check_sync(group, request)
    if code is not ErrorCode.NONE:
        effects.answer(future, sync_refused(code))
        return
    member = group.members[request.member_id]
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            effects.answer(future, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        case ClassicState.COMPLETING_REBALANCE:
            again = sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
            effects.answer(member.awaiting_sync, again)
            member.awaiting_sync = future
            note_sync(group, member.member_id, effects)
            if group.leader_id == member.member_id:
                given = ((each.member_id, each.assignment) for each in request.assignments)
                settle(group, given, effects)
        case _:
            note_sync(group, member.member_id, effects)
            effects.answer(future, sync_reply(group, member))


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.is_empty():
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type_or_none):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differs(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _differs(named: str | None, actual: str | None) -> bool:
    return named is not None and actual is not None and named != actual


# -- heartbeat ---------------------------------------------------------------------


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, effects: Effects) -> ErrorCode:
    """Restart the session timeout of a member; ask it to rejoin if a rebalance is running."""
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    effects.expect_heartbeat(group, group.members[request.member_id])
    if group.state is ClassicState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def note_commit(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """Count an offset commit as a heartbeat."""
    member = group.members.get(member_id)
    is_counted = group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE)
    if member is not None and is_counted:
        effects.expect_heartbeat(group, member)


def on_session_timeout(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """Remove a member that sent no heartbeat within its session timeout."""
    if member_id in group.pending_join:
        group.remove(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined():
            complete_join(group, effects)
        return
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat():
        return
    drop_member(group, member_id, effects)
    after_removal(group, f"member {member_id} was silent too long", effects)


# -- leave -------------------------------------------------------------------------


def leave(
    group: ClassicGroup, members: list[MemberIdentity], effects: Effects
) -> LeaveGroupResponse:
    """Remove members, several at once if an admin asks for it (KIP-345)."""
    replies: list[MemberResponse] = []
    gone: list[str] = []
    for each in members:
        code = _leave_one(group, each, effects)
        if code is ErrorCode.NONE:
            gone.append(each.member_id or each.group_instance_id or "")
        replies.append(MemberResponse(each.member_id, each.group_instance_id, code))
    if gone:
        reason = f"explicit LeaveGroup of {', '.join(gone)}"
        match group.state:
            case ClassicState.STABLE | ClassicState.COMPLETING_REBALANCE:
                rebalance_or_complete(group, reason, effects)
            case ClassicState.PREPARING_REBALANCE:
                complete_if_all_joined(group, effects)
    return LeaveGroupResponse(members=replies)


def _leave_one(group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id == UNKNOWN_MEMBER:
        current = None if instance_id is None else group.static.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current
    elif member_id not in group.pending_join:
        code = group.check_member(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
    drop_member(group, member_id, effects)
    return ErrorCode.NONE
