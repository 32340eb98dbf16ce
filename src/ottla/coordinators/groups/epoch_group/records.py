"""The records of a group with epochs, and how each one changes a group.

`EpochRecords.replayed` is the only way a group changes: a decision applies its records to its
draft as the shard will apply them to the state, and loading a log applies them once more.
"""

from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.group import EpochGroup, ExclusiveGroup
from ottla.coordinators.groups.epoch_group.member import EpochMember, ReconciledMember
from ottla.coordinators.groups.epoch_group.record_keys import RecordKeys
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.schema import Message

VALUE_VERSION: Final = 0

GroupT = TypeVar("GroupT", bound=EpochGroup[Any, Any])
ExclusiveT = TypeVar("ExclusiveT", bound=ExclusiveGroup[Any, Any, Any])
MemberT = TypeVar("MemberT", bound=EpochMember)
ReconciledT = TypeVar("ReconciledT", bound=ReconciledMember)
TargetT = TypeVar("TargetT")


def record(key: Message, value: Message) -> CoordinatorRecord:
    """Return a record with a value of the version that is written."""
    return CoordinatorRecord(key, Versioned(value, VALUE_VERSION))


class EpochRecords(Generic[GroupT, MemberT, TargetT]):
    """Writes and replays the records of one kind of group.

    ``target_epoch_value`` is the type of the value that holds the assignment epoch.
    """

    def __init__(self, keys: RecordKeys, target_epoch_value: type[Any]) -> None:
        self.keys = keys
        self._target_epoch_value = target_epoch_value

    # -- each kind -----------------------------------------------------------

    def new_group(self, group_id: str) -> GroupT:
        """Return a group without members."""
        raise NotImplementedError

    def new_member(self, member_id: str) -> MemberT:
        """Return a member without metadata and assignment."""
        raise NotImplementedError

    def target_value(self, target: TargetT) -> Message:
        """Return a target as the value of a record."""
        raise NotImplementedError

    def read_target(self, value: Any) -> TargetT:  # noqa: ANN401 - each kind has its own
        """Return the target in the value of a record."""
        raise NotImplementedError

    def with_epoch(self, group: GroupT, value: Any) -> GroupT:  # noqa: ANN401 - as above
        """Return the group with the epoch in the value of a record."""
        return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)

    def with_other(self, group: GroupT, key: Message, value: Message | None) -> GroupT:
        """Return the group after a record that only this kind of group has."""
        return group

    # -- write ---------------------------------------------------------------

    def member_record(self, group_id: str, member: MemberT) -> CoordinatorRecord:
        """Return the metadata of a member."""
        return record(self.keys.member(group_id, member.member_id), member.metadata_value())

    def assignment_record(self, group_id: str, member: MemberT) -> CoordinatorRecord:
        """Return the epoch and the assignment of a member."""
        return record(self.keys.assignment(group_id, member.member_id), member.assignment_value())

    def target_record(self, group_id: str, member_id: str, target: TargetT) -> CoordinatorRecord:
        """Return the target of a member."""
        return record(self.keys.target(group_id, member_id), self.target_value(target))

    def target_epoch_record(self, group_id: str, epoch: int) -> CoordinatorRecord:
        """Return the epoch that all targets were computed for."""
        return record(self.keys.target_epoch(group_id), self._target_epoch_value(epoch))

    # -- replay --------------------------------------------------------------

    def replayed(self, group: GroupT, key: Message, value: Any) -> GroupT | None:  # noqa: ANN401
        """Return the group after a record; None where the record deletes the group.

        ``value`` is None for a tombstone, else the type that belongs to the key.
        """
        keys, kind = self.keys, type(key)
        if kind is keys.group:
            return None if value is None else self.with_epoch(group, value)
        if kind is keys.target_epoch:
            return self.with_target_epoch(group, value)
        if kind in (keys.member, keys.assignment, keys.target):
            return self._replay_member(group, key, value)
        return self.with_other(group, key, value)

    def _replay_member(self, group: GroupT, key: Any, value: Any) -> GroupT:  # noqa: ANN401
        member_id: str = key.member_id
        if type(key) is self.keys.target:
            return group.with_target(member_id, None if value is None else self.read_target(value))
        if type(key) is self.keys.assignment:
            return self.with_assignment(group, member_id, value)
        if value is None:
            return group.without_member(member_id)
        member = group.members.get(member_id) or self.new_member(member_id)
        return group.with_member(member.with_metadata(value))

    def with_target_epoch(self, group: GroupT, value: Any) -> GroupT:  # noqa: ANN401 - as above
        """Return the group with the epoch of its targets; without targets it is -1."""
        return replace(group, assignment_epoch=-1 if value is None else value.assignment_epoch)

    def with_assignment(self, group: GroupT, member_id: str, value: Any) -> GroupT:  # noqa: ANN401
        """Return the group with the assignment of a member; a tombstone takes it away."""
        raise NotImplementedError


class ExclusiveRecords(EpochRecords[ExclusiveT, ReconciledT, TargetT]):
    """Writes and replays the records of a kind of group with one owner per partition or task."""

    def with_assignment(
        self,
        group: ExclusiveT,
        member_id: str,
        value: Any,  # noqa: ANN401 - as above
    ) -> ExclusiveT:
        """Return the group with the assignment of a member; a tombstone takes it away."""
        member = group.members.get(member_id)
        if value is not None:
            member = member or self.new_member(member_id)
            return group.with_member(member.with_assignment(value))
        return group if member is None else group.with_member(member.without_assignment())
