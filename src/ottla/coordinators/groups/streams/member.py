"""A member of a streams group (KIP-1071): a thread of a process, and its tasks.

    STABLE --new target, must revoke--> UNREVOKED --client has revoked--> UNRELEASED or STABLE
       ^                                                                     |
       +------------------------ others have revoked what it waits for ------+

``assigned`` are the tasks it may run now. It was asked to revoke ``pending_revocation`` and may
still run them: both count as held. ``task_epochs`` has the epoch since which it has each active
task of either: offsets that it commits for the task are accepted from that epoch on.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.member import LEAVE_EPOCH, MemberState
from ottla.coordinators.groups.streams.tasks import (
    NO_ROLES,
    TaskId,
    TaskRoles,
    Tasks,
    by_subtopology,
    gathered,
)
from ottla.protocol.internal.streams_group_records import (
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)

NO_EPOCHS: Final[Mapping[TaskId, int]] = {}
# In the records of streams groups states have other numbers than in those of consumer groups.
_STATE_NUMBERS: Final = {
    MemberState.STABLE: 1,
    MemberState.UNREVOKED: 2,
    MemberState.UNRELEASED: 3,
    MemberState.UNKNOWN: 127,
}
_STATES: Final = {number: state for state, number in _STATE_NUMBERS.items()}

_TaskIds: TypeAlias = StreamsGroupCurrentMemberAssignmentTaskIds


class StreamsMember(msgspec.Struct, frozen=True):
    """A member. ``endpoint`` is where its process answers queries; ``tags`` are sorted."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: TaskRoles = NO_ROLES
    pending_revocation: TaskRoles = NO_ROLES
    task_epochs: Mapping[TaskId, int] = NO_EPOCHS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has exactly its target."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def held(self) -> TaskRoles:
        """Return all tasks that it may be running."""
        return self.assigned | self.pending_revocation

    # -- records -------------------------------------------------------------

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> "StreamsMember":
        """Return the member with the metadata of a record."""
        endpoint = value.user_endpoint
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            tags=tuple(sorted((each.key, each.value) for each in value.client_tags)),
        )

    def metadata_value(self) -> StreamsGroupMemberMetadataValue:
        """Return its metadata as the value of a record."""
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if self.endpoint is None else Endpoint(*self.endpoint),
            client_tags=[KeyValue(key, value) for key, value in self.tags],
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> "StreamsMember":
        """Return the member with the epoch and tasks of a record.

        A state that a newer version wrote is `MemberState.UNKNOWN`: such a member must rejoin
        without tasks. A task without an epoch of its own has that of the member.
        """
        epochs: dict[TaskId, int] = {}
        for listed in (value.active_tasks, value.active_tasks_pending_revocation):
            epochs.update(_read_epochs(listed, value.member_epoch))
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=TaskRoles(
                gathered(value.active_tasks),
                gathered(value.standby_tasks),
                gathered(value.warmup_tasks),
            ),
            pending_revocation=TaskRoles(
                gathered(value.active_tasks_pending_revocation),
                gathered(value.standby_tasks_pending_revocation),
                gathered(value.warmup_tasks_pending_revocation),
            ),
            task_epochs=epochs,
        )

    def assignment_value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        """Return its epoch and tasks as the value of a record."""
        assigned, pending = self.assigned, self.pending_revocation
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=_STATE_NUMBERS[self.state],
            active_tasks=self._with_epochs(assigned.active),
            standby_tasks=_listed(assigned.standby),
            warmup_tasks=_listed(assigned.warmup),
            active_tasks_pending_revocation=self._with_epochs(pending.active),
            standby_tasks_pending_revocation=_listed(pending.standby),
            warmup_tasks_pending_revocation=_listed(pending.warmup),
        )

    def _with_epochs(self, tasks: Tasks) -> list[_TaskIds]:
        return [
            _TaskIds(name, parts, [self.task_epochs[name, part] for part in parts])
            for name, parts in by_subtopology(tasks)
        ]

    def without_assignment(self) -> "StreamsMember":
        """Return the member without epoch and tasks: the tombstone of its assignment."""
        return replace(
            self,
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned=NO_ROLES,
            pending_revocation=NO_ROLES,
            task_epochs=NO_EPOCHS,
        )


def _listed(tasks: Tasks) -> list[_TaskIds]:
    return [_TaskIds(name, parts) for name, parts in by_subtopology(tasks)]


def _read_epochs(listed: Iterable[_TaskIds], default: int) -> dict[TaskId, int]:
    found: dict[TaskId, int] = {}
    for each in listed:
        epochs = each.assignment_epochs or ()
        has_epochs = len(epochs) == len(each.partitions)
        for index, partition in enumerate(each.partitions):
            found[each.subtopology_id, partition] = epochs[index] if has_epochs else default
    return found
