"""Run the curated mutants: each in a copy of the sources, which its tests import.

The copies have no compiled modules, so that the broken text runs, also in processes that a test
starts. The working tree is not changed.
"""

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.anchors import ROOT, Mutant, broken, load, problem_with

COPIED = ("src", "simulation")
# Limits of time: these, and several times what the unbroken tests take on this machine now. A
# mutant that makes a test hang is caught by the limit of the test.
PER_TEST_SECONDS_MAX = 60
SECONDS_MAX = 300
PATIENCE = 5
# pytest: 1 is "tests failed". Anything else (no tests, usage, crash) proves nothing.
TESTS_PASSED, TESTS_FAILED = 0, 1
Copies = queue.SimpleQueue[Path]


def run(rooms: list[str], match: str, jobs: int) -> int:
    """Return 1 unless every chosen mutant is caught by tests that pass without it."""
    mutants = [mutant for mutant in load(rooms) if re.search(match, mutant.promise)]
    suites: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        suites.setdefault(mutant.tests, []).append(mutant)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: Copies = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(copy_sources(Path(folder) / str(number)))
        problems = sum(pool.map(lambda suite: run_suite(*suite, copies), suites.items()))
    print(f"{len(mutants)} mutants, {problems} problems")
    return 1 if problems or not mutants else 0


def run_suite(tests: str, mutants: list[Mutant], copies: Copies) -> int:
    """Run tests without and with each of their mutants; return the number of problems."""
    copy, problems = copies.get(), 0
    started = time.monotonic()
    # Few seeds unless one is named: that all of the deep search pass is for `make nightly`.
    code, ending = pytest_in(copy, tests, patience_s=SECONDS_MAX, is_deep="[" in tests)
    patience_s = PATIENCE * (time.monotonic() - started)
    if code != TESTS_PASSED:
        print(f"fails unbroken  {tests}: exit {code}: {ending}", flush=True)
        problems, mutants = len(mutants), []
    for mutant in mutants:
        started = time.monotonic()
        problem = outcome(mutant, copy, patience_s)
        problems += problem is not None
        word = f"MISSED {problem}" if problem else "caught"
        print(f"{time.monotonic() - started:6.1f} s  {mutant.label} {word}", flush=True)
    copies.put(copy)
    return problems


def copy_sources(copy: Path) -> Path:
    compiled = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for tree in COPIED:
        shutil.copytree(ROOT / tree, copy / tree, ignore=compiled)
    return copy


def outcome(mutant: Mutant, copy: Path, patience_s: float) -> str | None:
    """Return None if a test caught the mutant, else what went wrong."""
    if problem := problem_with(mutant):
        return problem
    path, source = broken(mutant)
    target = copy / path.relative_to(ROOT)
    original = target.read_text()
    try:
        target.write_text(source)
        code, ending = pytest_in(copy, mutant.tests, patience_s=patience_s)
    finally:
        target.write_text(original)
    return None if code == TESTS_FAILED else f"(pytest exit {code}: {ending})"


def pytest_in(
    copy: Path, tests: str, *, patience_s: float, is_deep: bool = True
) -> tuple[int, str]:
    """Run tests upon a copy of the sources; return the exit code and the last lines."""
    # -P: without it the unbroken `simulation` of the working directory would be imported.
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    limit_s = PER_TEST_SECONDS_MAX + patience_s
    command += ["-p", "no:randomly", f"--timeout={limit_s:.0f}", *tests.split()]
    path = os.pathsep.join(map(str, (copy / "src", copy, ROOT)))
    seeds = {"SEEDS": "deep"} if is_deep else {}
    environment = {"HYPOTHESIS_PROFILE": "ci"} | seeds | dict(os.environ)
    environment |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OTTLA_EXPECT": "plain"}
    limit_s = SECONDS_MAX + 2 * patience_s
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return -1, f"took longer than {limit_s:.0f} s"
    lines = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
    return done.returncode, " | ".join(lines[-2:])
