"""A group changes its protocol while it has members (KIP-848), one member at a time.

    classic --first consumer member joins--> consumer, with the classic members in it
    consumer --last consumer member leaves, classic ones stay--> classic

The tombstones of the old group and the records of the new one are one batch: a log has the one or
the other. Epochs continue from generations and vice versa, so that no member sees one decrease.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ottla.coordinators.decision import Answer, CancelTimer, Decision, SetTimer
from ottla.coordinators.groups.classic.group import (
    CONSUMER_PROTOCOL,
    ClassicGroup,
    ClassicMember,
    ClassicState,
)
from ottla.coordinators.groups.classic.rebalance import (
    JOIN as CLASSIC_JOIN,
)
from ottla.coordinators.groups.classic.rebalance import (
    SESSION as CLASSIC_SESSION,
)
from ottla.coordinators.groups.classic.rebalance import (
    SYNC as CLASSIC_SYNC,
)
from ottla.coordinators.groups.classic.rebalance import (
    Effects,
    join_refused,
    prepare_rebalance,
    sync_refused,
)
from ottla.coordinators.groups.consumer.assignors.spec import Partitions, gathered
from ottla.coordinators.groups.consumer.classic_protocol import (
    carries_user_data,
    embedded_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import SESSION, TIMERS, ConsumerDraft
from ottla.coordinators.groups.consumer.group import ConsumerGroup, places
from ottla.coordinators.groups.consumer.member import ClassicMetadata, ConsumerMember
from ottla.coordinators.groups.consumer.records import RECORDS, epoch_record
from ottla.coordinators.groups.epoch_group.member import JOIN_EPOCH
from ottla.coordinators.groups.errors import GroupIdNotFound
from ottla.coordinators.groups.machine import GroupMachine
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, ProtocolFault
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.types import Millis, Uuid


def open_group(
    context: ConsumerContext,
    machine: GroupMachine,
    request: ConsumerGroupHeartbeatRequest,
    now: Millis,
) -> ConsumerDraft:
    """Return a draft of the group that a heartbeat is for.

    A member that joins creates the group, replaces an empty classic one, or upgrades one that has
    members. Raises `GroupIdNotFound`.
    """
    group_id = request.group_id
    group = machine.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return ConsumerDraft(group)
    if request.member_epoch != JOIN_EPOCH:
        raise GroupIdNotFound(f"Consumer group {group_id} not found.")
    if group is None:
        return ConsumerDraft(ConsumerGroup(group_id))
    if not isinstance(group, ClassicGroup):
        raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
    if group.is_empty():
        return ConsumerDraft(ConsumerGroup(group_id), before=group.tombstones())
    check_upgrade(context, group)
    return upgrade(group, context)


# -- classic to consumer -------------------------------------------------------------------


def check_upgrade(context: ConsumerContext, group: ClassicGroup) -> None:
    """Raise `GroupIdNotFound` for a classic group that cannot be upgraded."""
    settings, why = context.settings, ""
    if not settings.migration_policy.may_upgrade():
        why = "online upgrade is disabled"
    elif group.protocol_type_or_none != CONSUMER_PROTOCOL:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
        )


def upgrade(group: ClassicGroup, context: ConsumerContext) -> ConsumerDraft:
    """Return the classic group as a consumer group at its generation.

    The assignment by its leader becomes assignment and target of all members. Members that wait for
    a generation are asked to rejoin, as classic members of the consumer group. Raises
    `GroupIdNotFound` if the members speak something else than the consumer protocol, or if their
    assignments carry user data, which a consumer group would lose.
    """
    draft = ConsumerDraft(ConsumerGroup(group.group_id), before=group.tombstones())
    try:
        members = _disjoint(
            _as_consumer(group, each, context.image()) for each in group.members.values()
        )
    except ProtocolFault as fault:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {group.group_id} to consumer group because the "
            "embedded consumer protocol is malformed."
        ) from fault
    for member in members:
        draft.write_member(member)
    metadata_hash = context.metadata_hash(draft.group)
    draft.add(epoch_record(group.group_id, group.generation, metadata_hash))
    for member in members:
        draft.add(RECORDS.target_record(group.group_id, member.member_id, member.assigned))
    draft.add(RECORDS.target_epoch_record(group.group_id, group.generation))
    for member in members:
        draft.write_assignment(member)
    _release(group, draft)
    return draft


def _disjoint(members: Iterable[ConsumerMember]) -> list[ConsumerMember]:
    """Remove partitions that an earlier member has: a classic leader may have assigned one twice.

    The members read them until they rejoin, as before; they do not own them from now on.
    """
    taken: set[tuple[Uuid, int]] = set()
    found: list[ConsumerMember] = []
    for member in members:
        own = [place for place in places(member.assigned) if place not in taken]
        taken.update(own)
        found.append(replace(member, assigned=gathered(own)))
    return found


def _as_consumer(group: ClassicGroup, member: ClassicMember, image: Image) -> ConsumerMember:
    if carries_user_data(member.assignment):
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {group.group_id} to consumer group because an "
            "unsupported custom assignor is in use. Please refer to the documentation or switch to "
            "a default assignor before re-attempting the upgrade."
        )
    metadata = member.metadata(group.protocol or "") or member.protocols[0][1]
    subscription = read_subscription(metadata)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=read_assignment(member.assignment, image.topics),
    )


def _release(group: ClassicGroup, draft: ConsumerDraft) -> None:
    """Answer the requests that wait in a classic group that was upgraded, and cancel its timers."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        if member.awaiting_join is not None:
            reply = join_refused(again, member.member_id)
            draft.answers.append(Answer(member.awaiting_join, reply))
        if member.awaiting_sync is not None:
            draft.answers.append(Answer(member.awaiting_sync, sync_refused(again)))
        key = (CLASSIC_SESSION, group.group_id, member.member_id)
        draft.timers.append(CancelTimer(key))
        key = (SESSION, group.group_id, member.member_id)
        draft.timers.append(SetTimer(key, member.session_timeout_ms))
    for kind in (CLASSIC_JOIN, CLASSIC_SYNC):
        draft.timers.append(CancelTimer((kind, group.group_id)))


