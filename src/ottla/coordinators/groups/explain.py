"""Explain a group in sentences: why it rebalanced, and which members it waits for. Pure.

`story_of` collects the facts about a group of any kind; `sentences` puts them into words. They are
separate so that tests can check the words and programs can use the facts.

Both are made in one turn of the event loop, so they name at most `WAITS_MAX` members and
`_NAMED_MAX` partitions, and count the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.kind import Group, GroupType
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.recent_events import (
    EventKind,
    MemberInfo,
    Note,
    RecentEvents,
    member_words,
)
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import pending_of
from ottla.metadata.image import Image
from ottla.protocol.types import NO_TIMESTAMP, Millis, Uuid

_NAMED_MAX: Final = 8
"""At most this many partitions are named in a sentence; a longer list is counted."""

WAITS_MAX: Final = 100
"""At most this many members are named that a group waits for; more are counted."""

_MEMBER_LENGTH_MAX: Final = 500
"""Characters that a member is named by: clients choose their ids."""

_Member = TypeVar("_Member")


class Waiting(msgspec.Struct, frozen=True):
    """A member or resource that a group waits for, and why. ``until`` is when it stops waiting."""

    who: str
    what: str
    since: Millis | None = None
    until: Millis | None = None


class Story(msgspec.Struct, frozen=True):
    """A group and the events before it. ``known_since``: when its events began to be recorded."""

    group_id: str
    kind: str
    state: str
    members: int
    epoch: int
    now: Millis
    known_since: Millis
    state_since: Millis | None = None
    notes: tuple[Note, ...] = ()
    waiting: tuple[Waiting, ...] = ()


# -- gathering -----------------------------------------------------------------------------


def story_of(machine: GroupMachine, group_id: str, image: Image, now: Millis) -> Story | None:
    """Return the story of a group of this shard; None if there is no such group."""
    group = machine.groups.get(group_id)
    if group is None:
        return None
    notes, since = machine.notes.of(group_id), None
    if isinstance(group, ClassicGroup):
        notes, since = group.notes, _known(group.state_since)
    return Story(
        group_id=group_id,
        kind=group.type.value,
        state=group.state_name(),
        members=len(getattr(group, "members", ())),
        epoch=group.generation if isinstance(group, ClassicGroup) else getattr(group, "epoch", 0),
        now=now,
        known_since=machine.notes.began_at,
        state_since=since,
        notes=notes,
        waiting=tuple(waits_of(group, machine.notes, image)),
    )


def waits_of(group: Group, notes: RecentEvents, image: Image) -> Iterator[Waiting]:
    """Yield what a group of any kind waits for."""
    match group:
        case ClassicGroup():
            yield from classic_waits(group)
        case ConsumerGroup():
            yield from consumer_waits(group, notes, image)
        case ShareGroup():
            yield from share_waits(group, notes, image)
        case _ if group.type is GroupType.STREAMS:
            yield from streams_waits(group, notes)


def _known(at: Millis) -> Millis | None:
    return None if at == NO_TIMESTAMP else at


def classic_waits(group: ClassicGroup) -> Iterator[Waiting]:
    """Yield what a classic group waits for: members that have not rejoined, or its leader."""
    since = _known(group.state_since)
    if group.state is ClassicState.PREPARING_REBALANCE:
        until = None if since is None else Millis(since + group.rebalance_timeout_ms())
        absent = [member for member in group.members.values() if member.awaiting_join is None]
        for member in absent[:WAITS_MAX]:
            yield Waiting(_classic_words(member), "to join again", since, until)
        yield from _others(len(absent), "to join again")
        for member_id in nsmallest(WAITS_MAX, group.pending_join):
            what = "to come back with the id it got"
            yield Waiting(f"member {_bounded(member_id)}", what, since)
        yield from _others(len(group.pending_join), "to come back with the ids they got")
        if group.initial_delay is not None:
            yield Waiting("more members", "to join before the first generation", since)
    elif group.state is ClassicState.COMPLETING_REBALANCE:
        leader = None if group.leader_id is None else group.members.get(group.leader_id)
        if leader is not None and leader.awaiting_sync is None:
            what = "as the leader to say who reads what"
            yield Waiting(_classic_words(leader), what, since)


def _classic_words(member: ClassicMember) -> str:
    words = member_words(member.member_id, member.client_id, member.client_host)
    return f"member {_bounded(words)}"


def _bounded(words: str) -> str:
    is_long = len(words) > _MEMBER_LENGTH_MAX
    return words[:_MEMBER_LENGTH_MAX] + "..." if is_long else words


def _others(count: int, what: str) -> Iterator[Waiting]:
    """Yield how many of ``count`` members `WAITS_MAX` leaves unnamed, if any."""
    if count > WAITS_MAX:
        yield Waiting(f"{count - WAITS_MAX} more members", what)


def _first(
    members: Mapping[str, _Member], is_waited_for: Callable[[_Member], bool]
) -> tuple[list[tuple[str, _Member]], int]:
    """Return the first members that a group waits for, by id, and how many it waits for."""
    ids = [member_id for member_id, member in members.items() if is_waited_for(member)]
    return [(member_id, members[member_id]) for member_id in nsmallest(WAITS_MAX, ids)], len(ids)


def consumer_waits(group: ConsumerGroup, notes: RecentEvents, image: Image) -> Iterator[Waiting]:
    """Yield what a consumer group waits for: members that must revoke, or send a heartbeat."""
    first, count = _first(group.members, lambda member: _is_behind(member, group.assignment_epoch))
    for member_id, member in first:
        since = notes.moved_at(group.group_id, member_id)
        if member.state is MemberState.UNREVOKED:
            what = f"to give up {_revoked(member, image)}"
            is_timed = since is not None and member.rebalance_timeout_ms > 0
            until = Millis((since or 0) + member.rebalance_timeout_ms) if is_timed else None
            yield Waiting(_words(member_id, member), what, since, until)
        else:
            what = f"to ask for its assignment of epoch {group.assignment_epoch}"
            yield Waiting(_words(member_id, member), what, since)
    yield from _others(count, "to give up partitions or to ask for their assignment")


def _is_behind(member: Any, epoch: int) -> bool:  # noqa: ANN401 - of a consumer or streams group
    """Say whether a member must revoke, or send a heartbeat to reach ``epoch``."""
    is_stable = member.state == MemberState.STABLE
    return bool(member.state == MemberState.UNREVOKED or (is_stable and member.epoch < epoch))


def _revoked(member: ConsumerMember, image: Image) -> str:
    """Return the partitions that a member must give up, in words."""
    pending = member.pending_revocation
    first = (
        (topic_id, partition_id)
        for topic_id in nsmallest(_NAMED_MAX, pending)
        for partition_id in nsmallest(_NAMED_MAX, pending[topic_id])
    )
    return _partitions(list(islice(first, _NAMED_MAX)), sum(map(len, pending.values())), image)


def share_waits(group: ShareGroup, notes: RecentEvents, image: Image) -> Iterator[Waiting]:
    """Yield what a share group waits for: state to be initialized, or heartbeats of members."""
    pending = pending_of(group, image)
    if pending:
        words = _partitions(nsmallest(_NAMED_MAX, pending), len(pending), image)
        yield Waiting("the share coordinator", f"to set up the state of {words}")
    epoch = group.assignment_epoch
    first, count = _first(group.members, lambda member: member.epoch < epoch)
    what = f"to ask for its assignment of epoch {epoch}"
    for member_id, member in first:
        since = notes.moved_at(group.group_id, member_id)
        yield Waiting(_words(member_id, member), what, since)
    yield from _others(count, f"to ask for their assignment of epoch {epoch}")


def streams_waits(group: Any, notes: RecentEvents) -> Iterator[Waiting]:  # noqa: ANN401
    """Yield what a streams group waits for: missing topics, or members with old tasks.

    The group is read by attribute names only.
    """
    if group.state_name() == "NotReady":
        yield Waiting("the topics of its topology", "to be there as it needs them")
    first, count = _first(group.members, lambda member: _is_behind(member, group.assignment_epoch))
    for member_id, member in first:
        since = notes.moved_at(group.group_id, member_id)
        if member.state == MemberState.UNREVOKED:
            yield Waiting(_words(member_id, member), "to give up tasks", since)
        else:
            what = f"to ask for its tasks of epoch {group.assignment_epoch}"
            yield Waiting(_words(member_id, member), what, since)
    yield from _others(count, "to give up tasks or to ask for theirs")


def _words(member_id: str, member: MemberInfo) -> str:
    return f"member {_bounded(member_words(member_id, member.client_id, member.client_host))}"


def _partitions(first: Sequence[tuple[Uuid, int]], count: int, image: Image) -> str:
    """Return the first of ``count`` partitions by name; those of deleted topics have none."""
    topics = image.topics.by_id
    names = [
        f"{topics[topic_id].name if topic_id in topics else 'a deleted topic'}-{index}"
        for topic_id, index in first
    ]
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


# -- words ---------------------------------------------------------------------------------


TimeWords: TypeAlias = Callable[[Millis], str]
"""Formats a time."""


def sentences(story: Story, time_words: TimeWords) -> list[str]:
    """Return the explanation: the state of the group, why it rebalanced, what it waits for."""
    words = _Words(story, time_words)
    return [words.what(), words.why(), *words.whom(), *words.lately()]


_BEGINNINGS: Final = frozenset({EventKind.EPOCH, EventKind.REBALANCE})
_MEMBERS: Final = frozenset({EventKind.JOINED, EventKind.LEFT, EventKind.CHANGED})


class _Words(NamedTuple):
    story: Story
    time_words: TimeWords

    def what(self) -> str:
        """Return the state of the group."""
        story = self.story
        word = "generation" if story.kind == "classic" else "epoch"
        count = "1 member" if story.members == 1 else f"{story.members} members"
        since = "" if story.state_since is None else f" since {self._ago(story.state_since)}"
        return (
            f"{story.group_id} is a {story.kind} group, {story.state}{since}, "
            f"with {count} in {word} {story.epoch}."
        )

    def why(self) -> str:
        """Return why it rebalanced last."""
        story = self.story
        last = next((note for note in reversed(story.notes) if note.kind in _BEGINNINGS), None)
        if last is not None:
            return f"It rebalanced last at {self._ago(last.at)}: {'; '.join(_causes(story, last))}."
        if story.known_since == NO_TIMESTAMP:
            return "Why it rebalanced last is not known."
        known = self._ago(story.known_since)
        return f"It has not rebalanced since this broker coordinates it: {known}."

    def whom(self) -> Iterator[str]:
        """Return what it waits for."""
        if not self.story.waiting:
            yield "It waits for no member."
        for each in self.story.waiting:
            since = "" if each.since is None else f", since {self._ago(each.since)}"
            until = "" if each.until is None else f", until {self.time_words(each.until)}"
            yield f"It waits for {each.who} {each.what}{since}{until}."

    def lately(self) -> Iterator[str]:
        """List the recent events."""
        if self.story.notes:
            yield "Lately:"
        for note in self.story.notes:
            yield f"  {self.time_words(note.at)}  {note.text}"

    def _ago(self, at: Millis) -> str:
        return f"{self.time_words(at)} ({span_words(max(0, self.story.now - at))} ago)"


def _causes(story: Story, last: Note) -> list[str]:
    """Return the cause of a rebalance: the changes since the one before it."""
    if last.kind is EventKind.REBALANCE:
        return [last.text]
    found: list[str] = []
    at = next(at for at, note in enumerate(story.notes) if note is last)
    for note in reversed(story.notes[:at]):
        if note.kind is EventKind.EPOCH:
            break
        if note.kind in _MEMBERS:
            found.append(note.text)
    return found[::-1] or ["the topics that it reads, or its settings, changed"]


def span_words(ms: int) -> str:
    """Return a duration in the unit that a person would use."""
    seconds = ms // 1000
    if seconds < 120:
        return f"{ms / 1000:.1f} s" if seconds < 10 else f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"
