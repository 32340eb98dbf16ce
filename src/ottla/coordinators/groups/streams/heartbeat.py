"""StreamsGroupHeartbeat (KIP-1071): join, stay, and reconcile with the target tasks.

    epoch 0   join, with the topology           epoch -1  leave
    epoch n   the member's epoch or, if the reply was lost, the previous one

One heartbeat may begin an epoch, compute its targets and reconcile its member, in this order, in
one batch of records. A heartbeat without news from a member that has its target writes nothing.
Obstacles to an assignment are reported as a status, not as an error: missing topics, or a group
that still waits for its first members.
"""

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from ottla.coordinators.decision import Decision, SetTimer
from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.epoch_group.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.coordinators.groups.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidHeartbeat,
    UnknownMember,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.streams.context import Seen, StreamsContext
from ottla.coordinators.groups.streams.draft import (
    FORMING,
    SESSION,
    StreamsDraft,
    validated_epoch,
)
from ottla.coordinators.groups.streams.endpoints import endpoints_of
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.leaving import leave
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.reply import StreamsHeartbeatResult, task_ids
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskRoles, gathered
from ottla.coordinators.groups.streams.topics import Configured, Status
from ottla.coordinators.groups.streams.topology import Topology, check_topology, read_topology
from ottla.protocol.faults import Fault
from ottla.protocol.messages import streams_group_heartbeat as messages
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

# The epoch of members while their group is forming.
_FORMING_EPOCH: Final = 1


class StreamsHeartbeat(NamedTuple):
    """A heartbeat and its sender."""

    request: StreamsGroupHeartbeatRequest
    client_id: str
    client_host: str


# -- what no shard need be asked about -----------------------------------------------------


