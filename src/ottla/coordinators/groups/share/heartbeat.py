"""ShareGroupHeartbeat: decisions about the members of a share group.

    epoch 0   join, or rejoin              epoch -1  leave
    epoch n   the member's epoch or, if the reply was lost, the previous one

If members, subscriptions or topics have changed, the group's epoch rises and targets are computed
in the same decision. A partition is read only once its state is initialized: the result names those
that are not, for the service to initialize them (`decide_initialized`).
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from ottla.coordinators.decision import Decision, SetTimer
from ottla.coordinators.groups.epoch_group.member import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinators.groups.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidHeartbeat,
    UnknownMember,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.draft import (
    SESSION,
    ShareDraft,
    partitions_of,
    remove_member,
)
from ottla.coordinators.groups.share.group import (
    NO_PARTITIONS,
    Partitions,
    ShareGroup,
    ShareMember,
    by_topic,
)
from ottla.metadata.image import Image
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBER_ID_MAX: Final = 36
"""The length of a UUID as text; Kafka accepts no longer id of a share member."""


class Heartbeat(NamedTuple):
    """A heartbeat and its sender."""

    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str


class HeartbeatResult(NamedTuple):
    """The reply, and the share partitions to initialize, at which state epoch."""

    response: ShareGroupHeartbeatResponse
    pending: Partitions = NO_PARTITIONS
    state_epoch: int = 0


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise `InvalidHeartbeat` for requests that violate the protocol."""
    if not request.group_id.strip():
        raise InvalidHeartbeat("GroupId can't be empty.")
    if not request.member_id.strip():
        raise InvalidHeartbeat("MemberId can't be empty.")
    if len(request.member_id) > MEMBER_ID_MAX:
        raise InvalidHeartbeat(f"MemberId is longer than {MEMBER_ID_MAX} characters.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidHeartbeat("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise InvalidHeartbeat("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidHeartbeat("MemberEpoch is invalid.")


def decide_share_heartbeat(
    context: ShareContext, machine: GroupMachine, heartbeat: Heartbeat
) -> Decision:
    """Reply with a `HeartbeatResult`. Raises a fault where member id or epoch are wrong."""
    request = heartbeat.request
    group = _group_of(machine, request)
    if request.member_epoch == LEAVE_EPOCH:
        return _leave(context, group, request)
    member = _member_of(context, group, request)
    draft = ShareDraft(context, group)
    draft.update_member(_updated(member, heartbeat))
    draft.raise_epoch_if_topics_changed()
    changed = draft.reconcile(request.member_id)
    after = draft.group.members[request.member_id]
    # A client that may have missed a reply sends its subscription again, and gets all of it.
    is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms(group.group_id),
        assignment=_assignment(after.assigned) if is_full or changed else None,
    )
    timer = SetTimer(
        (SESSION, group.group_id, request.member_id), context.session_timeout_ms(group.group_id)
    )
    pending = pending_of(draft.group, context.image())
    return Decision(
        draft.records, reply=HeartbeatResult(response, pending, draft.group.epoch), timers=[timer]
    )


def _group_of(machine: GroupMachine, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    group = machine.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is not None:
        raise GroupIdNotFound(f"Group {request.group_id} is not a share group.")
    if request.member_epoch != JOIN_EPOCH:
        raise GroupIdNotFound(f"Share group {request.group_id} not found.")
    return ShareGroup(request.group_id)


def _member_of(
    context: ShareContext, group: ShareGroup, request: ShareGroupHeartbeatRequest
) -> ShareMember:
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != JOIN_EPOCH:
            raise UnknownMember(f"Member {request.member_id} is not a member of {group.group_id}.")
        if len(group.members) >= context.settings.max_size:
            raise GroupMaxSizeReached(f"The share group {group.group_id} takes no more members.")
        return ShareMember(request.member_id)
    is_late = request.member_epoch == member.previous_epoch
    if request.member_epoch not in (JOIN_EPOCH, member.epoch) and not is_late:
        raise FencedMemberEpoch(
            f"The member {request.member_id} is at epoch {member.epoch}, not at "
            f"{request.member_epoch}. The member must abandon all its partitions and rejoin."
        )
    return member


def _updated(member: ShareMember, heartbeat: Heartbeat) -> ShareMember:
    request = heartbeat.request
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=heartbeat.client_id,
        client_host=heartbeat.client_host,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
    )


def _leave(
    context: ShareContext, group: ShareGroup, request: ShareGroupHeartbeatRequest
) -> Decision:
    if request.member_id not in group.members:
        raise UnknownMember(f"Member {request.member_id} is not a member of {group.group_id}.")
    records, timers = remove_member(context, group, request.member_id)
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
    return Decision(records, reply=HeartbeatResult(response), timers=timers)


def decide_initialized(
    context: ShareContext, machine: GroupMachine, group_id: str, done: Partitions
) -> Decision:
    """Note that share partitions have state, so that members may read them."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ShareGroup) or done <= group.initialized:
        return Decision()
    draft = ShareDraft(context, group)
    draft.set_initialized(group.initialized | done)
    draft.raise_epoch()
    return Decision(draft.records)


def decide_uninitialized(
    context: ShareContext, machine: GroupMachine, group_id: str, gone: Partitions
) -> Decision:
    """Note that share partitions have no state any more."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not gone & group.initialized:
        return Decision()
    draft = ShareDraft(context, group)
    draft.set_initialized(group.initialized - gone)
    draft.raise_epoch()
    return Decision(draft.records)


def decide_reset(
    context: ShareContext, machine: GroupMachine, group_id: str, done: Partitions
) -> Decision:
    """Note that share partitions were reset, at a state epoch one above the group's.

    Creates a missing group. Raises `GroupIdNotFound` if the id belongs to a group of another kind
    by now.
    """
    group = machine.groups.get(group_id, ShareGroup(group_id))
    if not isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"Group {group_id} is not a share group.")
    draft = ShareDraft(context, group)
    draft.set_initialized(group.initialized | done)
    draft.raise_epoch()
    return Decision(draft.records)


def pending_of(group: ShareGroup, image: Image) -> Partitions:
    """Return the subscribed partitions that have no state yet."""
    wanted = partitions_of(image, group.subscribed())
    return wanted - group.initialized


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment([TopicPartitions(*each) for each in by_topic(partitions)])
