"""Break the code on purpose, one promise at a time, and check that a test fails.

Each ``*.toml`` file in this folder lists mutants: a promise, a file, a text to find, its
broken replacement, and the tests that must then fail. The sources are copied without the
compiled modules, so that the broken text runs.

    python tests/mutants/run.py [part ...] [--jobs N]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The folders that a mutant may change.
BREAKABLE = ("src", "simulation")
SECONDS_MAX = 300
# pytest: 1 is "tests failed". Anything else (no tests, usage, crash) proves nothing.
TESTS_FAILED = 1
# A mutant that makes a test hang is caught by the time limit of the test.
PER_TEST_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Mutant:
    part: str
    promise: str
    file: str
    find: str
    replace: str
    tests: str

    @property
    def label(self) -> str:
        return f"{self.part}: {self.promise}"


def load(parts: list[str]) -> list[Mutant]:
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        if parts and path.stem not in parts:
            continue
        entries = tomllib.loads(path.read_text())["mutant"]
        mutants += [Mutant(part=path.stem, **entry) for entry in entries]
    return mutants


def problem_with(mutant: Mutant) -> str | None:
    """Return why a mutant cannot be applied, or None."""
    found = (ROOT / mutant.file).read_text().count(mutant.find)
    if found != 1:
        return f"`find` occurs {found} times in {mutant.file}, want once"
    if mutant.find == mutant.replace:
        return "`replace` changes nothing"
    missing = [test for test in mutant.tests.split() if not exists(test)]
    return f"`tests` names what does not exist: {missing}" if missing else None


def exists(test: str) -> bool:
    """Return whether a path or test id exists; options of pytest count as existing."""
    if not test.startswith("tests/"):
        return True
    path, *names = re.sub(r"\[.*", "", test).split("::")
    file = ROOT / path
    return file.exists() and all(
        re.search(rf"(def|class) {name}\b|^{name} = ", file.read_text(), re.M) for name in names
    )


def outcome(mutant: Mutant) -> str | None:
    """Return None if a test caught the mutant, else what went wrong."""
    if problem := problem_with(mutant):
        return problem
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        copy = Path(temporary)
        for tree in BREAKABLE:
            shutil.copytree(
                ROOT / tree,
                copy / tree,
                ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"),
            )
        target = copy / mutant.file
        target.write_text(target.read_text().replace(mutant.find, mutant.replace))
        # -P: without it the unbroken `simulation` of the working directory would be imported.
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["-p", "no:randomly", f"--timeout={PER_TEST_SECONDS_MAX}", *mutant.tests.split()]
        path = os.pathsep.join(map(str, (copy / "src", copy, ROOT)))
        environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
        environment["OTTLA_EXPECT"] = "plain"
        environment.setdefault("SEEDS", "deep")
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS_MAX
            )
        except subprocess.TimeoutExpired:
            return f"took longer than {SECONDS_MAX} s"
    if done.returncode == TESTS_FAILED:
        return None
    tail = " | ".join(done.stdout.decode(errors="replace").strip().splitlines()[-2:])
    return f"SURVIVED (pytest exit {done.returncode}: {tail})"


def baseline(tests: str) -> str | None:
    """Run tests without a mutant; return the last line if they fail, as they then prove nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode == 0:
        return None
    said = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
    return f"exit {done.returncode}: {said[-1] if said else 'no output'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--match", default="", help="only promises matching this pattern")
    arguments = parser.parse_args()
    mutants = [m for m in load(arguments.parts) if re.search(arguments.match, m.promise)]
    bad = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        suites = sorted({m.tests for m in mutants})
        for tests, problem in zip(suites, pool.map(baseline, suites), strict=True):
            if problem:
                bad += 1
                print(f"fails unbroken  {tests}: {problem}", flush=True)
        for mutant, problem in zip(mutants, pool.map(outcome, mutants), strict=True):
            bad += problem is not None
            print(f"{'caught  ' if problem is None else 'MISSED  '}{mutant.label}", flush=True)
            if problem:
                print(f"          {problem}", flush=True)
    print(f"{len(mutants)} mutants, {bad} problems")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
