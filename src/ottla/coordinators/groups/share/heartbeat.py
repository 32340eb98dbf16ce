"""ShareGroupHeartbeat: what is decided about the members of a share group.

    epoch 0   join, or join again          epoch -1  leave
    epoch n   go on; n is the member's epoch or, if the reply got lost, the one before

Where members, subscriptions or topics have changed, the group's epoch rises and targets are made
anew, in the same decision. A partition is read only once its state is initialized: what is not
yet is named in the reply, for the service to have it done (`decide_initialized`).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from ottla.coordinators.decision import CancelTimer, Decision, SetTimer, TimerChange
from ottla.coordinators.groups.consumer.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidHeartbeat,
    UnknownMember,
)
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.share.assignor import assign_shared
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.group import (
    NO_PLACES,
    Places,
    ShareGroup,
    ShareMember,
    by_topic,
    current_record,
    epoch_record,
    initialized_record,
    member_record,
    member_tombstones,
    replayed,
    target_records,
)
from ottla.metadata.image import Image
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

SESSION: Final = "share-session"
JOIN: Final = 0
LEAVE: Final = -1
MEMBER_ID_MAX: Final = 36
"""As long as a UUID is written; Kafka takes no longer id of a share member."""


class Beat(NamedTuple):
    """A heartbeat and where it comes from."""

    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str


class Beaten(NamedTuple):
    """The reply, and share partitions that have to be initialized, at which state epoch."""

    response: ShareGroupHeartbeatResponse
    pending: Places = NO_PLACES
    state_epoch: int = 0


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise `InvalidHeartbeat` for what no client of the protocol sends."""
    if not request.group_id.strip():
        raise InvalidHeartbeat("GroupId can't be empty.")
    if not request.member_id.strip():
        raise InvalidHeartbeat("MemberId can't be empty.")
    if len(request.member_id) > MEMBER_ID_MAX:
        raise InvalidHeartbeat(f"MemberId is longer than {MEMBER_ID_MAX} characters.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidHeartbeat("RackId can't be empty.")
    if request.member_epoch == JOIN and not request.subscribed_topic_names:
        raise InvalidHeartbeat("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE:
        raise InvalidHeartbeat("MemberEpoch is invalid.")


def decide_share_heartbeat(context: ShareContext, machine: GroupMachine, beat: Beat) -> Decision:
    """Answer with a `Beaten`. Raises a fault where the member is not what it thinks it is."""
    request = beat.request
    group = _group_of(machine, request)
    if request.member_epoch == LEAVE:
        return _leave(context, group, request)
    member = _member_of(context, group, request)
    draft = Draft(context, group)
    draft.take_member(_as_said(member, beat))
    draft.bring_up_to_date()
    changed = draft.reconcile(request.member_id)
    after = draft.group.members[request.member_id]
    is_told = request.member_epoch == JOIN or changed or request.member_epoch != after.epoch
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms(group.group_id),
        assignment=_assignment(after.assigned) if is_told else None,
    )
    timer = SetTimer(
        (SESSION, group.group_id, request.member_id), context.session_timeout_ms(group.group_id)
    )
    pending = pending_of(draft.group, context.image())
    return Decision(
        draft.records, reply=Beaten(response, pending, draft.group.epoch), timers=[timer]
    )


def _group_of(machine: GroupMachine, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    group = machine.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is not None:
        raise GroupIdNotFound(f"Group {request.group_id} is not a share group.")
    if request.member_epoch != JOIN:
        raise GroupIdNotFound(f"Share group {request.group_id} not found.")
    return ShareGroup(request.group_id)


def _member_of(
    context: ShareContext, group: ShareGroup, request: ShareGroupHeartbeatRequest
) -> ShareMember:
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != JOIN:
            raise UnknownMember(f"Member {request.member_id} is not a member of {group.group_id}.")
        if len(group.members) >= context.settings.max_size:
            raise GroupMaxSizeReached(f"The share group {group.group_id} takes no more members.")
        return ShareMember(request.member_id)
    is_late = request.member_epoch == member.previous_epoch
    if request.member_epoch not in (JOIN, member.epoch) and not is_late:
        raise FencedMemberEpoch(
            f"The member {request.member_id} is at epoch {member.epoch}, not at "
            f"{request.member_epoch}. The member must abandon all its partitions and rejoin."
        )
    return member


def _as_said(member: ShareMember, beat: Beat) -> ShareMember:
    request = beat.request
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
    )


def _leave(
    context: ShareContext, group: ShareGroup, request: ShareGroupHeartbeatRequest
) -> Decision:
    if request.member_id not in group.members:
        raise UnknownMember(f"Member {request.member_id} is not a member of {group.group_id}.")
    records, timers = remove_member(context, group, request.member_id)
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE)
    return Decision(records, reply=Beaten(response), timers=timers)


