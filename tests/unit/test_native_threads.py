"""Threads of native libraries: when they are idle, so that the interpreter may end."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from ottla.runtime.native_threads import ThreadState, are_idle, states

ASLEEP = ThreadState("S", "100 20 3")


def thread(tasks: Path, number: int, name: str, state: str, runs: str) -> None:
    (tasks / str(number)).mkdir()
    (tasks / str(number) / "stat").write_text(f"{number} ({name}) {state} 1 2 3")
    (tasks / str(number) / "schedstat").write_text(runs)


def test_threads_are_found_by_the_start_of_their_names(tmp_path: Path) -> None:
    thread(tmp_path, 1, "python", "R", "1 1 1")
    thread(tmp_path, 2, "tokio-rt-worker", "S", "100 20 3")
    thread(tmp_path, 3, "tokio) S (odd", "R", "5 6 7")
    (tmp_path / "4").mkdir()  # ended meanwhile
    expected = {"2": ASLEEP, "3": ThreadState("R", "5 6 7")}
    assert states("tokio", str(tmp_path)) == expected
    assert states("tokio", str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("before", "now", "idle"),
    [
        ({"1": ASLEEP}, {"1": ASLEEP}, True),
        ({"1": ASLEEP}, {"1": ThreadState("S", "101 20 4")}, False),
        ({"1": ThreadState("R", "1 1 1")}, {"1": ThreadState("R", "1 1 1")}, False),
        ({"1": ASLEEP}, {"1": ASLEEP, "2": ASLEEP}, False),
    ],
)
def test_threads_are_idle_if_none_has_run_and_all_sleep(
    before: dict[str, ThreadState], now: dict[str, ThreadState], *, idle: bool
) -> None:
    assert are_idle(before, now) is idle


def test_exit_waits_for_the_threads_of_an_object_store(tmp_path: Path) -> None:
    """They would abort the process. The wait is the last thing that the interpreter does."""
    pytest.importorskip("obstore")
    script = (
        "import atexit, asyncio, sys\n"
        "from ottla.runtime import native_threads, objects\n"
        "objects.wait_until_idle = lambda prefix: print('waits for', prefix)\n"
        "store = objects.ObstoreObjects.in_memory()\n"
        "objects.ObstoreObjects.in_memory()\n"
        "asyncio.run(store.put('a', b'1'))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.stdout == "waits for tokio\n", done.stderr
