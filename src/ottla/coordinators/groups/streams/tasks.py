"""Tasks of a streams application (KIP-1071), which are assigned to its members.

A task is a subtopology on one partition number: it reads that partition of every topic that the
subtopology reads. It runs in one of three roles:

    active    processes records; in one member of the group only
    standby   keeps a copy of the state; a process has a task in at most one role, since its
              threads share the state directory
    warmup    like a standby, about to become active; not assigned yet, as in Kafka 4.2
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

import msgspec

TaskId: TypeAlias = tuple[str, int]
"""The id of the subtopology and the partition."""

Tasks: TypeAlias = frozenset[TaskId]

NO_TASKS: Final[Tasks] = frozenset()


class TaskRoles(msgspec.Struct, frozen=True):
    """Tasks by role. Operators work role by role."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def __and__(self, other: "TaskRoles") -> "TaskRoles":
        """Return the tasks in both, in the same role."""
        return TaskRoles(
            self.active & other.active, self.standby & other.standby, self.warmup & other.warmup
        )

    def __or__(self, other: "TaskRoles") -> "TaskRoles":
        """Return the tasks in either."""
        return TaskRoles(
            self.active | other.active, self.standby | other.standby, self.warmup | other.warmup
        )

    def __sub__(self, other: "TaskRoles") -> "TaskRoles":
        """Return the tasks that the other does not have in the same role."""
        return TaskRoles(
            self.active - other.active, self.standby - other.standby, self.warmup - other.warmup
        )

    def __bool__(self) -> bool:
        """Whether there is any task."""
        return bool(self.active or self.standby or self.warmup)

    def any_role(self) -> Tasks:
        """Return the tasks in any role."""
        return self.active | self.standby | self.warmup


NO_ROLES: Final = TaskRoles()


class TaskIds(Protocol):
    """Tasks of one subtopology, as messages and records list them."""

    subtopology_id: str
    partitions: list[int]


def gathered(listed: Iterable[TaskIds] | None) -> Tasks:
    """Return the single tasks of a list; None is an empty list."""
    return frozenset(
        (each.subtopology_id, partition) for each in listed or () for partition in each.partitions
    )


def by_subtopology(tasks: Iterable[TaskId]) -> list[tuple[str, list[int]]]:
    """Return tasks as messages list them, in order."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return list(found.items())
