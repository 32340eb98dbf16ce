"""The records of a streams group."""

from typing import Final

from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.records import ExclusiveRecords, record
from ottla.coordinators.groups.streams.group import KEYS, StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.tasks import TaskRoles, Tasks, by_subtopology, gathered
from ottla.coordinators.groups.streams.topology import Topology, read_topology, topology_value
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberTaskIds,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.schema import Message


def epoch_record(group: StreamsGroup) -> CoordinatorRecord:
    """Return the epoch of a group, and what it is based on."""
    configs = [LastAssignmentConfig(key, value) for key, value in group.configs]
    value = StreamsGroupMetadataValue(
        group.epoch, group.metadata_hash, group.validated_epoch, configs
    )
    return record(StreamsGroupMetadataKey(group.group_id), value)


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    """Return the topology of a group."""
    return record(StreamsGroupTopologyKey(group_id), topology_value(topology))


class StreamsRecords(ExclusiveRecords[StreamsGroup, StreamsMember, TaskRoles]):
    """Writes and replays the records of streams groups."""

    def new_group(self, group_id: str) -> StreamsGroup:
        """Return a group without members."""
        return StreamsGroup(group_id)

    def new_member(self, member_id: str) -> StreamsMember:
        """Return a member without metadata and assignment."""
        return StreamsMember(member_id)

    def target_value(self, target: TaskRoles) -> Message:
        """Return a target as the value of a record, in order."""
        return StreamsGroupTargetAssignmentMemberValue(
            _listed(target.active), _listed(target.standby), _listed(target.warmup)
        )

    def read_target(self, value: StreamsGroupTargetAssignmentMemberValue) -> TaskRoles:
        """Return the target in the value of a record."""
        return TaskRoles(
            gathered(value.active_tasks),
            gathered(value.standby_tasks),
            gathered(value.warmup_tasks),
        )

    def with_epoch(self, group: StreamsGroup, value: StreamsGroupMetadataValue) -> StreamsGroup:
        """Return the group with the epoch in the value of a record."""
        configs = value.last_assignment_configs or ()
        return replace(
            group,
            epoch=value.epoch,
            metadata_hash=value.metadata_hash,
            validated_epoch=value.validated_topology_epoch,
            configs=tuple(sorted((each.key, each.value) for each in configs)),
        )

    def with_other(self, group: StreamsGroup, key: Message, value: Message | None) -> StreamsGroup:
        """Return the group after a record about its topology."""
        if value is None:
            return replace(group, topology=None)
        assert isinstance(value, StreamsGroupTopologyValue)
        return replace(group, topology=read_topology(value))


def _listed(tasks: Tasks) -> list[StreamsGroupTargetAssignmentMemberTaskIds]:
    return [StreamsGroupTargetAssignmentMemberTaskIds(*each) for each in by_subtopology(tasks)]


RECORDS: Final = StreamsRecords(KEYS, StreamsGroupTargetAssignmentMetadataValue)
