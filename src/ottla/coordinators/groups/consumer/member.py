"""A member of a consumer group (KIP-848): its metadata, its epoch and its assignment.

    STABLE --new target, must revoke--> UNREVOKED --client has revoked--> UNRELEASED or STABLE
       ^                                                                     |
       +------------------------ others have revoked what it waits for ------+

``assigned`` are the partitions it may read now. It was asked to revoke ``pending_revocation`` and
may still read them: both count as held, so that no other member gets them (one owner per
partition).
"""

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.classic.group import Protocols
from ottla.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Partitions
from ottla.coordinators.groups.epoch_group.member import LEAVE_EPOCH, MemberState
from ottla.protocol.internal.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)


class ClassicMetadata(msgspec.Struct, frozen=True):
    """What a member that uses the classic protocol sent when it joined."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMember(msgspec.Struct, frozen=True):
    """A member. ``topic_names`` is sorted; ``topic_regex`` is empty if there is none."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has exactly its target."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    # -- records -------------------------------------------------------------

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        """Return the member with the metadata of a record."""
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None if classic is None else _classic(classic),
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """Return its metadata as the value of a record."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=None if self.classic is None else _to_record(self.classic),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        """Return the member with the epoch and partitions of a record.

        A state that a newer version wrote is `MemberState.UNKNOWN`: such a member must rejoin
        without partitions.
        """
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=from_topics(value.assigned_partitions),
            pending_revocation=from_topics(value.partitions_pending_revocation),
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return its epoch and partitions as the value of a record."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=to_topics(self.assigned),
            partitions_pending_revocation=to_topics(self.pending_revocation),
        )

    def without_assignment(self) -> "ConsumerMember":
        """Return the member without epoch and partitions: the tombstone of its assignment."""
        return replace(
            self,
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )


def _classic(value: ClassicMemberMetadata) -> ClassicMetadata:
    protocols = tuple((each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return ClassicMetadata(value.session_timeout_ms, protocols)


def _to_record(classic: ClassicMetadata) -> ClassicMemberMetadata:
    protocols = [ClassicProtocol(name, metadata) for name, metadata in classic.protocols]
    return ClassicMemberMetadata(classic.session_timeout_ms, protocols)


def from_topics(topics: list[TopicPartitions]) -> Partitions:
    """Return the partitions of a record, by topic id."""
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}


def to_topics(partitions: Partitions) -> list[TopicPartitions]:
    """Return partitions as a record lists them, in order."""
    return [TopicPartitions(each, sorted(partitions[each])) for each in sorted(partitions)]
