"""Move a member from its tasks to its target (KIP-1071), one heartbeat at a time.

First it revokes what is not in the target, at its old epoch, while the group waits; then it moves
to the new epoch and gets the tasks that are free; the rest follows as others revoke. An active task
is free if no other member has it active; and any task only if no other thread of the process has it
in another role: they share a directory for its state.
"""

import msgspec
from msgspec.structs import replace

from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.errors import FencedMemberEpoch
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.tasks import NO_ROLES, TaskRoles, Tasks


class TaskGoal(msgspec.Struct, frozen=True):
    """The goal of a member.

    ``active_elsewhere`` are the tasks of its target that others may run as active; ``beside`` are
    the tasks of other threads of its process. ``owned`` are the tasks that the member says it runs;
    None if it did not say.
    """

    epoch: int
    target: TaskRoles
    active_elsewhere: Tasks
    beside: TaskRoles
    owned: TaskRoles | None


def reconcile_tasks(member: StreamsMember, goal: TaskGoal) -> StreamsMember:
    """Return the member one step further, or unchanged where it has to wait.

    Raises `FencedMemberEpoch` for a member in an unknown state, until it owns nothing.
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
    """Whether the member may still run any of these; True if it does not say what it runs."""
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
    """Return the member with other tasks; a task that stays active keeps its epoch."""
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