def check_streams_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise `InvalidHeartbeat` or `InvalidTopology` for requests that violate the protocol.

    Static members, warm-up tasks and source topics by expression are part of the protocol, but are
    not supported, as in Kafka 4.2.
    """
    _check_supported(request)
    keys = [tag.key for tag in request.client_tags or ()]
    if len(keys) != len(set(keys)):
        raise InvalidHeartbeat("ClientTags has a key more than once.")
    for text, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            raise InvalidHeartbeat(f"{name} can't be empty.")
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH:
        raise InvalidHeartbeat("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise InvalidHeartbeat(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    said = [each is None for each in (request.active_tasks, request.standby_tasks)]
    said.append(request.warmup_tasks is None)
    if any(said) and not all(said):
        raise InvalidHeartbeat("If one task-type is non-null, all must be non-null.")
    if epoch != JOIN_EPOCH and request.topology is not None:
        raise InvalidHeartbeat("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    if request.instance_id is not None:
        raise InvalidHeartbeat("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise InvalidHeartbeat("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise InvalidHeartbeat("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise InvalidHeartbeat("WarmupTasks are not supported yet.")
    subtopologies = () if request.topology is None else request.topology.subtopologies
    if any(each.source_topic_regex for each in subtopologies):
        raise InvalidHeartbeat("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidHeartbeat("RebalanceTimeoutMs must be provided in first request.")
    for tasks, name in (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    ):
        if tasks is None or tasks:
            raise InvalidHeartbeat(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidHeartbeat("Topology must be non-null when (re-)joining.")
    check_topology(read_topology(request.topology))


# -- the decision --------------------------------------------------------------------------


def decide_streams_heartbeat(
    context: StreamsContext, machine: GroupMachine, heartbeat: StreamsHeartbeat
) -> Decision:
    """Decide about a heartbeat that `check_streams_heartbeat` accepted.

    The reply is a `StreamsHeartbeatResult`. Raises a fault where member id or epoch are wrong.
    """
    request = heartbeat.request
    if request.member_epoch == LEAVE_EPOCH:
        return leave(context, machine, request)
    draft = _open(context, machine, request)
    was_empty = draft.group.is_empty()
    owned = _owned(request)
    member = _member(draft.group, request, owned)
    updated = _updated(member, heartbeat)
    is_changed = updated is not member or member.member_id not in draft.group.members
    if is_changed:
        draft.write_member(updated)
    seen = context.look(request.group_id, _topology(draft, request))
    _check_tasks(seen.configured, owned)
    _raise_epoch_if_changed(context, draft, seen, is_changed=is_changed)
    is_new = was_empty and _form(context, draft)
    is_forming = request.group_id in context.forming
    moved = _advance(draft, updated, seen.configured, owned, is_forming=is_forming)
    timeout_ms = context.session_timeout_ms(request.group_id)
    draft.timers.append(SetTimer((SESSION, request.group_id, updated.member_id), timeout_ms))
    if request.shutdown_application:
        context.shutdowns.setdefault(request.group_id, updated.member_id)
    has_moved = moved.assigned != member.assigned
    if moved.endpoint is not None and (has_moved or moved.endpoint != member.endpoint):
        context.note_endpoint(request.group_id)
    response = _reply(context, draft.group, moved, request)
    if has_moved or _may_miss_tasks(request, member, owned):
        _set_tasks(response, moved)
    response.status = _statuses(context, draft.group, moved, seen.configured)
    return Decision(
        draft.records,
        StreamsHeartbeatResult(response, seen.configured.missing),
        timers=draft.timers,
        refused=_unform(context, request.group_id) if is_new else None,
    )


def _open(
    context: StreamsContext, machine: GroupMachine, request: StreamsGroupHeartbeatRequest
) -> StreamsDraft:
    """Return a draft of the group. A joining member creates it, or replaces an empty classic group.

    Offsets are kept: an application that was stopped continues where it was.
    """
    group_id = request.group_id
    group = machine.groups.get(group_id)
    is_joining = request.member_epoch == JOIN_EPOCH
    if isinstance(group, StreamsGroup):
        is_full = len(group.members) >= context.settings.max_size
        if is_joining and is_full and request.member_id not in group.members:
            raise GroupMaxSizeReached(
                "The streams group has reached its maximum capacity of "
                f"{context.settings.max_size} members."
            )
        return StreamsDraft(group)
    if group is None:
        if not is_joining:
            raise GroupIdNotFound(f"Streams group {group_id} not found.")
        return StreamsDraft(StreamsGroup(group_id))
    if is_joining and isinstance(group, ClassicGroup) and group.is_empty():
        return StreamsDraft(StreamsGroup(group_id), before=group.tombstones())
    raise GroupIdNotFound(f"Group {group_id} is not a streams group.")


def _topology(draft: StreamsDraft, request: StreamsGroupHeartbeatRequest) -> Topology:
    """Return the topology of the group: that of its first member, which all others must share.

    A member with an older topology may join, and gets a status that it is stale.
    """
    present = draft.group.topology
    if request.topology is None:
        if present is None:
            raise InvalidHeartbeat("The group has no topology: its members must join again.")
        return present
    said = read_topology(request.topology)
    if present is None:
        draft.run(said)
        assert draft.group.topology is not None
        return draft.group.topology
    if present.epoch <= said.epoch and present != said:
        raise InvalidHeartbeat("Topology updates are not supported yet.")
    return present


def _check_tasks(configured: Configured, owned: TaskRoles | None) -> None:
    """Raise `InvalidHeartbeat` for tasks that do not exist."""
    if owned is None or not configured.is_ready():
        return
    for subtopology_id, partition in sorted(owned.any_role()):
        count = configured.task_counts.get(subtopology_id)
        if count is None:
            raise InvalidHeartbeat(f"Subtopology {subtopology_id} does not exist in the topology.")
        if not 0 <= partition < count:
            raise InvalidHeartbeat(
                f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks "
                f"for this subtopology: {count}"
            )


def _raise_epoch_if_changed(
    context: StreamsContext, draft: StreamsDraft, seen: Seen, *, is_changed: bool
) -> None:
    group, configs = draft.group, context.assignment_configs(draft.group.group_id)
    if (
        is_changed
        or seen.metadata_hash != group.metadata_hash
        or validated_epoch(seen.configured) != group.validated_epoch
        or configs != group.configs
    ):
        draft.raise_epoch(seen, configs)


def _form(context: StreamsContext, draft: StreamsDraft) -> bool:
    """Let a group with its first member wait for more; return whether it starts to wait."""
    group_id = draft.group.group_id
    delay_ms = context.initial_delay_ms(group_id)
    if delay_ms <= 0 or group_id in context.forming:
        return False
    context.forming.add(group_id)
    draft.timers.append(SetTimer((FORMING, group_id), delay_ms))
    return True


def _unform(context: StreamsContext, group_id: str) -> Any:  # noqa: ANN401 - as `Decision`
    """Return a function that undoes `_form` if the log rejects the group: no timer was set."""

    def refused(fault: Fault) -> Decision:
        context.forming.discard(group_id)
        return Decision()

    return refused


def _advance(
    draft: StreamsDraft,
    member: StreamsMember,
    configured: Configured,
    owned: TaskRoles | None,
    *,
    is_forming: bool,
) -> StreamsMember:
    """Compute missing targets, and reconcile the member with its own."""
    group = draft.group
    if group.epoch > group.assignment_epoch and is_forming:
        epoch = max(_FORMING_EPOCH, group.assignment_epoch)
        return draft.reconcile(member, epoch, NO_ROLES, owned)
    if group.epoch > group.assignment_epoch:
        draft.assign(configured)
        group = draft.group
    return draft.reconcile(member, group.assignment_epoch, group.target_of(member.member_id), owned)


# -- who sends it --------------------------------------------------------------------------


def _member(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: TaskRoles | None
) -> StreamsMember:
    """Return the member of a heartbeat, or a new one that joins. Raises if it is unknown."""
    member = group.members.get(request.member_id)
    if request.member_epoch == JOIN_EPOCH:
        return member or StreamsMember(request.member_id)
    if member is None:
        raise UnknownMember(
            f"Member {request.member_id} is not a member of group {group.group_id}."
        )
    _check_epoch(member, request.member_epoch, owned)
    return member


def _check_epoch(member: StreamsMember, epoch: int, owned: TaskRoles | None) -> None:
    """Raise `FencedMemberEpoch` unless the member has its current epoch, or the previous one.

    The previous epoch is accepted if the member runs nothing outside its assignment: the reply with
    the new epoch may have been lost.
    """
    if epoch == member.epoch:
        return
    is_behind = epoch < member.epoch
    is_within = owned is not None and not owned - member.assigned
    if is_behind and epoch == member.previous_epoch and is_within:
        return
    raise FencedMemberEpoch(
        f"The streams group member has a {'smaller' if is_behind else 'greater'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin."
    )


def _updated(member: StreamsMember, heartbeat: StreamsHeartbeat) -> StreamsMember:
    """Return the member with the fields it sent; the others stay unchanged."""
    request = heartbeat.request
    new: dict[str, Any] = {"client_id": heartbeat.client_id, "client_host": heartbeat.client_host}
    if request.rack_id is not None:
        new["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        new["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        new["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        new["process_id"] = request.process_id
    if request.user_endpoint is not None:
        new["endpoint"] = (request.user_endpoint.host, request.user_endpoint.port)
    if request.client_tags is not None:
        tags = {each.key: each.value for each in request.client_tags}
        new["tags"] = tuple(sorted(tags.items()))
    changed = {name: value for name, value in new.items() if getattr(member, name) != value}
    return replace(member, **changed) if changed else member


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskRoles | None:
    """Return the tasks that a member says it runs; None if it does not say."""
    if request.active_tasks is None:
        return None
    return TaskRoles(
        gathered(request.active_tasks),
        gathered(request.standby_tasks),
        gathered(request.warmup_tasks),
    )


# -- the reply -----------------------------------------------------------------------------


def _reply(
    context: StreamsContext,
    group: StreamsGroup,
    member: StreamsMember,
    request: StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse:
    """Return the reply without tasks and statuses."""
    epoch = context.endpoint_epoch(group.group_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms(group.group_id),
        endpoint_information_epoch=epoch,
    )
    if epoch != request.endpoint_information_epoch and group.topology is not None:
        response.partitions_by_user_endpoint = endpoints_of(group, group.topology, context.count_of)
    return response


def _may_miss_tasks(
    request: StreamsGroupHeartbeatRequest, member: StreamsMember, owned: TaskRoles | None
) -> bool:
    """Whether the reply has the member's tasks although they are unchanged.

    It has if the member joins, as in Kafka; and if the member says that it runs others, with all
    its fields or at the epoch before: it says so again because a reply with its tasks was lost.
    """
    if request.member_epoch == JOIN_EPOCH:
        return True
    is_retry = request.rebalance_timeout_ms != -1 or request.member_epoch != member.epoch
    return is_retry and owned is not None and owned != member.assigned


def _set_tasks(response: StreamsGroupHeartbeatResponse, member: StreamsMember) -> None:
    response.active_tasks = task_ids(member.assigned.active)
    response.standby_tasks = task_ids(member.assigned.standby)
    response.warmup_tasks = task_ids(member.assigned.warmup)


def _statuses(
    context: StreamsContext, group: StreamsGroup, member: StreamsMember, configured: Configured
) -> list[messages.Status]:
    found: list[messages.Status] = []
    epoch = configured.topology.epoch
    if member.topology_epoch < epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {epoch}."
        )
        found.append(messages.Status(Status.STALE_TOPOLOGY, detail))
    if group.epoch > group.assignment_epoch:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        found.append(messages.Status(Status.ASSIGNMENT_DELAYED, detail))
    if configured.problem is not None:
        found.append(messages.Status(configured.problem.status, configured.problem.detail))
    asked = context.shutdowns.get(group.group_id)
    if asked is not None:
        detail = (
            f"Streams group member {asked} encountered a fatal error and requested a shutdown for "
            "the entire application."
        )
        found.append(messages.Status(Status.SHUTDOWN_APPLICATION, detail))
    return found
