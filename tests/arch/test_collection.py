"""Test ids are the same in every process, and no test gets less time than the default.

Workers of pytest-xdist compare their lists of tests and run nothing if the lists differ. So an id
may not depend on the time, on randomness, on addresses in memory, on the order of a set or on the
place of the repository.
"""

import os
import re
import subprocess
import sys
import time
import tomllib
from difflib import unified_diff
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

ROOT = Path(__file__).parents[2]
COLLECT = ("-m", "pytest", "--collect-only", "-q", "--assert=plain")
# pytest-randomly would seed both processes alike and hide what is random.
PLUGINS = ("-p", "no:cacheprovider", "-p", "no:randomly")

# Loaded by one of the processes: its clock is a day, an hour, a minute and a second ahead.
LATER = """
import time
clock, clock_ns = time.time, time.time_ns
time.time = lambda: clock() + 90_061
time.time_ns = lambda: clock_ns() + 90_061 * 10**9
"""


def start_collection(
    repository: Path, cwd: Path, hash_seed: str, *plugins: str
) -> subprocess.Popen:
    """Start a process that prints the test ids of the repository, which may be a symbolic link."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(cwd)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every module is compiled each time
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    # `make check` installs no Spark; CI does.
    skipped = () if find_spec("pyspark") else ("--ignore", repository / "tests" / "pipeline")
    arguments = (*COLLECT, *PLUGINS, *plugins, *skipped, "-c", repository / "pyproject.toml")
    return subprocess.Popen(
        [sys.executable, *arguments, repository / "tests"],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ids_of(collection: subprocess.Popen) -> list[str]:
    output, _ = collection.communicate(timeout=SECONDS_MAX)
    assert collection.returncode == 0, output[-3000:]
    return [line for line in output.splitlines() if "::" in line]


@pytest.mark.slow
def test_two_processes_collect_the_same_tests_in_the_same_order(tmp_path: Path) -> None:
    elsewhere, cwd = tmp_path / "elsewhere", tmp_path / "cwd"
    elsewhere.symlink_to(ROOT)
    cwd.mkdir()
    (cwd / "later.py").write_text(LATER)
    first = start_collection(ROOT, ROOT, "1")
    time.sleep(1.1)  # for clocks that the plugin does not set
    second = start_collection(elsewhere, cwd, "2", "-p", "later")
    try:
        here, there = ids_of(first), ids_of(second)
    finally:
        first.kill()
        second.kill()
    assert len(here) > 10_000
    assert list(unified_diff(here, there, "here", "there", lineterm="", n=0)) == []


def test_no_test_gets_less_time_than_the_default() -> None:
    """A limit that only ends a hanging test leaves room for a busy machine."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    default_s = settings["tool"]["pytest"]["ini_options"]["timeout"]
    assert default_s > 2 * SECONDS_MAX
    marked = {
        f"{path.relative_to(ROOT)}: {seconds}"
        for path in (ROOT / "tests").rglob("*.py")
        for seconds in re.findall(r"mark\.timeout\((\d+)", path.read_text())
        if int(seconds) < default_s
    }
    assert marked == set()
