"""The records of a streams group, and how each makes another group of one.

`replayed` is the only way a group changes: a decision applies its records to its draft as the
shard will apply them to the state, and loading a log applies them once more.
"""

from typing import Final

from msgspec.structs import replace

from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.tasks import TaskRoles, Tasks, by_subtopology, gathered
from ottla.coordinators.groups.streams.topology import Topology, read_topology, topology_value
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberTaskIds,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.schema import Message

VALUE_VERSION: Final = 0


def _record(key: Message, value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(key, Versioned(value, VALUE_VERSION))


def epoch_record(group: StreamsGroup) -> CoordinatorRecord:
    """Return the epoch of a group, and what it was made for."""
    configs = [LastAssignmentConfig(key, value) for key, value in group.configs]
    value = StreamsGroupMetadataValue(
        group.epoch, group.metadata_hash, group.validated_epoch, configs
    )
    return _record(StreamsGroupMetadataKey(group.group_id), value)


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    """Return what the group runs."""
    return _record(StreamsGroupTopologyKey(group_id), topology_value(topology))


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return what a member said of itself."""
    key = StreamsGroupMemberMetadataKey(group_id, member.member_id)
    return _record(key, member.description())


def placement_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return a member's epoch and tasks."""
    key = StreamsGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return _record(key, member.placement())


def target_record(group_id: str, member_id: str, target: TaskRoles) -> CoordinatorRecord:
    """Return what a member shall have."""
    key = StreamsGroupTargetAssignmentMemberKey(group_id, member_id)
    value = StreamsGroupTargetAssignmentMemberValue(
        _listed(target.active), _listed(target.standby), _listed(target.warmup)
    )
    return _record(key, value)


def _listed(tasks: Tasks) -> list[StreamsGroupTargetAssignmentMemberTaskIds]:
    return [StreamsGroupTargetAssignmentMemberTaskIds(*each) for each in by_subtopology(tasks)]


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """Return the epoch that all targets were made for."""
    value = StreamsGroupTargetAssignmentMetadataValue(epoch)
    return _record(StreamsGroupTargetAssignmentMetadataKey(group_id), value)


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member, the member itself last."""
    keys = (
        StreamsGroupCurrentMemberAssignmentKey(group_id, member_id),
        StreamsGroupTargetAssignmentMemberKey(group_id, member_id),
        StreamsGroupMemberMetadataKey(group_id, member_id),
    )
    return [CoordinatorRecord(key, None) for key in keys]


# -- replay ------------------------------------------------------------------------------


def replayed(group: StreamsGroup, key: Message, value: Message | None) -> StreamsGroup | None:
    """Return the group that a record makes of this one; None: there is no such group any more."""
    changed: StreamsGroup | None = group
    match key:
        case StreamsGroupMetadataKey():
            changed = _epoch(group, value)
        case StreamsGroupTopologyKey():
            changed = _topology(group, value)
        case StreamsGroupTargetAssignmentMetadataKey():
            changed = _target_epoch(group, value)
        case StreamsGroupMemberMetadataKey():
            changed = _member(group, key.member_id, value)
        case StreamsGroupCurrentMemberAssignmentKey():
            changed = _placement(group, key.member_id, value)
        case StreamsGroupTargetAssignmentMemberKey():
            changed = _target(group, key.member_id, value)
    return changed


def _epoch(group: StreamsGroup, value: Message | None) -> StreamsGroup | None:
    if value is None:
        return None
    assert isinstance(value, StreamsGroupMetadataValue)
    configs = value.last_assignment_configs or ()
    return replace(
        group,
        epoch=value.epoch,
        metadata_hash=value.metadata_hash,
        validated_epoch=value.validated_topology_epoch,
        configs=tuple(sorted((each.key, each.value) for each in configs)),
    )


def _topology(group: StreamsGroup, value: Message | None) -> StreamsGroup:
    if value is None:
        return replace(group, topology=None)
    assert isinstance(value, StreamsGroupTopologyValue)
    return replace(group, topology=read_topology(value))


def _target_epoch(group: StreamsGroup, value: Message | None) -> StreamsGroup:
    if value is None:
        return replace(group, assignment_epoch=-1)
    assert isinstance(value, StreamsGroupTargetAssignmentMetadataValue)
    return replace(group, assignment_epoch=value.assignment_epoch)


def _member(group: StreamsGroup, member_id: str, value: Message | None) -> StreamsGroup:
    if value is None:
        return group.without_member(member_id)
    assert isinstance(value, StreamsGroupMemberMetadataValue)
    member = group.members.get(member_id) or StreamsMember(member_id)
    return group.with_member(member.described_by(value))


def _placement(group: StreamsGroup, member_id: str, value: Message | None) -> StreamsGroup:
    member = group.members.get(member_id)
    if value is None:
        return group if member is None else group.with_member(member.displaced())
    assert isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
    return group.with_member((member or StreamsMember(member_id)).placed_by(value))


def _target(group: StreamsGroup, member_id: str, value: Message | None) -> StreamsGroup:
    if value is not None:
        assert isinstance(value, StreamsGroupTargetAssignmentMemberValue)
        target = TaskRoles(
            gathered(value.active_tasks),
            gathered(value.standby_tasks),
            gathered(value.warmup_tasks),
        )
        return replace(group, targets=group.targets.set(member_id, target))
    if member_id in group.targets:
        return replace(group, targets=group.targets.delete(member_id))
    return group
