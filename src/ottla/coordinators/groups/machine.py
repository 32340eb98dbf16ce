"""The state machine of one shard of ``__consumer_offsets``: its groups and their offsets.

Each kind of group defines its record types and how they change a group (`Kind`); this machine
handles classic groups and offsets, and forwards the rest.

A group is in ``groups`` once a record of it was replayed, be it its first offset. A classic group
that a JoinGroup is about to create is in ``new_groups`` until its record is written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from immutables import Map

from ottla.coordinators.decision import (
    NOTHING,
    Answer,
    Decision,
    Origin,
    ReplyFuture,
    SetTimer,
    TimerChange,
    TimerKey,
)
from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinators.groups.classic.join import Joining, join
from ottla.coordinators.groups.classic.member_requests import on_session_timeout
from ottla.coordinators.groups.classic.rebalance import (
    JOIN,
    SESSION,
    SYNC,
    UNKNOWN_MEMBER,
    Effects,
    join_refused,
    on_join_timer,
    on_sync_timer,
    prepare_rebalance,
)
from ottla.coordinators.groups.kind import Group
from ottla.coordinators.groups.offsets.committed import OffsetCommits, Offsets, OffsetsByGroup
from ottla.coordinators.groups.offsets.rules import Commit, expire_offsets
from ottla.coordinators.groups.recent_events import RecentEvents, removal_reason
from ottla.coordinators.groups.settings import GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.schema import Message
from ottla.protocol.types import NO_PRODUCER_ID, NO_TIMESTAMP, Millis, Offset
from ottla.runtime.trusted_time import Times

EXPIRY: Final = "expiry"
# The length of a member's timer key: kind, group, member.
MEMBER_KEY: Final = 3


class GroupsView(NamedTuple):
    """The committed state, for readers. Classic groups in it are live.

    Their state is not logged.
    """

    groups: Map[str, Group]
    offsets: OffsetsByGroup


KindT = TypeVar("KindT")
ReplayKind: TypeAlias = Callable[["GroupMachine", Message, Message | None], None]


class Kind(Protocol):
    """A kind of group other than the classic one, as the machine uses it.

    Its groups are kept in ``machine.groups`` as immutable values, so that committed views do not
    change; `GroupMachine.put` and `GroupMachine.forget` change the map.
    """

    @property
    def replays(self) -> Mapping[type[Message], ReplayKind]:
        """By the type of key: how a record, or a tombstone, changes the machine."""
        ...

    @property
    def timers(self) -> Mapping[str, Callable[["GroupMachine", TimerKey, Millis], Decision]]:
        """The handlers of timers, by the first part of the key."""
        ...

    def on_loaded(self, machine: "GroupMachine", now: Millis) -> Sequence[TimerChange]:
        """Return the timers of the groups of this kind that were just loaded."""
        ...


class ClassicMemberHandler(Protocol):
    """Handles requests of classic members in groups of another kind."""

    def hosts(self, machine: "GroupMachine", group_id: str) -> bool:
        """Whether this handler serves classic requests to the group."""
        ...

    def join(self, machine: "GroupMachine", joining: Joining, now: Millis) -> Decision:
        """JoinGroup."""
        ...

    def sync(self, machine: "GroupMachine", request: SyncGroupRequest) -> Decision:
        """SyncGroup."""
        ...

    def heartbeat(self, machine: "GroupMachine", request: HeartbeatRequest) -> Decision:
        """Heartbeat."""
        ...

    def leave(self, machine: "GroupMachine", request: LeaveGroupRequest, now: Millis) -> Decision:
        """LeaveGroup."""
        ...


class GroupMachine(msgspec.Struct):
    """The groups of one shard."""

    settings: GroupSettings = msgspec.field(default_factory=GroupSettings)
    kinds: tuple[Kind, ...] = ()
    classic_members: ClassicMemberHandler | None = None
    groups: Map[str, Group] = msgspec.field(default_factory=Map)
    offsets: Offsets = msgspec.field(default_factory=Offsets)
    new_groups: dict[str, ClassicGroup] = msgspec.field(default_factory=dict)
    is_live: bool = False
    notes: RecentEvents = msgspec.field(default_factory=lambda: RecentEvents(lambda: NO_TIMESTAMP))
    _replays: dict[type[Message], ReplayKind] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in self.kinds:
            self._replays.update(kind.replays)

    # -- the log -------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Replay a record; types of unknown kinds are skipped."""
        value = None if record.value is None else record.value.message
        match record.key:
            case OffsetCommitKey() as key:
                assert value is None or isinstance(value, OffsetCommitValue)
                self._replay_offset(key, value, origin)
            case GroupMetadataKey() as key:
                assert value is None or isinstance(value, GroupMetadataValue)
                self._replay_classic(key.group, value)
            case key:
                replay = self._replays.get(type(key))
                if replay is not None:
                    before = self.groups
                    replay(self, key, value)
                    if self.is_live:
                        self.notes.replayed(before, self.groups, key)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: Origin
    ) -> None:
        if value is not None and key.group not in self.groups:
            self.put(ClassicGroup(key.group))
        producer = NO_PRODUCER_ID if origin.producer is None else origin.producer.id
        self.offsets.replay(key, value, origin.offset, producer)

    def commits(self, group: str, found: Commit, now: Millis) -> OffsetCommits | None:
        """Return the offsets of a commit, to be written; None if there are none."""
        if not found.topics:
            return None
        return OffsetCommits(group, found.topics, now, found.expires, self._take_commits)

    def _take_commits(self, commits: OffsetCommits, first: Offset, producer: int) -> None:
        """Apply the offsets of a commit, as `replay` applies the record of each."""
        if commits.group not in self.groups:
            self.put(ClassicGroup(commits.group))
        self.offsets.take(commits, first, producer)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Replay a record of a classic group.

        While live, its content was just decided by the group and is only kept for comparison and
        for the next load. While loading, the record is the group.
        """
        new_groups = self.new_groups.pop(group_id, None)
        present = self.groups.get(group_id)
        if value is None:
            if isinstance(present, ClassicGroup):
                self.forget(group_id)
            return
        if not self.is_live:
            self.put(ClassicGroup.load(group_id, value))
            return
        group = new_groups if new_groups is not None else present
        if not isinstance(group, ClassicGroup):
            group = ClassicGroup.load(group_id, value)
        group.durable = value
        self.put(group)

    def on_marker(self, producer: Producer, marker: EndTxnMarker, offset: Offset) -> None:
        """Apply the offsets of a transaction, or discard them."""
        self.offsets.end_transaction(producer.id, is_commit=marker.is_commit)

    def put(self, group: Group) -> None:
        """Store a group, replacing one with the same id."""
        if self.groups.get(group.group_id) is not group:
            self.groups = self.groups.set(group.group_id, group)

    def forget(self, group_id: str) -> None:
        """Remove a group; its offsets have records of their own."""
        if group_id in self.groups:
            self.groups = self.groups.delete(group_id)
            self.notes.forget(group_id)

    def view(self) -> GroupsView:
        """Return the current state for readers."""
        return GroupsView(self.groups, self.offsets.groups)

    # -- life ----------------------------------------------------------------

    def on_loaded(self, now: Millis) -> Decision:
        """Start: every member gets its whole session timeout."""
        self.is_live = True
        self.notes.begin(now)
        effects = Effects(self.settings, now)
        for group_id in sorted(self.groups):
            group = self.groups[group_id]
            if isinstance(group, ClassicGroup):
                self._begin_classic(group, effects)
        timers: list[TimerChange] = list(effects.timers)
        for kind in self.kinds:
            timers.extend(kind.on_loaded(self, now))
        timers.append(SetTimer((EXPIRY,), self.settings.offsets_retention_check_interval_ms))
        return Decision(effects.records, answers=effects.answers, timers=timers)

    def _begin_classic(self, group: ClassicGroup, effects: Effects) -> None:
        for member in group.members.values():
            effects.expect_heartbeat(group, member)
        if len(group.members) > self.settings.max_size:
            prepare_rebalance(group, "the group is larger than group.max.size", effects)

    def on_timer(self, key: TimerKey, times: Times) -> Decision:
        """Handle a timer."""
        kind = key[0]
        if kind == EXPIRY:
            return self._expire(times.expiry)
        if kind not in (SESSION, JOIN, SYNC):
            for other in self.kinds:
                if kind in other.timers:
                    if len(key) == MEMBER_KEY:
                        self.notes.blame(key[1], key[2], removal_reason(kind))
                    return other.timers[kind](self, key, times.stamp)
            return NOTHING
        group = self.classic(key[1])
        if group is None:
            return NOTHING
        effects = Effects(self.settings, times.stamp)
        if kind == SESSION:
            on_session_timeout(group, key[2], effects)
        elif kind == JOIN:
            on_join_timer(group, effects)
        else:
            on_sync_timer(group, effects)
        return effects.decision(None)

    def _expire(self, now: Millis) -> Decision:
        again = [SetTimer((EXPIRY,), self.settings.offsets_retention_check_interval_ms)]
        records = list(expire_offsets(self.groups, self.offsets, self.settings, now))
        return Decision(
            records,
            timers=again,
            may_split=True,
            refused=lambda fault: Decision(timers=again),
        )

    def on_unloaded(self) -> Sequence[ReplyFuture]:
        """Return the futures of members that wait for a generation or an assignment."""
        futures: list[ReplyFuture] = []
        for group in (*self.groups.values(), *self.new_groups.values()):
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    waiting = (member.awaiting_join, member.awaiting_sync)
                    futures.extend(future for future in waiting if future is not None)
                    member.awaiting_join = member.awaiting_sync = None
        return futures

    def kind(self, kind_type: type[KindT]) -> KindT:
        """Return the kind of this type; every shard has the same kinds."""
        return next(kind for kind in self.kinds if isinstance(kind, kind_type))

    # -- classic groups ------------------------------------------------------

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def classic_handler_of(self, group_id: str) -> ClassicMemberHandler | None:
        """Return the handler of classic members in a group of another kind."""
        classic_members = self.classic_members
        return (
            classic_members
            if classic_members is not None and classic_members.hosts(self, group_id)
            else None
        )

    def join_classic(self, joining: Joining, now: Millis) -> Decision:
        """Add a member to a classic group, and create the group if it is missing.

        An empty group of another kind is replaced: its tombstones precede the record.
        """
        request, group_id = joining.request, joining.request.group_id
        host = self.classic_handler_of(group_id)
        if host is not None:
            return host.join(self, joining, now)
        present = self.groups.get(group_id)
        effects = Effects(self.settings, now)
        if present is not None and not isinstance(present, ClassicGroup):
            if not present.is_empty():
                code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                effects.answer(joining.future, join_refused(code, UNKNOWN_MEMBER))
                return effects.decision()
        elif present is not None:
            join(present, joining, effects)
            return effects.decision()
        if request.member_id != UNKNOWN_MEMBER:
            refused = join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            effects.answer(joining.future, refused)
            return effects.decision()
        return self._begin(joining, present, effects)

    def _begin(self, joining: Joining, present: Group | None, effects: Effects) -> Decision:
        """Create a group: an empty record stores it, whatever its first member does."""
        group = ClassicGroup(joining.request.group_id, state_since=effects.now)
        join(group, joining, effects)
        if present is not None:
            effects.records.extend(present.tombstones())
        effects.records.append(group.empty_record())
        self.new_groups[group.group_id] = group

        def refused(fault: Fault) -> Decision:
            self.new_groups.pop(group.group_id, None)
            reply = join_refused(fault.code, UNKNOWN_MEMBER)
            return Decision(answers=[Answer(joining.future, reply)])

        effects.refused = refused
        return effects.decision()


__all__ = ["EXPIRY", "ClassicState", "GroupMachine", "GroupsView", "Kind", "ReplayKind"]