# -- consumer to classic -------------------------------------------------------------------


def may_downgrade(
    context: ConsumerContext,
    machine: GroupMachine,
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember],
) -> bool:
    """Whether these are the last consumer members, and classic ones stay."""
    staying = len(group.members) - len(leaving)
    return (
        0 < staying == group.classic_count
        and all(member.classic is None for member in leaving)
        and context.settings.migration_policy.may_downgrade()
        and staying <= machine.settings.max_size
    )


def downgrade(
    machine: GroupMachine,
    draft: ConsumerDraft,
    image: Image,
    now: Millis,
    reply: Any,  # noqa: ANN401 - as `Decision`
    *,
    must_rebalance: bool,
) -> Decision:
    """Turn a draft with only classic members into a classic group.

    Its members keep their targets as assignments. With ``must_rebalance`` they are asked to rejoin
    and share the partitions of the last consumer members.
    """
    classic = as_classic(draft.group, image, now)
    effects = Effects(machine.settings, now)
    effects.records = [*draft.records, *draft.group.tombstones(), classic.record()]
    effects.timers = list(draft.timers)
    for member in classic.members.values():
        for kind in TIMERS:
            effects.cancel_timer((kind, classic.group_id, member.member_id))
        effects.expect_heartbeat(classic, member)
    if must_rebalance:
        reason = f"Downgrade group {classic.group_id} from consumer to classic."
        prepare_rebalance(classic, reason, effects)
    machine.new_groups[classic.group_id] = classic

    def refused(fault: Fault) -> Decision:
        machine.new_groups.pop(classic.group_id, None)
        return Decision()

    return Decision(
        effects.records, reply, answers=effects.answers, timers=effects.timers, refused=refused
    )


def as_classic(group: ConsumerGroup, image: Image, now: Millis) -> ClassicGroup:
    """Return a group of classic members as a classic group, stable at the group's epoch."""
    classic = ClassicGroup(
        group.group_id,
        state=ClassicState.STABLE,
        generation=group.epoch,
        state_since=now,
    )
    for member_id in sorted(group.members):
        member = group.members[member_id]
        assert member.classic is not None, "a consumer member stays in no classic group"
        target = group.target_of(member_id)
        classic.add(_as_classic(member, member.classic, target, image), CONSUMER_PROTOCOL)
    classic.protocol = classic.select_protocol()
    classic.subscribed = classic.subscribed_topics()
    return classic


def _as_classic(
    member: ConsumerMember, said: ClassicMetadata, target: Partitions, image: Image
) -> ClassicMember:
    version = embedded_version(said.protocols[0][1])
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        said.session_timeout_ms,
        said.protocols,
        write_assignment(target, image.topics, version),
    )
