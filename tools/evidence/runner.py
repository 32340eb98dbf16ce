"""Runs proofs one at a time, on a quiet machine, and records each as soon as it ends."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TextIO

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
ORPHAN_WAIT_S_MAX = 10


class AlreadyRunning(Exception):
    """Another process runs proofs of this repository; the text names it."""


@contextmanager
def only_one(root: Path, say: Callable[[str], None]) -> Iterator[TextIO]:
    """Hold the lock of this repository's proofs; yield the file, which the commands inherit.

    A command that a killed runner has left holds the lock, too: it is ended. Raises AlreadyRunning.
    """
    path = root / LOGS / "running"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not _try_lock(file):
            _end_orphan(file, say)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the command, too
        try:
            yield file
        finally:
            signal.signal(signal.SIGTERM, before)
            file.truncate(0)


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_orphan(file: TextIO, say: Callable[[str], None]) -> None:
    """End the command of a runner that was killed, and take the lock. Raises AlreadyRunning."""
    file.seek(0)
    numbers = [int(word) for word in file.read().split()]
    if len(numbers) < 2 or Path(f"/proc/{numbers[0]}").exists():
        raise AlreadyRunning(f"proofs run already, by process {numbers[0] if numbers else '?'}")
    group = numbers[-1]
    say(f"ending the command of an interrupted run (process group {group})")
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    give_up = time.monotonic() + ORPHAN_WAIT_S_MAX
    while not _try_lock(file):
        if time.monotonic() > give_up:
            raise AlreadyRunning(f"the process group {group} of an interrupted run does not end")
        time.sleep(0.05)


def run_proof(
    root: Path,
    proof: Proof,
    say: Callable[[str], None],
    lock: TextIO | None = None,
    minutes: float | None = None,
) -> Run | None:
    """Run a proof and record it; return None, with nothing recorded, if it cannot be recorded.

    An interrupted run records nothing, so that the next call begins with this proof again.
    ``minutes``: how long it took the last time.
    """
    if files := repository.uncommitted(root, proof.paths):
        say(f"{proof.name}: not run, {files[0]} is not committed")
        return None
    load = _wait_for_quiet(say)
    commit, date, begun = repository.head(root), datetime.now(UTC), time.monotonic()
    log = root / LOGS / f"{proof.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(
        f"{proof.name}: {proof.command} (about {minutes or proof.minutes:.0f} min; "
        f"log: {log.relative_to(root)})"
    )
    exit_code = _execute(root, proof, log, say, lock)
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


def _execute(
    root: Path, proof: Proof, log: Path, say: Callable[[str], None], lock: TextIO | None
) -> int:
    """Run the command with its output in ``log``; return its exit code, 124 after the limit."""
    limit_s = proof.minutes * 60 * PATIENCE
    begun = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    with log.open("wb") as output:
        try:
            process = _start(root, proof.command, output, lock)
            if lock is not None:
                lock.write(f"{process.pid}\n")
                lock.flush()
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
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _start(
    root: Path, command: str, output: BinaryIO, lock: TextIO | None
) -> "subprocess.Popen[bytes]":
    """Start a command in a process group of its own; it holds the lock as long as it runs."""
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=() if lock is None else (lock.fileno(),),
    )


def _wait_for_quiet(say: Callable[[str], None]) -> float:
    """Wait until the load is low, for a limited time; return the load of one minute."""
    load = os.getloadavg()[0]
    if load >= LOAD_MAX:
        say(f"waiting for a quiet machine (load {load:.1f}, at most {QUIET_WAIT_S_MAX} s)")
    give_up = time.monotonic() + QUIET_WAIT_S_MAX
    while load >= LOAD_MAX and time.monotonic() < give_up:
        time.sleep(5)
        load = os.getloadavg()[0]
    if load >= LOAD_MAX:
        say(f"the machine is still busy (load {load:.1f}, which is recorded); running all the same")
    return load