def remove_member(
    context: ShareContext, group: ShareGroup, member_id: str
) -> tuple[list[CoordinatorRecord], list[TimerChange]]:
    """Return what lets a member go: its tombstones, and a new epoch for the others."""
    draft = Draft(context, group)
    draft.write(member_tombstones(group.group_id, member_id))
    draft.raise_epoch()
    return draft.records, [CancelTimer((SESSION, group.group_id, member_id))]


def decide_initialized(
    context: ShareContext, machine: GroupMachine, group_id: str, done: Places
) -> Decision:
    """Note that share partitions have their state, so that members may read them."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ShareGroup) or done <= group.initialized:
        return Decision()
    draft = Draft(context, group)
    places = group.initialized | done
    draft.note_initialized(places)
    draft.raise_epoch()
    return Decision(draft.records)


def decide_uninitialized(
    context: ShareContext, machine: GroupMachine, group_id: str, gone: Places
) -> Decision:
    """Note that share partitions have no state any more."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not gone & group.initialized:
        return Decision()
    draft = Draft(context, group)
    draft.note_initialized(group.initialized - gone)
    draft.raise_epoch()
    return Decision(draft.records)


def decide_reset(
    context: ShareContext, machine: GroupMachine, group_id: str, done: Places
) -> Decision:
    """Note that share partitions have begun anew, at a state epoch one above the group's.

    A group that does not exist is created by this. Raises `GroupIdNotFound` where the id belongs
    to a group of another type by now.
    """
    group = machine.groups.get(group_id, ShareGroup(group_id))
    if not isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"Group {group_id} is not a share group.")
    draft = Draft(context, group)
    draft.note_initialized(group.initialized | done)
    draft.raise_epoch()
    return Decision(draft.records)


def pending_of(group: ShareGroup, image: Image) -> Places:
    """Return what members subscribe to and whose state does not exist yet."""
    wanted = places_of(image, group.subscribed())
    return wanted - group.initialized


def places_of(image: Image, names: Iterable[str]) -> Places:
    """Return all partitions of topics that are there."""
    topics = (image.topics.named(name) for name in names)
    return frozenset(
        (topic.id, index) for topic in topics if topic is not None for index in topic.partitions
    )


def _assignment(places: Places) -> Assignment:
    return Assignment([TopicPartitions(*each) for each in by_topic(places)])


class Draft:
    """A group while a decision is made: records, and the group as they will make it."""

    def __init__(self, context: ShareContext, group: ShareGroup) -> None:
        self.context = context
        self.group = group
        self.records: list[CoordinatorRecord] = []

    def write(self, records: Iterable[CoordinatorRecord]) -> None:
        """Add records and see what they come to."""
        for record in records:
            value = None if record.value is None else record.value.message
            changed = replayed(self.group, record.key, value)
            assert changed is not None, "a draft does not end its group"
            self.group = changed
            self.records.append(record)

    def take_member(self, member: ShareMember) -> None:
        """Take in what a member says of itself; a change of topics is one of the group."""
        present = self.group.members.get(member.member_id)
        if present == member:
            return
        self.write([member_record(self.group.group_id, member)])
        if present is None or present.topic_names != member.topic_names:
            self.raise_epoch()

    def bring_up_to_date(self) -> None:
        """Let the group rise where the topics that it reads have changed."""
        found = self.context.hashes.of_group(self.context.image(), self.group.subscribed())
        if found != self.group.metadata_hash:
            self.raise_epoch()

    def raise_epoch(self) -> None:
        """Begin a new epoch, with targets of its own."""
        group, context = self.group, self.context
        found = context.hashes.of_group(context.image(), group.subscribed())
        epoch = group.epoch + 1
        self.write([epoch_record(group.group_id, epoch, found)])
        targets = _targets(self.group, context.image())
        changed = {m: places for m, places in targets.items() if group.targets.get(m) != places}
        self.write(target_records(group.group_id, epoch, changed))

    def note_initialized(self, places: Places) -> None:
        """Say whose state exists, with the names that topics have or had."""
        topics = self.context.image().topics.by_id
        names = dict(self.group.topic_names)
        names.update({t: topics[t].name for t, _ in places if t in topics})
        self.write([initialized_record(self.group.group_id, places, names)])

    def reconcile(self, member_id: str) -> bool:
        """Let a member have its target; return whether that changed what it reads."""
        member = self.group.members[member_id]
        target = self.group.targets.get(member_id, NO_PLACES)
        if member.epoch == self.group.assignment_epoch and member.assigned == target:
            return False
        after = replace(
            member,
            epoch=self.group.assignment_epoch,
            previous_epoch=member.epoch,
            assigned=target,
        )
        self.write([current_record(self.group.group_id, after)])
        return member.assigned != target


def _targets(group: ShareGroup, image: Image) -> dict[str, Places]:
    ids = image.topics.ids
    subscriptions = {
        member.member_id: frozenset(ids[name] for name in member.topic_names if name in ids)
        for member in group.members.values()
    }
    known = places_of(image, group.subscribed()) & group.initialized
    return assign_shared(subscriptions, dict(by_topic(known)))
