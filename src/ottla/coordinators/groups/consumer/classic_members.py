"""Members that use the classic protocol in a consumer group (KIP-848, rolling upgrades).

The group assigns for them too: JoinGroup is their heartbeat with a subscription, their generation
is their epoch, SyncGroup returns their assignment, and Heartbeat asks them to rejoin whenever they
have to reconcile. None of them is the leader, and no request waits.
"""

from msgspec.structs import replace

from ottla.coordinators.decision import LATER, Answer, CancelTimer, Decision, SetTimer
from ottla.coordinators.groups.classic.group import CONSUMER_PROTOCOL
from ottla.coordinators.groups.classic.join import Joining
from ottla.coordinators.groups.classic.rebalance import UNKNOWN_MEMBER, join_refused, sync_refused
from ottla.coordinators.groups.consumer.classic_protocol import (
    embedded_version,
    owned_partitions,
    read_subscription,
    write_assignment,
)
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import JOIN, SESSION, SYNC, ConsumerDraft
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.heartbeat import check_room, succeed
from ottla.coordinators.groups.consumer.leaving import fence, member_named
from ottla.coordinators.groups.consumer.member import ClassicMetadata, ConsumerMember
from ottla.coordinators.groups.consumer.migration import downgrade, may_downgrade
from ottla.coordinators.groups.consumer.subscription import (
    drop_unused_expressions,
    raise_epoch_if_changed,
)
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, ProtocolFault
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.types import Millis

# From this version on a new dynamic member must join again with its new id (KIP-394).
_MEMBER_ID_REQUIRED_SINCE = 4


def join_classic_member(
    context: ConsumerContext,
    machine: GroupMachine,
    group: ConsumerGroup,
    joining: Joining,
    now: Millis,
) -> Decision:
    """JoinGroup: the member sends its subscription and owned partitions, and gets its epoch."""
    request = joining.request
    is_new = request.member_id == UNKNOWN_MEMBER
    member_id = joining.uuid_id if is_new else request.member_id
    try:
        check_room(context, group, member_id)
        _check_protocols(group, joining)
        must_return = is_new and request.group_instance_id is None
        if must_return and joining.version >= _MEMBER_ID_REQUIRED_SINCE:
            return _answered(joining, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        draft = ConsumerDraft(group)
        member = _joined(draft, member_id, request.group_instance_id, is_new=is_new)
        subscription = _subscription(joining)
        moved = _advance(context, draft, member, joining, subscription)
    except Fault as fault:
        # Without a member id, as Kafka: only a classic group names it beside an error.
        return _answered(joining, join_refused(fault.code, UNKNOWN_MEMBER))
    context.awaiting_join.discard((group.group_id, moved.member_id))
    answer = _welcome(joining, moved)
    replaced = group.static_member(request.group_instance_id)
    was_consumer = replaced is not None and replaced.classic is None
    if was_consumer and may_downgrade(context, machine, draft.group, []):
        image = context.image()
        decision = downgrade(machine, draft, image, now, LATER, must_rebalance=False)
        return replace(decision, answers=[answer])
    key = (group.group_id, moved.member_id)
    timers = [
        *draft.timers,
        CancelTimer((JOIN, *key)),
        SetTimer((SESSION, *key), request.session_timeout_ms),
        SetTimer((SYNC, *key), joining.rebalance_timeout_ms),
    ]
    return Decision(draft.records, LATER, answers=[answer], timers=timers)


def _answered(joining: Joining, reply: JoinGroupResponse) -> Decision:
    return Decision(reply=LATER, answers=[Answer(joining.future, reply)])


def _check_protocols(group: ConsumerGroup, joining: Joining) -> None:
    names = [name for name, _ in joining.protocols]
    if not group.supports_classic(joining.request.protocol_type, names):
        raise InconsistentProtocol("The member's protocols are not supported.")


def _subscription(joining: Joining) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(joining.protocols[0][1])
    except ProtocolFault as fault:
        raise InconsistentProtocol("The member's subscription cannot be read.") from fault


def _joined(
    draft: ConsumerDraft, member_id: str, instance_id: str | None, *, is_new: bool
) -> ConsumerMember:
    """Return the joining member: a known one, a replaced static one, or a new one."""
    if instance_id is None:
        return draft.group.members.get(member_id) or ConsumerMember(member_id)
    present = draft.group.static_member(instance_id)
    if is_new:
        return ConsumerMember(member_id) if present is None else succeed(draft, present, member_id)
    if present is None:
        raise UnknownMember(f"Instance id {instance_id} is unknown.")
    if present.member_id != member_id:
        raise FencedInstanceId(f"Static member {member_id} was fenced by {present.member_id}.")
    return present


def _advance(
    context: ConsumerContext,
    draft: ConsumerDraft,
    member: ConsumerMember,
    joining: Joining,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    """Apply what the member sent, then advance the group, its targets and the member."""
    request = joining.request
    reply = replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex="",
        server_assignor=None,
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, joining.protocols),
    )
    if reply != member or member.member_id not in draft.group.members:
        draft.write_member(reply)
    drop_unused_expressions(draft)
    is_changed = (reply.topic_names, reply.topic_regex) != (member.topic_names, member.topic_regex)
    raise_epoch_if_changed(context, draft, is_changed=is_changed)
    image = context.image()
    if draft.group.epoch > draft.group.assignment_epoch:
        draft.assign(image, context.settings.assignors[0])
    owned = dict(owned_partitions(subscription, image.topics))
    return draft.reconcile(reply, owned, draft.topic_ids_of(reply, image) if is_changed else None)


