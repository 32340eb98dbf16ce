"""Runs proofs one at a time, on a quiet machine, and records each as soon as it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tools.evidence import repository
from tools.evidence.output import counts_of, ending_of, figures_of, result_of
from tools.evidence.proof import PASSED, Proof, Run, save_run

LOGS = Path("build/evidence")
LOAD_MAX = 0.7
"""A machine is quiet below this load average of one minute."""
QUIET_WAIT_S_MAX = 300
PATIENCE = 3
"""A proof that takes this many times its declared minutes has failed."""
NOTICE_S = 30


def run_proof(root: Path, proof: Proof, say: Callable[[str], None]) -> Run | None:
    """Run a proof and record it; return None, with nothing recorded, if it cannot be recorded.

    An interrupted run records nothing, so that the next call begins with this proof again.
    """
    if files := repository.uncommitted(root, proof.paths):
        say(f"{proof.name}: not run, {files[0]} is not committed")
        return None
    load = _wait_for_quiet(say)
    commit, date, begun = repository.head(root), datetime.now(UTC), time.monotonic()
    log = root / LOGS / f"{proof.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(
        f"{proof.name}: {proof.command} (about {proof.minutes:g} min; log: {log.relative_to(root)})"
    )
    exit_code = _execute(root, proof, log, say)
    lines = log.read_text(errors="replace").splitlines()
    counts = counts_of(lines)
    result = result_of(exit_code, lines, counts)
    run = Run(
        commit=commit,
        date=date.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - begun),
        load=load,
        result=result,
        counts=counts,
        figures=figures_of(lines, proof.figures),
        ending=() if result == PASSED else ending_of(lines),
    )
    save_run(root, proof.name, run)
    say(f"{proof.name}: {result} after {run.seconds} s")
    return run


def _execute(root: Path, proof: Proof, log: Path, say: Callable[[str], None]) -> int:
    """Run the command with its output in ``log``; return its exit code, 124 after the limit."""
    limit_s = proof.minutes * 60 * PATIENCE
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", proof.command],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    return process.wait(NOTICE_S)
                except subprocess.TimeoutExpired:
                    passed_s = time.monotonic() - begun
                    if sys.stderr.isatty():
                        say(f"{proof.name}: {passed_s / 60:.0f} of about {proof.minutes:g} min")
                if passed_s > limit_s:
                    output.write(f"\nstopped after {passed_s:.0f} s: no end in sight\n".encode())
                    return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_for_quiet(say: Callable[[str], None]) -> float:
    """Wait until the load is low, for a limited time; return the load of one minute."""
    load = os.getloadavg()[0]
    if load >= LOAD_MAX:
        say(f"waiting for a quiet machine (load {load:.1f}, at most {QUIET_WAIT_S_MAX} s)")
    give_up = time.monotonic() + QUIET_WAIT_S_MAX
    while load >= LOAD_MAX and time.monotonic() < give_up:
        time.sleep(5)
        load = os.getloadavg()[0]
    return load
