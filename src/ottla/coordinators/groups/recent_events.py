"""The recent events of groups, for the page that explains a group. No decision depends on them.

Events are kept only in memory: a shard that was just loaded has none. At most `EVENTS_MAX` are kept
per group, and of at most `GROUPS_MAX` groups; the oldest are dropped first.

    JOINED, LEFT, CHANGED   a member joined, left, or changed its subscription
    EPOCH                   the events before it began another epoch with new targets
    REBALANCE, SETTLED      a classic group asked its members to rejoin; all have an assignment
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, cast

import msgspec

from ottla.coordinators.groups.kind import Group
from ottla.protocol.schema import Message
from ottla.protocol.types import NO_TIMESTAMP, Millis

EVENTS_MAX: Final = 24
GROUPS_MAX: Final = 10_000
TEXT_LENGTH_MAX: Final = 500
"""Characters of an event: subscriptions and names of clients may have a megabyte."""


class EventKind(enum.Enum):
    """What an event is about."""

    JOINED = "joined"
    LEFT = "left"
    CHANGED = "changed"
    EPOCH = "epoch"
    REBALANCE = "rebalance"
    SETTLED = "settled"


class Note(msgspec.Struct, frozen=True):
    """One event, as a complete phrase. ``at`` is wall time."""

    at: Millis
    kind: EventKind
    text: str


def noted(notes: tuple[Note, ...], note: Note) -> tuple[Note, ...]:
    """Return the events with one more, within the bounds."""
    if len(note.text) > TEXT_LENGTH_MAX:
        note = Note(note.at, note.kind, note.text[:TEXT_LENGTH_MAX] + "...")
    return (*notes, note)[-EVENTS_MAX:]


class MemberInfo(Protocol):
    """What members of every kind but the classic one have."""

    @property
    def client_id(self) -> str:
        """The id that its client chose."""
        ...

    @property
    def client_host(self) -> str:
        """The address of its client."""
        ...

    @property
    def epoch(self) -> int:
        """The assignment epoch that it has reached."""
        ...


class GroupInfo(Protocol):
    """What groups of every kind but the classic one have."""

    @property
    def group_id(self) -> str:
        """Its id."""
        ...

    @property
    def epoch(self) -> int:
        """Rises when members, subscriptions or topics change."""
        ...

    @property
    def members(self) -> Mapping[str, MemberInfo]:
        """Its members."""
        ...


def member_words(member_id: str, client_id: str, client_host: str) -> str:
    """Return a member as sentences name it."""
    return f"{member_id} (client {client_id} at {client_host.removeprefix('/')})"


def changes(
    before: GroupInfo | None, after: GroupInfo, member_id: str, why_gone: str
) -> Iterator[tuple[EventKind, str]]:
    """Yield what a record has changed about a group, or about one member, in words."""
    was = None if before is None else before.members.get(member_id)
    member = after.members.get(member_id)
    if member is not None:
        name = member_words(member_id, member.client_id, member.client_host)
        if was is None:
            yield EventKind.JOINED, f"member {name} joined"
        elif _subscription(was) != _subscription(member):
            wanted = ", ".join(_subscription(member)) or "nothing"
            yield EventKind.CHANGED, f"member {name} subscribes to {wanted} now"
    elif was is not None:
        name = member_words(member_id, was.client_id, was.client_host)
        yield EventKind.LEFT, f"member {name} {why_gone}"
    if after.epoch > (0 if before is None else before.epoch):
        yield EventKind.EPOCH, f"epoch {after.epoch} began"


def _subscription(member: MemberInfo) -> tuple[str, ...]:
    """Return the subscription of a member; members of streams groups have none."""
    names = tuple(getattr(member, "topic_names", ()))
    regex = getattr(member, "topic_regex", "")
    return (*names, *([f"/{regex}/"] if regex else ()))


def removal_reason(timer: str) -> str:
    """Return why a member was removed, by the kind of its timer."""
    if "session" in timer:
        return "was removed: it sent no heartbeat within its session timeout"
    return "was removed: it did not rejoin or revoke in time"


class _Kept(msgspec.Struct):
    """The events of one group. ``moved``: when each member last changed its epoch or state."""

    notes: tuple[Note, ...] = ()
    moved: dict[str, Millis] = msgspec.field(default_factory=dict)
    blamed: dict[str, str] = msgspec.field(default_factory=dict)


class RecentEvents:
    """The events of one shard. ``now`` is wall time."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self._now = now
        self._groups: dict[str, _Kept] = {}
        self.began_at = NO_TIMESTAMP

    def begin(self, now: Millis) -> None:
        """Note when the shard was loaded: earlier events are unknown."""
        self.began_at = now

    def blame(self, group_id: str, member_id: str, why: str) -> None:
        """Set why a member is about to be removed; used once."""
        self._kept(group_id).blamed = {member_id: why}

    def replayed(
        self, before: Mapping[str, Group], after: Mapping[str, Group], key: Message
    ) -> None:
        """Record what a record with this key has changed."""
        group_id: str = getattr(key, "group_id", "")
        member_id: str = getattr(key, "member_id", "")
        old, new = before.get(group_id), after.get(group_id)
        if new is None:
            self.forget(group_id)
            return
        was = None if old is None or old.type is not new.type else old
        self.changed(cast("GroupInfo | None", was), cast("GroupInfo", new), member_id)

    def changed(self, before: GroupInfo | None, after: GroupInfo, member_id: str) -> None:
        """Record what has changed about a group, or one of its members."""
        kept, now = self._kept(after.group_id), self._now()
        why_gone = kept.blamed.get(member_id, "left")
        for kind, text in changes(before, after, member_id, why_gone):
            kept.notes = noted(kept.notes, Note(now, kind, text))
        was = None if before is None else before.members.get(member_id)
        member = after.members.get(member_id)
        if member is None:
            kept.moved.pop(member_id, None)
            kept.blamed.pop(member_id, None)
        elif _place(was) != _place(member):
            kept.moved[member_id] = now

    def of(self, group_id: str) -> tuple[Note, ...]:
        """Return the events of a group, oldest first."""
        kept = self._groups.get(group_id)
        return () if kept is None else kept.notes

    def moved_at(self, group_id: str, member_id: str) -> Millis | None:
        """Return since when a member has its epoch and state."""
        kept = self._groups.get(group_id)
        return None if kept is None else kept.moved.get(member_id)

    def forget(self, group_id: str) -> None:
        """Remove a group."""
        self._groups.pop(group_id, None)

    def _kept(self, group_id: str) -> _Kept:
        """Return the events of a group, and make it the last to be dropped."""
        kept = self._groups.pop(group_id, None) or _Kept()
        self._groups[group_id] = kept
        while len(self._groups) > GROUPS_MAX:
            self._groups.pop(next(iter(self._groups)))
        return kept


def _place(member: MemberInfo | None) -> tuple[int, int] | None:
    if member is None:
        return None
    return member.epoch, int(getattr(member, "state", 0))
