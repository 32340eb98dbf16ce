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

    @property
    def minutes(self) -> float:
        """How long it takes: as its last run that passed, otherwise as declared."""
        if self.run is None or self.run.result != PASSED:
            return self.proof.minutes
        return max(self.run.seconds, 1) / 60


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
    """Return the proofs to run within the budget, those of most value per minute first.

    Required ones come before others. One that does not fit into what is left of the budget is
    passed over, and a shorter one may still fit.
    """
    open_ones = [status for status in statuses if status.state is not State.PROVEN]
    open_ones.sort(key=lambda status: (not status.proof.required, -_value_per_minute(status)))
    chosen: list[Proof] = []
    left_s = budget_s
    for status in open_ones:
        if status.minutes * 60 <= left_s:
            chosen.append(status.proof)
            left_s -= status.minutes * 60
    return chosen


def _value_per_minute(status: Status) -> float:
    return status.proof.value / max(status.minutes, 1 / 60)


def release_blockers(statuses: Iterable[Status]) -> list[Status]:
    """Return the required proofs that do not hold at this commit."""
    return [
        status for status in statuses if status.proof.required and status.state is not State.PROVEN
    ]
