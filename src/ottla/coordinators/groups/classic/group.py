"""A classic group: members agree on a protocol, and the leader among them assigns partitions.

    EMPTY --join--> PREPARING_REBALANCE --all joined, or timeout--> COMPLETING_REBALANCE
      ^                |        ^                                        |
      +--no members----+        +--join, leave, timeout--------+   SyncGroup of the leader
                                                               |         v
                                                               +------ STABLE

The log contains the group as of its last stable generation, or empty: `durable`. Everything else is
kept only in memory and starts from that when a shard is loaded.

Invariants: ``leader_id`` is a member, or None. ``static`` refers to members. The count of a
protocol in ``_supported`` is the number of members that offer it. A future is kept by one member
and answered once.
"""

import enum
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from ottla.coordinators.decision import ReplyFuture
from ottla.coordinators.groups.kind import Committer, GroupType
from ottla.coordinators.groups.recent_events import Note
from ottla.protocol.codec import decode_prefix
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.types import NO_TIMESTAMP, Millis

CONSUMER_PROTOCOL: Final = "consumer"
# The version that Kafka 4 writes; newer versions can be read.
VALUE_VERSION: Final = 3

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""The protocols that a member offers, preferred first: names and opaque metadata."""


class ClassicState(enum.Enum):
    """The states, by the names Kafka prints. ``DEAD`` is reported for an unknown group."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicMember(msgspec.Struct):
    """A member. ``is_new`` until its first generation: before that it cannot send heartbeats."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: ReplyFuture | None = None
    awaiting_sync: ReplyFuture | None = None

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for a protocol; empty if it does not offer the protocol."""
        return dict(self.protocols).get(protocol, b"")

    def has_satisfied_heartbeat(self) -> bool:
        """Whether no heartbeat is needed: its JoinGroup or SyncGroup request is waiting here."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )


class InitialDelay(msgspec.Struct):
    """How long the first rebalance waits for more members (KIP-134)."""

    delay_ms: int
    remaining_ms: int


class ClassicGroup(msgspec.Struct):
    """One classic group. `transition` and the methods below keep the invariants."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    previous_state: ClassicState = ClassicState.DEAD
    generation: int = 0
    protocol_type_or_none: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    state_since: Millis = NO_TIMESTAMP
    members: dict[str, ClassicMember] = msgspec.field(default_factory=dict)
    static: dict[str, str] = msgspec.field(default_factory=dict)
    pending_join: set[str] = msgspec.field(default_factory=set)
    pending_sync: set[str] = msgspec.field(default_factory=set)
    has_new_member: bool = False
    initial_delay: InitialDelay | None = None
    subscribed: frozenset[str] | None = None
    reason: str = ""
    notes: tuple[Note, ...] = ()
    durable: GroupMetadataValue | None = None
    _supported: dict[str, int] = msgspec.field(default_factory=dict)

    # -- as any group --------------------------------------------------------

    @property
    def type(self) -> GroupType:
        """A classic group."""
        return GroupType.CLASSIC

    def state_name(self) -> str:
        """Return its state as Kafka prints it."""
        return self.state.value

    def protocol_type(self) -> str:
        """Return the protocol type of its members; empty for a simple group."""
        return self.protocol_type_or_none or ""

    def member_count(self) -> int:
        """Return how many members it has."""
        return len(self.members)

    def is_empty(self) -> bool:
        """Whether it has no members; during a rebalance it has."""
        return self.state is ClassicState.EMPTY

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that this is a member, and still the one with its instance id (KIP-345)."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset_commit(self, committer: Committer) -> ErrorCode:
        """Check whether offsets may be committed.

        Without a generation only if the group is empty. Transactions of old clients name no member
        and are allowed at any time, as long as the fields they do set are right.
        """
        epoch, is_transactional = committer.epoch, committer.is_transactional
        if epoch < 0 and self.state is ClassicState.EMPTY:
            return ErrorCode.NONE
        if epoch >= 0 or committer.member_id or committer.instance_id is not None:
            code = self.check_member(committer.member_id, committer.instance_id)
            if code is not ErrorCode.NONE:
                return code
            if epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Allow every request: classic members do not identify themselves."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Allow it for consumers: they declare their topics, so other offsets may be deleted."""
        if self.is_empty() or self.protocol_type_or_none == CONSUMER_PROTOCOL:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def check_delete(self) -> ErrorCode:
        """Return NON_EMPTY_GROUP for a group with members; any other may be deleted."""
        return ErrorCode.NONE if self.is_empty() else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic.

        True for all topics if a subscription cannot be read.
        """
        if self.subscribed is not None:
            return topic in self.subscribed
        return self.protocol_type_or_none == CONSUMER_PROTOCOL

    def may_expire(self) -> bool:
        """Allow it: nothing is left of a group without members and offsets."""
        return True

    def expires_from(self, commit_timestamp: Millis) -> Millis | None:
        """Count from when the group became empty, or from the commit if it has no subscriptions."""
        if self.protocol_type_or_none is None:
            return commit_timestamp
        if self.state is ClassicState.EMPTY:
            return commit_timestamp if self.state_since == NO_TIMESTAMP else self.state_since
        if (
            self.protocol_type_or_none == CONSUMER_PROTOCOL
            and self.subscribed is not None
            and self.state is ClassicState.STABLE
        ):
            return commit_timestamp
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the record that removes the group."""
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    # -- members -------------------------------------------------------------

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a new member whose protocols are supported."""
        if member.instance_id is not None:
            assert member.instance_id not in self.static, "a static member is there already"
            self.static[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type_or_none = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending member id; return the member if there was one."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.static.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        return member

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id; the caller answers requests waiting under the old id."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.static[instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.pending_sync.discard(old_id)
        return member

    def offer(self, member: ClassicMember, protocols: Protocols) -> None:
        """Replace the protocols of a member."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def _count(self, protocols: Protocols, by: int) -> None:
        for name, _ in protocols:
            count = self._supported.get(name, 0) + by
            if count:
                self._supported[name] = count
            else:
                self._supported.pop(name, None)

    def has_all_joined(self) -> bool:
        """Whether every member has joined, and no pending member is expected."""
        return not self.pending_join and all(
            member.awaiting_join is not None for member in self.members.values()
        )

    def awaiting_join_count(self) -> int:
        """Return how many members wait for the next generation."""
        return sum(member.awaiting_join is not None for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    # -- protocols -----------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join."""
        offered = list(names)
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(offered)
        everybody = len(self.members)
        return protocol_type == self.protocol_type_or_none and any(
            self._supported.get(name, 0) == everybody for name in offered
        )

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer, among those all offer."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == everybody}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that consumers subscribe to; None if they cannot be known."""
        if self.protocol_type_or_none != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(_topics_of(member.metadata(self.protocol)))
        except ProtocolFault:
            return None
        return frozenset(topics)

    # -- generations ---------------------------------------------------------

    def transition(self, state: ClassicState, now: Millis) -> None:
        """Move to another state."""
        self.previous_state, self.state, self.state_since = self.state, state, now

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined, or elect another; return whether there is a leader."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = (each for each in self.members.values() if each.awaiting_join is not None)
        leader = next(joined, None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    def next_generation(self, now: Millis) -> None:
        """Begin a generation with the current members."""
        self.generation += 1
        self.pending_sync.clear()
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed = self.subscribed_topics()
        state = ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY
        self.transition(state, now)

    # -- the log -------------------------------------------------------------

    def record(self) -> CoordinatorRecord:
        """Return the record of the group in its current state."""
        protocol = self.protocol or ""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type(),
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=self.state_since,
            members=[_to_record(each, protocol) for each in self.members.values()],
        )
        return _group_record(self.group_id, value)

    def empty_record(self) -> CoordinatorRecord:
        """Return the first record of a new group, before its first generation."""
        value = GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=self.state_since
        )
        return _group_record(self.group_id, value)

    @classmethod
    def load(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """Return the group that a record describes: stable, or empty."""
        group = cls(
            group_id,
            state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
            generation=value.generation,
            protocol=value.protocol,
            state_since=Millis(value.current_state_timestamp),
            durable=value,
        )
        for each in value.members:
            group.add(_from_record(each, value.protocol or ""), value.protocol_type)
        group.protocol_type_or_none = value.protocol_type or None
        if value.leader in group.members:
            group.leader_id = value.leader
        group.subscribed = group.subscribed_topics()
        return group


def protocols_of(offered: Iterable[tuple[str, bytes]]) -> Protocols:
    """Return the protocols of a request; a repeated name counts once."""
    found: dict[str, bytes] = {}
    for name, metadata in offered:
        found.setdefault(name, bytes(metadata))
    return tuple(found.items())


def _topics_of(metadata: bytes) -> list[str]:
    """Read the topics of a consumer's subscription: every version starts like version 0."""
    if len(metadata) < 2:
        raise ProtocolFault("a subscription without version")
    message, _ = decode_prefix(ConsumerProtocolSubscription, 0, metadata, 2)
    return message.topics


def _group_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), Versioned(value, VALUE_VERSION))


def _to_record(member: ClassicMember, protocol: str) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def _from_record(member: MemberMetadata, protocol: str) -> ClassicMember:
    rebalance_timeout_ms = member.rebalance_timeout
    return ClassicMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        member.session_timeout,
        ((protocol, bytes(member.subscription)),),
        bytes(member.assignment),
    )
