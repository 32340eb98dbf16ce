"""How a classic group gets from one generation to the next.

    prepare    all members are asked to rejoin; waiting SyncGroup requests are answered so
    complete   the members that joined form the next generation, the others are removed
    sync       the leader's assignment makes it stable; members that send no SyncGroup are removed

All functions change the group and collect in `Effects` what the shard has to do.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.coordinators.decision import (
    LATER,
    Answer,
    CancelTimer,
    Decision,
    ReplyFuture,
    SetTimer,
    TimerChange,
    TimerKey,
)
from ottla.coordinators.groups.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    InitialDelay,
)
from ottla.coordinators.groups.recent_events import EventKind, Note, noted
from ottla.coordinators.groups.settings import GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.protocol.types import Millis

SESSION: Final = "classic-session"
JOIN: Final = "classic-join"
SYNC: Final = "classic-sync"
UNKNOWN_MEMBER: Final = ""


class Effects:
    """The effects of a step of a classic group, in order."""

    def __init__(self, settings: GroupSettings, now: Millis) -> None:
        self.settings = settings
        self.now = now
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answer] = []
        self.timers: list[TimerChange] = []
        self.refused: Callable[[Fault], Decision] | None = None

    def answer(self, future: ReplyFuture | None, reply: Any) -> None:  # noqa: ANN401 - as `Answer`
        """Answer a request, if there is one."""
        if future is not None:
            self.answers.append(Answer(future, reply))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        """Set or move a timer."""
        self.timers.append(SetTimer(key, delay_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        """Remove a timer."""
        self.timers.append(CancelTimer(key))

    def expect_heartbeat(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Restart the session timeout of a member."""
        self.set_timer((SESSION, group.group_id, member.member_id), member.session_timeout_ms)

    def forget_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the session timeout of a member."""
        self.cancel_timer((SESSION, group.group_id, member_id))

    def decision(self, reply: Any = LATER) -> Decision:  # noqa: ANN401 - as `Decision`
        """Return the decision.

        The members have changed whether or not the log accepts the record: a rejected write answers
        requests and sets timers like an accepted one, and a later record repeats its content.
        """
        refused = self.refused
        if refused is None:
            answers, timers = tuple(self.answers), tuple(self.timers)

            def refused(fault: Fault) -> Decision:
                return Decision(answers=answers, timers=timers)

        return Decision(self.records, reply, self.answers, self.timers, refused=refused)


# -- replies -------------------------------------------------------------------


def join_reply(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """Return the current generation to a member; the leader gets the list of all members."""
    is_leader = group.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type_or_none,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=described_members(group) if is_leader else [],
    )


def described_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """Return all members with their metadata for the protocol in use."""
    protocol = group.protocol or ""
    return [
        JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata(protocol))
        for each in group.members.values()
    ]


def join_refused(code: ErrorCode | int, member_id: str) -> JoinGroupResponse:
    """Return a failed JoinGroup; versions without null get an empty protocol name."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """Return a failed SyncGroup."""
    return SyncGroupResponse(error_code=code)


def sync_reply(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    """Return a member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type_or_none,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


# -- prepare ---------------------------------------------------------------------


def rebalance_or_complete(group: ClassicGroup, reason: str, effects: Effects) -> None:
    """Begin a rebalance, or complete the current one if no member is missing."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        prepare_rebalance(group, reason, effects)
    else:
        group.notes = noted(group.notes, Note(effects.now, EventKind.CHANGED, reason))
        complete_if_all_joined(group, effects)


def prepare_rebalance(group: ClassicGroup, reason: str, effects: Effects) -> None:
    """Ask all members to rejoin. A group that was empty waits for more members first."""
    if group.state is ClassicState.COMPLETING_REBALANCE:
        _refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
    group.pending_sync.clear()
    effects.cancel_timer((SYNC, group.group_id))
    group.reason = reason
    group.notes = noted(group.notes, Note(effects.now, EventKind.REBALANCE, reason))
    is_first = group.state is ClassicState.EMPTY
    group.transition(ClassicState.PREPARING_REBALANCE, effects.now)
    if is_first:
        delay_ms = effects.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        group.has_new_member = False
        effects.set_timer((JOIN, group.group_id), delay_ms)
    elif group.has_all_joined():
        complete_join(group, effects)
    else:
        effects.set_timer((JOIN, group.group_id), group.rebalance_timeout_ms())


def _refuse_syncs(group: ClassicGroup, code: ErrorCode, effects: Effects) -> None:
    for member in group.members.values():
        member.assignment = b""
        if member.awaiting_sync is not None:
            effects.answer(member.awaiting_sync, sync_refused(code))
            member.awaiting_sync = None
            effects.expect_heartbeat(group, member)


def complete_if_all_joined(group: ClassicGroup, effects: Effects) -> None:
    """Complete a rebalance if all have joined; the first one of a group waits its whole delay."""
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and group.previous_state is not ClassicState.EMPTY
        and group.has_all_joined()
    ):
        complete_join(group, effects)


def on_join_timer(group: ClassicGroup, effects: Effects) -> None:
    """Continue a rebalance whose timeout has passed; the first one may be extended."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    initial = group.initial_delay
    if initial is not None and group.has_new_member and initial.remaining_ms > 0:
        group.has_new_member = False
        delay_ms = min(effects.settings.initial_rebalance_delay_ms, initial.remaining_ms)
        remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        effects.set_timer((JOIN, group.group_id), delay_ms)
        return
    complete_join(group, effects)


