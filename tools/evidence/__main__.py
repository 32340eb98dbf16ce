"""``make evidence``: show what is proven at this commit, and run what is not.

python -m tools.evidence                            print the table
python -m tools.evidence --run stale --budget 3600  run the most valuable ones that do not hold
python -m tools.evidence --run test,sim             run these, whatever their state
python -m tools.evidence --release                  exit with 1 unless all required proofs hold
"""

import argparse
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TextIO

from tools.evidence.page import PAGE, render_page, render_table
from tools.evidence.proof import PASSED, LedgerFault, Proof, load_proofs, load_run
from tools.evidence.repository import changed_since
from tools.evidence.runner import AlreadyRunning, only_one, run_proof
from tools.evidence.status import Status, judge, plan, release_blockers

BUDGET_S = 3600


def main() -> int:
    """Print the table, run proofs if asked to, and return the exit code."""
    arguments = _parser().parse_args()
    root: Path = arguments.root.resolve()
    try:
        statuses = survey(root)
        if arguments.release:
            return _check_release(statuses)
        if arguments.run:
            with only_one(root, _say) as lock:
                code = _run(root, arguments.run, arguments.budget, lock)
            statuses = survey(root)
        else:
            code = 0
            if arguments.write_page:
                (root / PAGE).write_text(render_page(statuses))
    except (LedgerFault, AlreadyRunning) as fault:
        print(fault, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        _say("interrupted; the proofs that came to their end are recorded, the next run goes on")
        return 130
    print(render_table(statuses))
    return code


def survey(root: Path) -> list[Status]:
    """Return the status of every declared proof. Raises LedgerFault."""
    statuses = []
    for proof in load_proofs(root):
        run = load_run(root, proof.name)
        changed = changed_since(root, run.commit, proof.paths) if run else []
        statuses.append(judge(proof, run, changed))
    return statuses


def _chosen(
    statuses: list[Status], tried: Collection[str], which: str, budget_s: float
) -> list[tuple[Proof, float]]:
    """Return the proofs to run that were not tried, and how many minutes each takes.

    They are those that do not hold, within the budget, or those named. Raises LedgerFault.
    """
    by_name = {status.proof.name: status for status in statuses}
    if which == "stale":
        left = [status for status in statuses if status.proof.name not in tried]
        return [(proof, by_name[proof.name].minutes) for proof in plan(left, budget_s)]
    names = which.split(",")
    if unknown := [name for name in names if name not in by_name]:
        known = ", ".join(by_name)
        raise LedgerFault(f"no such proof: {', '.join(unknown)}; there are: stale, {known}")
    return [(by_name[name].proof, by_name[name].minutes) for name in names if name not in tried]


def _run(root: Path, which: str, budget_s: float, lock: TextIO) -> int:
    """Run proofs one after the other; return 1 unless all of them passed.

    The next one is chosen when the previous one has ended, by what is left of the budget. The page
    is written after each, so that it fits the ledger whenever the run is interrupted.
    """
    give_up = time.monotonic() + budget_s
    tried: dict[str, bool] = {}
    while proofs := _chosen(survey(root), tried, which, give_up - time.monotonic()):
        proof, minutes = proofs[0]
        run = run_proof(root, proof, _say, lock, minutes)
        tried[proof.name] = run is not None and run.result == PASSED
        (root / PAGE).write_text(render_page(survey(root)))
    if not tried:
        _say(f"nothing to run within {budget_s:g} s")
    return 0 if all(tried.values()) else 1


def _check_release(statuses: list[Status]) -> int:
    """Print the required proofs that do not hold; return 1 if there are any."""
    blockers = release_blockers(statuses)
    for status in blockers:
        reason = f": {status.reason}" if status.reason else ""
        print(f"{status.proof.name} is {status.state.value}{reason}")
    required = sum(status.proof.required for status in statuses)
    print(f"{required - len(blockers)} of {required} required proofs hold at this commit")
    return 1 if blockers or not required else 0


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make evidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", metavar="stale|NAME,NAME", help="run these proofs")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS")
    parser.add_argument("--release", action="store_true", help="check what a release requires")
    parser.add_argument("--write-page", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository")
    return parser


if __name__ == "__main__":
    sys.exit(main())
