"""The sticky assignor of streams groups (KIP-1071): which member runs which task. Pure.

Active tasks come first. A member keeps its tasks as long as it stays within its even share; the
remaining ones go to a member that has a standby of them, and the rest to the least loaded members.
Then come standbys of stateful tasks, as many as configured and as there are processes for: first
where the task was active, then where its standby was, then on the least loaded process. The same
group gets the same target on every coordinator.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskId, TaskRoles, Tasks


class StreamsMemberSpec(msgspec.Struct, frozen=True):
    """A member: the process that its thread belongs to, and its current target."""

    process_id: str
    target: TaskRoles = NO_ROLES


class StreamsSpec(msgspec.Struct, frozen=True):
    """A group whose topics all exist. ``stateful`` are subtopologies that have state."""

    members: Mapping[str, StreamsMemberSpec]
    task_counts: Mapping[str, int]
    stateful: frozenset[str] = frozenset()
    standby_count: int = 0


def assign_sticky(spec: StreamsSpec) -> dict[str, TaskRoles]:
    """Return a target for each member. Every task is active once, if there is a member."""
    if not spec.members:
        return {}
    active = [(name, part) for name in spec.task_counts for part in range(spec.task_counts[name])]
    standby = [task for task in active if task[0] in spec.stateful]
    places = _Places(spec.members)
    _assign_active(places, active, spec.members)
    if spec.standby_count:
        total = len(active) + len(standby) * spec.standby_count
        _assign_standby(places, standby, spec, _Share(total, places))
    return places.targets()


class _Places:
    """The tasks assigned so far, by member and, in any role, by process."""

    def __init__(self, members: Mapping[str, StreamsMemberSpec]) -> None:
        self.process_of = {each: members[each].process_id for each in sorted(members)}
        self.counts = dict.fromkeys(self.process_of, 0)
        self._active: dict[str, set[TaskId]] = {each: set() for each in self.process_of}
        self._standby: dict[str, set[TaskId]] = {each: set() for each in self.process_of}
        self._held: dict[str, set[TaskId]] = {each: set() for each in self.process_of.values()}
        self._threads: dict[str, int] = {}
        for process in self.process_of.values():
            self._threads[process] = self._threads.get(process, 0) + 1
        self._loads = dict.fromkeys(self._threads, 0)

    def give(self, member_id: str, task: TaskId, *, is_active: bool) -> None:
        (self._active if is_active else self._standby)[member_id].add(task)
        process = self.process_of[member_id]
        self._held[process].add(task)
        self._loads[process] += 1
        self.counts[member_id] += 1

    def has(self, member_id: str, task: TaskId) -> bool:
        """Whether the member's process has the task in some role."""
        return task in self._held[self.process_of[member_id]]

    def load(self, member_id: str) -> tuple[int, float, str]:
        """Order members.

        Fewest tasks first, then those of the process with fewest tasks per thread.
        """
        process = self.process_of[member_id]
        return self.counts[member_id], self._loads[process] / self._threads[process], member_id

    def targets(self) -> dict[str, TaskRoles]:
        return {
            each: TaskRoles(frozenset(self._active[each]), frozenset(self._standby[each]))
            for each in self.counts
        }


class _ByLoad:
    """Members by load; loads only rise, and are checked again when a member is taken."""

    def __init__(self, places: _Places) -> None:
        self._places = places
        self._heap = [places.load(each) for each in places.counts]
        heapify(self._heap)

    def least(self, task: TaskId) -> str | None:
        """Return the least loaded member whose process does not have a task.

        None if all have it.
        """
        seen: list[tuple[int, float, str]] = []
        found = None
        while self._heap and found is None:
            entry = heappop(self._heap)
            fresh = self._places.load(entry[2])
            if fresh != entry:
                heappush(self._heap, fresh)
                continue
            seen.append(entry)
            if not self._places.has(entry[2], task):
                found = entry[2]
        for entry in seen:
            heappush(self._heap, entry)
        return found


class _Share:
    """The even share of so many tasks: all get the floor of it, and the remainder one more."""

    def __init__(self, total: int, places: _Places) -> None:
        self._places = places
        self._floor, self._rest = divmod(total, len(places.counts))
        self._rest -= sum(count > self._floor for count in places.counts.values())

    def may_take(self, member_id: str) -> bool:
        """Whether a member may have one more."""
        count = self._places.counts[member_id]
        return count < self._floor or (count == self._floor and self._rest > 0)

    def give(self, member_id: str, task: TaskId, *, is_active: bool) -> None:
        """Assign a task to a member that may take it."""
        if self._places.counts[member_id] == self._floor:
            self._rest -= 1
        self._places.give(member_id, task, is_active=is_active)


def _assign_active(
    places: _Places, tasks: Iterable[TaskId], members: Mapping[str, StreamsMemberSpec]
) -> None:
    left = sorted(tasks, key=lambda task: (task[1], task[0]))
    share = _Share(len(left), places)
    had = _previous(members, lambda target: target.active)
    stood = _previous(members, lambda target: target.standby)
    for before in (had, stood):
        rest = []
        for task in left:
            candidates = [each for each in before.get(task, ()) if share.may_take(each)]
            if candidates:
                share.give(min(candidates, key=places.load), task, is_active=True)
            else:
                rest.append(task)
        left = rest
    by_load = _ByLoad(places)
    for task in sorted(left):
        member_id = by_load.least(task)
        assert member_id is not None, "no process has a task that nobody has yet"
        places.give(member_id, task, is_active=True)


def _assign_standby(
    places: _Places, tasks: Iterable[TaskId], spec: StreamsSpec, share: _Share
) -> None:
    had = _previous(spec.members, lambda target: target.active)
    stood = _previous(spec.members, lambda target: target.standby)
    left: list[tuple[TaskId, int]] = []
    for task in sorted(tasks, key=lambda task: (task[1], task[0])):
        wanted = spec.standby_count
        candidates = [*had.get(task, ()), *sorted(stood.get(task, ()), key=places.load)]
        for member_id in candidates:
            if wanted and not places.has(member_id, task) and share.may_take(member_id):
                share.give(member_id, task, is_active=False)
                wanted -= 1
        left.append((task, wanted))
    by_load = _ByLoad(places)
    for task, wanted in left:
        for _ in range(wanted):
            member_id = by_load.least(task)
            if member_id is None:
                break
            places.give(member_id, task, is_active=False)


def _previous(
    members: Mapping[str, StreamsMemberSpec], role: Callable[[TaskRoles], Tasks]
) -> dict[TaskId, list[str]]:
    """Return the members that had each task in a role."""
    found: dict[TaskId, list[str]] = {}
    for member_id in sorted(members):
        for task in role(members[member_id].target):
            found.setdefault(task, []).append(member_id)
    return found
