"""JoinGroup of a classic group: which members may join, and the rebalance that follows.

A new dynamic member is rejected once with its new id and must join again with it (KIP-394), so that
a client that times out and retries does not leave an unused member each time. A static member is
identified by its instance id: joining again with it fences the old member (KIP-345).
"""

from typing import Final

import msgspec

from ottla.coordinators.decision import Decision, ReplyFuture
from ottla.coordinators.groups.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Protocols,
    protocols_of,
)
from ottla.coordinators.groups.classic.rebalance import (
    SESSION,
    UNKNOWN_MEMBER,
    Effects,
    complete_if_all_joined,
    described_members,
    join_refused,
    join_reply,
    prepare_rebalance,
    rebalance_or_complete,
    sync_refused,
)
from ottla.coordinators.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.types import Uuid

_MEMBER_ID_REQUIRED_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9


class Joining(msgspec.Struct, frozen=True):
    """A JoinGroup request and its sender.

    ``fresh_id`` is for a member without an id; ``uuid_id`` is the id it gets in a consumer group,
    whose members have plain UUIDs.
    """

    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str
    fresh_id: str
    uuid_id: str
    future: ReplyFuture

    @property
    def protocols(self) -> Protocols:
        """The protocols that the member offers."""
        return protocols_of((each.name, each.metadata) for each in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for the member to join again; version 0 has no such field."""
        timeout_ms = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if self.version == 0 else timeout_ms

    @property
    def why(self) -> str:
        """The reason given by the client (KIP-800)."""
        return self.request.reason or "not provided"


def check_join(request: JoinGroupRequest, settings: GroupSettings) -> ErrorCode:
    """Check a request without its group: the group id and the session timeout."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def new_member_id(prefix: str, uuid: Uuid) -> str:
    """Return a unique member id: the client's name for itself, and a UUID as Java prints it."""
    text = uuid.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return f"{prefix}-{'-'.join(parts)}"


def join(group: ClassicGroup, joining: Joining, effects: Effects) -> None:
    """Add a member, or reply with the reason for rejecting it."""
    member_id = joining.request.member_id
    code = _objection(group, joining, effects)
    if code is ErrorCode.GROUP_MAX_SIZE_REACHED:
        group.remove(member_id)
        effects.answer(joining.future, join_refused(code, UNKNOWN_MEMBER))
    elif code is not ErrorCode.NONE:
        effects.answer(joining.future, join_refused(code, member_id))
    elif member_id == UNKNOWN_MEMBER:
        _join_new(group, joining, effects)
    elif member_id in group.pending_join:
        _add(group, joining, member_id, effects)
    else:
        _join_again(group, joining, effects)


def _objection(group: ClassicGroup, joining: Joining, effects: Effects) -> ErrorCode:
    request = joining.request
    if not _has_room(group, request.member_id, effects.settings.max_size):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not group.supports(request.protocol_type, (name for name, _ in joining.protocols)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id in group.pending_join and request.group_instance_id is not None:
        # A static member is never asked to join again, so this id was not given to the client here.
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    """Count the members that joined in this rebalance: the maximum may have been lowered since."""
    if group.state is ClassicState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or group.awaiting_join_count() < size_max
    return member is not None or len(group.members) < size_max


# -- newcomers -----------------------------------------------------------------------


def _join_new(group: ClassicGroup, joining: Joining, effects: Effects) -> None:
    instance_id = joining.request.group_instance_id
    if instance_id is not None:
        old_id = group.static.get(instance_id)
        if old_id is None:
            _add(group, joining, joining.fresh_id, effects)
        else:
            _replace_static(group, joining, old_id, effects)
    elif joining.version >= _MEMBER_ID_REQUIRED_FROM:
        group.pending_join.add(joining.fresh_id)
        key = (SESSION, group.group_id, joining.fresh_id)
        effects.set_timer(key, joining.request.session_timeout_ms)
        reply = join_refused(ErrorCode.MEMBER_ID_REQUIRED, joining.fresh_id)
        effects.answer(joining.future, reply)
    else:
        _add(group, joining, joining.fresh_id, effects)


def _add(group: ClassicGroup, joining: Joining, member_id: str, effects: Effects) -> None:
    request = joining.request
    member = ClassicMember(
        member_id,
        request.group_instance_id,
        joining.client_id,
        joining.client_host,
        joining.rebalance_timeout_ms,
        request.session_timeout_ms,
        joining.protocols,
        is_new=True,
        awaiting_join=joining.future,
    )
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and group.previous_state is ClassicState.EMPTY
    ):
        group.has_new_member = True
    group.add(member, request.protocol_type)
    effects.set_timer((SESSION, group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    reason = f"adding new member {member_id}; client reason: {joining.why}"
    rebalance_or_complete(group, reason, effects)


# -- members that come again -----------------------------------------------------------


def _join_again(group: ClassicGroup, joining: Joining, effects: Effects) -> None:
    request = joining.request
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        refused = join_refused(code, request.member_id)
        effects.answer(joining.future, refused)
        return
    member = group.members[request.member_id]
    is_leader = group.leader_id == member.member_id
    is_same = member.protocols == joining.protocols
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            is_done = False
        case ClassicState.COMPLETING_REBALANCE:
            # It may have missed the reply to its first request: the generation is still the same.
            is_done = is_same
        case _:
            # The leader joins again when something has changed that its metadata does not show.
            is_done = is_same and not is_leader
    if is_done:
        effects.answer(joining.future, join_reply(group, member))
        return
    _update(group, member, joining, effects)
    reason = f"member {member.member_id} joined again; client reason: {joining.why}"
    rebalance_or_complete(group, reason, effects)


def _update(group: ClassicGroup, member: ClassicMember, joining: Joining, effects: Effects) -> None:
    """Apply what a member sends now. An older JoinGroup of it that still waits is rejected."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    effects.answer(member.awaiting_join, join_refused(again, member.member_id))
    group.offer(member, joining.protocols)
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    member.session_timeout_ms = joining.request.session_timeout_ms
    member.awaiting_join = joining.future


# -- static members --------------------------------------------------------------------


def _replace_static(group: ClassicGroup, joining: Joining, old_id: str, effects: Effects) -> None:
    """Replace the process behind a static member; the old one is fenced from now on.

    In a stable group whose protocol stays the same nothing else changes, so there is no rebalance:
    the new process gets the old assignment by SyncGroup.
    """
    instance_id = joining.request.group_instance_id
    assert instance_id is not None
    old = _Before(group, group.members[old_id])
    member = group.replace_static(instance_id, old_id, joining.fresh_id)
    _fence(member, old_id, effects)
    effects.forget_heartbeat(group, old_id)
    _update(group, member, joining, effects)
    effects.expect_heartbeat(group, member)
    reason = f"static member {instance_id} is {member.member_id} now"
    match group.state:
        case ClassicState.STABLE if group.select_protocol() == group.protocol:
            _store_replaced(group, member, joining, old, effects)
        case ClassicState.STABLE | ClassicState.COMPLETING_REBALANCE:
            # The leader may know the old id: it must assign again.
            prepare_rebalance(group, f"{reason}; client reason: {joining.why}", effects)
        case _:
            complete_if_all_joined(group, effects)


class _Before:
    """The earlier state of a static member, to restore if its new id cannot be stored."""

    def __init__(self, group: ClassicGroup, member: ClassicMember) -> None:
        self.member_id = member.member_id
        self.leader_id = group.leader_id
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms

    def restore(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Restore it."""
        assert member.instance_id is not None
        group.replace_static(member.instance_id, member.member_id, self.member_id)
        group.offer(member, self.protocols)
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        member.session_timeout_ms = self.session_timeout_ms


def _fence(member: ClassicMember, old_id: str, effects: Effects) -> None:
    fenced = ErrorCode.FENCED_INSTANCE_ID
    effects.answer(member.awaiting_join, join_refused(fenced, old_id))
    effects.answer(member.awaiting_sync, sync_refused(fenced))
    member.awaiting_join = member.awaiting_sync = None


def _store_replaced(
    group: ClassicGroup,
    member: ClassicMember,
    joining: Joining,
    old: _Before,
    effects: Effects,
) -> None:
    member.awaiting_join = None
    fenced = tuple(effects.answers)
    effects.records.append(group.record())
    effects.answer(joining.future, _replaced_reply(group, member, joining, old))

    def refused(fault: Fault) -> Decision:
        again = Effects(effects.settings, effects.now)
        new_id = member.member_id
        old.restore(group, member)
        again.forget_heartbeat(group, new_id)
        again.expect_heartbeat(group, member)
        again.answers.extend(fenced)
        again.answer(joining.future, join_refused(fault.code, UNKNOWN_MEMBER))
        return Decision(answers=again.answers, timers=again.timers)

    effects.refused = refused


def _replaced_reply(
    group: ClassicGroup, member: ClassicMember, joining: Joining, old: _Before
) -> JoinGroupResponse:
    """Return the current generation to a replaced member without making it assign.

    From version 9 on the reply can say so (KIP-814). Before that, a leader cannot know that it is
    the leader: the reply names its old id, and no assignment follows.
    """
    reply = join_reply(group, member)
    if joining.version >= _SKIP_ASSIGNMENT_FROM:
        reply.skip_assignment = group.leader_id == member.member_id
    else:
        reply.members = []
        reply.leader = old.leader_id or ""
    return reply


__all__ = ["Joining", "described_members", "join"]