def _welcome(joining: Joining, member: ConsumerMember) -> Answer:
    """Reply with the epoch of a member and without a leader, so that it sends SyncGroup next."""
    reply = JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=joining.protocols[0][0],
        member_id=member.member_id,
    )
    return Answer(joining.future, reply)


# -- sync --------------------------------------------------------------------------------


def sync_classic_member(
    context: ConsumerContext, group: ConsumerGroup, request: SyncGroupRequest
) -> Decision:
    """SyncGroup: return the assignment of a member at its epoch."""
    try:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        name = classic.protocols[0][0]
        _check_protocol(request.protocol_type, CONSUMER_PROTOCOL)
        _check_protocol(request.protocol_name, name)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            raise RebalanceInProgress("The member must join again to catch up.")
    except RebalanceInProgress as fault:
        timers = _expect_join(context, group, member)
        return Decision(reply=sync_refused(fault.code), timers=timers)
    except Fault as fault:
        return Decision(reply=sync_refused(fault.code))
    version = embedded_version(classic.protocols[0][1])
    key = (group.group_id, member.member_id)
    return Decision(
        reply=SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(member.assigned, context.image().topics, version),
        ),
        timers=[
            CancelTimer((SYNC, *key)),
            SetTimer((SESSION, *key), classic.session_timeout_ms),
        ],
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = member_named(group, member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise IllegalGeneration(f"Generation {generation} is not the epoch {member.epoch}.")


def _check_protocol(named: str | None, actual: str) -> None:
    if named is not None and named != actual:
        raise InconsistentProtocol(f"{named} is not {actual}.")


def _expect_join(
    context: ConsumerContext, group: ConsumerGroup, member: ConsumerMember
) -> list[SetTimer]:
    """Start the timeout to join again, unless it is running."""
    key = (group.group_id, member.member_id)
    if key in context.awaiting_join:
        return []
    context.awaiting_join.add(key)
    return [SetTimer((JOIN, *key), member.rebalance_timeout_ms)]


# -- heartbeat ---------------------------------------------------------------------------


def heartbeat_classic_member(
    context: ConsumerContext, group: ConsumerGroup, request: HeartbeatRequest
) -> Decision:
    """Heartbeat: restart the session, and ask the member to rejoin if it has to reconcile.

    It has to after a new epoch, to revoke partitions, or when partitions it waits for are free.
    """
    try:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
    except Fault as fault:
        return Decision(reply=HeartbeatResponse(error_code=fault.code))
    key = (SESSION, group.group_id, member.member_id)
    timers = [SetTimer(key, classic.session_timeout_ms)]
    code = ErrorCode.NONE
    is_served = member.state is MemberState.UNRELEASED and not group.is_waiting_for_others(member)
    is_giving_up = member.state is MemberState.UNREVOKED
    if member.epoch < group.epoch or is_giving_up or is_served:
        code = ErrorCode.REBALANCE_IN_PROGRESS
        timers += _expect_join(context, group, member)
    return Decision(reply=HeartbeatResponse(error_code=code), timers=timers)


# -- leave -------------------------------------------------------------------------------


def leave_classic_members(
    context: ConsumerContext,
    machine: GroupMachine,
    group: ConsumerGroup,
    request: LeaveGroupRequest,
    now: Millis,
) -> Decision:
    """LeaveGroup: of members of either protocol, by member id or by instance id.

    The reply names each member as the request does.
    """
    gone: dict[str, ConsumerMember] = {}
    replies: list[MemberResponse] = []
    for identity in request.members:
        try:
            member = _leaver(group, identity)
        except Fault as fault:
            replies.append(
                MemberResponse(identity.member_id, identity.group_instance_id, fault.code)
            )
            continue
        gone[member.member_id] = member
        replies.append(MemberResponse(identity.member_id, identity.group_instance_id))
    reply = LeaveGroupResponse(members=replies)
    if not gone:
        return Decision(reply=reply)
    return fence(context, machine, group, list(gone.values()), now, reply)


def _leaver(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is not None and member_id == UNKNOWN_MEMBER:
        member = group.static_member(instance_id)
        if member is None:
            raise UnknownMember(f"Instance id {instance_id} is unknown.")
        return member
    return member_named(group, member_id, instance_id)
