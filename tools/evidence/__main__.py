"""``make evidence``: show what is proven at this commit, and run what is not.

python -m tools.evidence                            print the table
python -m tools.evidence --run stale --budget 3600  run the most valuable ones that do not hold
python -m tools.evidence --run test,sim             run these, whatever their state
python -m tools.evidence --release                  exit with 1 unless all required proofs hold
"""

import argparse
import sys
import time
from pathlib import Path

from tools.evidence.page import PAGE, render_page, render_table
from tools.evidence.proof import PASSED, LedgerFault, Proof, load_proofs, load_run
from tools.evidence.repository import changed_since
from tools.evidence.runner import run_proof
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
            code = _run(root, _chosen(statuses, arguments.run, arguments.budget), arguments.budget)
            statuses = survey(root)
            (root / PAGE).write_text(render_page(statuses))
        else:
            code = 0
            if arguments.write_page:
                (root / PAGE).write_text(render_page(statuses))
    except LedgerFault as fault:
        print(fault, file=sys.stderr)
        return 2
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


def _chosen(statuses: list[Status], which: str, budget_s: float) -> list[Proof]:
    """Return the proofs to run: within the budget, or those named. Raises LedgerFault."""
    if which == "stale":
        return plan(statuses, budget_s)
    by_name = {status.proof.name: status.proof for status in statuses}
    names = which.split(",")
    if unknown := [name for name in names if name not in by_name]:
        known = ", ".join(by_name)
        raise LedgerFault(f"no such proof: {', '.join(unknown)}; there are: stale, {known}")
    return [by_name[name] for name in names]


def _run(root: Path, proofs: list[Proof], budget_s: float) -> int:
    """Run the proofs in their order; return 1 unless all of them passed."""
    if not proofs:
        _say(f"nothing to run within {budget_s:g} s")
    runs = [run_proof(root, proof, _say) for proof in proofs]
    return 0 if all(run is not None and run.result == PASSED for run in runs) else 1


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
