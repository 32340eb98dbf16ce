"""Whether a proof holds at this commit, and which ones to run next. Pure."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.evidence.proof import PASSED, SKIPPED, Proof, Run

PATHS_SHOWN = 3


class State(enum.Enum):
    """What is known of a proof at this commit."""

    PROVEN = "proven"
    STALE = "stale"
    FAILED = "failed"
    SKIPPED = "skipped"
    NEVER = "never run"


@dataclass(frozen=True, slots=True)
class Status:
    """A proof, its last run, and what that means now."""

    proof: Proof
    run: Run | None
    state: State
    reason: str = ""


def judge(proof: Proof, run: Run | None, changed: Sequence[str] | None) -> Status:
    """Return the status of a proof.

    ``changed`` are the files below its paths that differ from the run's commit; None means that
    the history does not contain this commit.
    """
    if run is None:
        return Status(proof, run, State.NEVER)
    if run.result == SKIPPED:
        return Status(proof, run, State.SKIPPED, run.ending[-1] if run.ending else "")
    if run.result != PASSED:
        return Status(proof, run, State.FAILED, run.ending[-1] if run.ending else "")
    if changed is None:
        return Status(proof, run, State.STALE, f"commit {run.commit[:8]} is not in this history")
    if changed:
        more = f" and {len(changed) - PATHS_SHOWN} more" if len(changed) > PATHS_SHOWN else ""
        return Status(proof, run, State.STALE, ", ".join(changed[:PATHS_SHOWN]) + more)
    return Status(proof, run, State.PROVEN)


def plan(statuses: Iterable[Status], budget_s: float) -> list[Proof]:
    """Return the proofs to run within the budget, the most valuable first.

    Required ones come before others, then those of higher value, then the shorter ones. One that
    does not fit into what is left of the budget is passed over, and a shorter one may still fit.
    """
    open_proofs = [status.proof for status in statuses if status.state is not State.PROVEN]
    open_proofs.sort(key=lambda proof: (not proof.required, -proof.value, proof.minutes))
    chosen: list[Proof] = []
    left_s = budget_s
    for proof in open_proofs:
        if proof.minutes * 60 <= left_s:
            chosen.append(proof)
            left_s -= proof.minutes * 60
    return chosen


def release_blockers(statuses: Iterable[Status]) -> list[Status]:
    """Return the required proofs that do not hold at this commit."""
    return [
        status for status in statuses if status.proof.required and status.state is not State.PROVEN
    ]
