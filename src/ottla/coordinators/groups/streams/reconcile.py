"""How a member gets from the tasks it has to those it shall have (KIP-1071), beat by beat.

First it gives up what it shall not have, at its old epoch, and is waited for; then it moves to
the new epoch and is given what is free; the rest comes as others give it up. An active task is
free when nobody else has it active, and any task only when no other thread of the process has it
in another role: they share a directory for its state.
"""

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.errors import FencedMemberEpoch
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskRoles, Tasks


class TaskGoal(msgspec.Struct, frozen=True):
    """What a member shall come to.

    ``active_elsewhere`` are the tasks of its target that others may run as active;
    ``beside`` what other threads of its process hold. ``owned`` is what the member says it runs;
    None where it did not say.
    """

    epoch: int
    target: TaskRoles
    active_elsewhere: Tasks
    beside: TaskRoles
    owned: TaskRoles | None


def reconcile_tasks(member: StreamsMember, goal: TaskGoal) -> StreamsMember:
    """Return the member a step further, or as it is where it has to wait.

    Raises `FencedMemberEpoch` for a member whose state is not known, until it holds nothing.
    """
    match member.state:
        case MemberState.STABLE:
            return member if member.epoch == goal.epoch else _next(member, member.epoch, goal)
        case MemberState.UNREVOKED:
            if _runs_any(goal, member.pending_revocation):
                return member
            return _next(member, member.epoch + 1, goal)
        case MemberState.UNRELEASED:
            return _next(member, member.epoch, goal)
        case _:
            if goal.owned is None or goal.owned:
                raise FencedMemberEpoch(
                    "The streams group member is in a unknown state. The member must abandon all "
                    "its tasks and rejoin."
                )
            return _next(member, goal.epoch, goal)


def _runs_any(goal: TaskGoal, tasks: TaskRoles) -> bool:
    """Whether the member may still run any of these: also if it does not say what it runs."""
    return bool(tasks) and (goal.owned is None or bool(goal.owned & tasks))


def _next(member: StreamsMember, epoch: int, goal: TaskGoal) -> StreamsMember:
    kept, revoked = member.assigned & goal.target, member.assigned - goal.target
    if _runs_any(goal, revoked):
        return _moved(member, goal, MemberState.UNREVOKED, epoch, (kept, revoked))
    wanted = goal.target - member.assigned
    free = _free(wanted, goal)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    return _moved(member, goal, state, goal.epoch, (kept | free, NO_ROLES))


def _free(wanted: TaskRoles, goal: TaskGoal) -> TaskRoles:
    beside = goal.beside.any_role()
    copies = goal.beside.standby | goal.beside.warmup
    return TaskRoles(
        wanted.active - goal.active_elsewhere - copies,
        wanted.standby - beside,
        wanted.warmup - beside,
    )


def _moved(
    member: StreamsMember,
    goal: TaskGoal,
    state: MemberState,
    epoch: int,
    tasks: tuple[TaskRoles, TaskRoles],
) -> StreamsMember:
    """Return the member with other tasks; one that stays active keeps the epoch it is from."""
    assigned, pending = tasks
    active = assigned.active | pending.active
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
        task_epochs={
            task: member.task_epochs[task] if task in member.assigned.active else goal.epoch
            for task in active
        },
    )
