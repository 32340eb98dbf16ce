"""Tasks of a streams application (KIP-1071): what its members are given.

A task is a subtopology on one partition number: it reads that partition of every topic that the
subtopology reads. It runs in one of three roles:

    active    processes records; nobody else has it, in any member of the group
    standby   keeps a copy of the state; at most one role per task in a process, whose state
              directory is shared by its threads
    warmup    as a standby, on its way to be active; no assignor makes any yet, as in Kafka 4.2
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

import msgspec

TaskId: TypeAlias = tuple[str, int]
"""The subtopology's id and the partition."""

Tasks: TypeAlias = frozenset[TaskId]

NO_TASKS: Final[Tasks] = frozenset()


class TaskRoles(msgspec.Struct, frozen=True):
    """Tasks by role. Operators work role by role."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def __and__(self, other: "TaskRoles") -> "TaskRoles":
        """Return what is in both, in the same role."""
        return TaskRoles(
            self.active & other.active, self.standby & other.standby, self.warmup & other.warmup
        )

    def __or__(self, other: "TaskRoles") -> "TaskRoles":
        """Return what is in either."""
        return TaskRoles(
            self.active | other.active, self.standby | other.standby, self.warmup | other.warmup
        )

    def __sub__(self, other: "TaskRoles") -> "TaskRoles":
        """Return what the other does not have in the same role."""
        return TaskRoles(
            self.active - other.active, self.standby - other.standby, self.warmup - other.warmup
        )

    def __bool__(self) -> bool:
        """Whether there is any task."""
        return bool(self.active or self.standby or self.warmup)

    def any_role(self) -> Tasks:
        """Return the tasks, whatever their role."""
        return self.active | self.standby | self.warmup


NO_ROLES: Final = TaskRoles()


class TaskIds(Protocol):
    """Tasks of one subtopology, as every message and record has them."""

    subtopology_id: str
    partitions: list[int]


def gathered(listed: Iterable[TaskIds] | None) -> Tasks:
    """Return single tasks of what a message lists; nothing listed is no task."""
    return frozenset(
        (each.subtopology_id, partition) for each in listed or () for partition in each.partitions
    )


def by_subtopology(tasks: Iterable[TaskId]) -> list[tuple[str, list[int]]]:
    """Return tasks as messages list them, in order."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return list(found.items())