# -- complete ----------------------------------------------------------------------


def complete_join(group: ClassicGroup, effects: Effects) -> None:
    """Make the members that joined the next generation, and answer them.

    A static member that did not join stays (KIP-345) until its session ends; if only such members
    are left, the rebalance continues.
    """
    effects.cancel_timer((JOIN, group.group_id))
    group.initial_delay = None
    _drop_absent(group, effects)
    if group.members and not group.elect_joined_leader():
        effects.set_timer((JOIN, group.group_id), group.rebalance_timeout_ms())
        return
    group.next_generation(effects.now)
    if group.state is ClassicState.EMPTY:
        effects.records.append(group.record())
        return
    for member in group.members.values():
        effects.answer(member.awaiting_join, join_reply(group, member))
        member.awaiting_join = None
        member.is_new = False
        effects.expect_heartbeat(group, member)
        group.pending_sync.add(member.member_id)
    effects.set_timer((SYNC, group.group_id), group.rebalance_timeout_ms())


def _drop_absent(group: ClassicGroup, effects: Effects) -> None:
    absent = [
        each.member_id
        for each in group.members.values()
        if each.awaiting_join is None and each.instance_id is None
    ]
    for member_id in absent:
        drop_member(group, member_id, effects)


def drop_member(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """Remove a member and answer its waiting requests."""
    effects.forget_heartbeat(group, member_id)
    member = group.remove(member_id)
    if member is not None:
        gone = ErrorCode.UNKNOWN_MEMBER_ID
        effects.answer(member.awaiting_join, join_refused(gone, UNKNOWN_MEMBER))
        effects.answer(member.awaiting_sync, sync_refused(gone))
        member.awaiting_join = member.awaiting_sync = None


def after_removal(group: ClassicGroup, reason: str, effects: Effects) -> None:
    """Continue after members were removed: rebalance, or complete the current rebalance."""
    match group.state:
        case ClassicState.STABLE | ClassicState.COMPLETING_REBALANCE:
            prepare_rebalance(group, reason, effects)
        case ClassicState.PREPARING_REBALANCE if group.has_all_joined():
            complete_join(group, effects)


# -- stable ------------------------------------------------------------------------


def settle(group: ClassicGroup, assignments: Iterable[tuple[str, bytes]], effects: Effects) -> None:
    """Store the leader's assignment: the generation is stable once it is written."""
    given = dict(assignments)
    waiting: list[tuple[ClassicMember, ReplyFuture]] = []
    for member in group.members.values():
        member.assignment = given.get(member.member_id, b"")
        if member.awaiting_sync is not None:
            waiting.append((member, member.awaiting_sync))
            member.awaiting_sync = None
            effects.expect_heartbeat(group, member)
    group.transition(ClassicState.STABLE, effects.now)
    settled = f"generation {group.generation} is stable"
    group.notes = noted(group.notes, Note(effects.now, EventKind.SETTLED, settled))
    effects.records.append(group.record())
    for member, future in waiting:
        effects.answer(future, sync_reply(group, member))
    effects.refused = lambda fault: _unsettle(group, waiting, fault, effects)


def _unsettle(
    group: ClassicGroup,
    waiting: list[tuple[ClassicMember, ReplyFuture]],
    fault: Fault,
    effects: Effects,
) -> Decision:
    """Start over: no member may learn an assignment that is not in the log."""
    again = Effects(effects.settings, effects.now)
    group.state = ClassicState.COMPLETING_REBALANCE
    for member, future in waiting:
        member.awaiting_sync = future
    code = fault.code
    _refuse_syncs(group, code, again)
    prepare_rebalance(group, f"storing the assignment failed: {code.name}", again)
    return Decision(answers=again.answers, timers=again.timers)


def on_sync_timer(group: ClassicGroup, effects: Effects) -> None:
    """Remove the members that sent no SyncGroup in time, and rebalance."""
    is_waiting = group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
    if not is_waiting or not group.pending_sync:
        return
    absent = sorted(group.pending_sync)
    for member_id in absent:
        drop_member(group, member_id, effects)
    prepare_rebalance(group, f"no SyncGroup in time from {', '.join(absent)}", effects)


def note_sync(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """Note that a member has sent SyncGroup."""
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        effects.cancel_timer((SYNC, group.group_id))
