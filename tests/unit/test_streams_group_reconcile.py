"""One step of a member towards its target: free tasks, and tasks it waits for."""

from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.reconcile import TaskGoal, reconcile_tasks
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskRoles, Tasks

NOBODY = TaskGoal(7, NO_ROLES, frozenset(), NO_ROLES, NO_ROLES)


def tasks(*numbers: int) -> Tasks:
    return frozenset(("0", number) for number in numbers)


def moved(goal: TaskGoal, **fields: object) -> StreamsMember:
    member = StreamsMember("m", epoch=6, previous_epoch=6)
    return reconcile_tasks(replace(member, **fields), goal)


def test_free_tasks_are_given_with_the_epoch_they_are_from() -> None:
    found = moved(replace(NOBODY, target=TaskRoles(tasks(1), tasks(2))))
    assert (found.epoch, found.state) == (7, MemberState.STABLE)
    assert found.assigned == TaskRoles(tasks(1), tasks(2))
    assert found.task_epochs == {("0", 1): 7}


def test_active_task_waits_for_its_owner_and_for_copies_in_its_process() -> None:
    goal = replace(NOBODY, target=TaskRoles(tasks(1, 2, 3)), active_elsewhere=tasks(1))
    goal = replace(goal, beside=TaskRoles(standby=tasks(2)))
    found = moved(goal)
    assert (found.epoch, found.state) == (7, MemberState.UNRELEASED)
    assert found.assigned.active == tasks(3)


def test_a_standby_waits_for_any_role_in_its_process_and_for_none_elsewhere() -> None:
    beside = TaskRoles(tasks(1), tasks(2), tasks(3))
    goal = replace(NOBODY, target=TaskRoles(standby=tasks(1, 2, 3, 4)), beside=beside)
    found = moved(replace(goal, active_elsewhere=tasks(4)))
    assert found.state is MemberState.UNRELEASED
    assert found.assigned.standby == tasks(4)
    found = moved(replace(goal, target=TaskRoles(warmup=tasks(1, 2, 3, 4))))
    assert found.assigned.warmup == tasks(4)


def test_revocation_comes_first_and_keeps_the_epoch() -> None:
    held = TaskRoles(tasks(1, 2), tasks(3))
    epochs = dict.fromkeys(held.active, 4)
    goal = replace(NOBODY, target=TaskRoles(tasks(2, 5)), owned=held)
    found = moved(goal, assigned=held, task_epochs=epochs)
    assert (found.epoch, found.state) == (6, MemberState.UNREVOKED)
    assert found.assigned == TaskRoles(tasks(2))
    assert found.pending_revocation == TaskRoles(tasks(1), tasks(3))
    assert found.task_epochs == epochs
    still = reconcile_tasks(found, replace(goal, owned=TaskRoles(standby=tasks(3))))
    assert still == found, "a copy that still runs is waited for as well"
    done = reconcile_tasks(found, replace(goal, owned=TaskRoles(tasks(2))))
    assert (done.epoch, done.assigned) == (7, TaskRoles(tasks(2, 5)))
    assert done.task_epochs == {("0", 2): 4, ("0", 5): 7}


def test_task_that_is_not_running_needs_no_revocation() -> None:
    held = TaskRoles(tasks(1))
    goal = replace(NOBODY, target=TaskRoles(tasks(2)), owned=NO_ROLES)
    found = moved(goal, assigned=held, task_epochs={("0", 1): 4})
    assert (found.state, found.assigned) == (MemberState.STABLE, TaskRoles(tasks(2)))
