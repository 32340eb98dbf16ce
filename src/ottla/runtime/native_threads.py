"""Wait for the threads of a native library before the interpreter ends.

A thread of obstore's runtime that asks for the interpreter while Python shuts down is ended by
CPython, which Rust answers by aborting the process: a command or node that has done its work would
exit with SIGABRT. So the exit waits until these threads have nothing left to do.
"""

import os
import time
from contextlib import suppress
from typing import Final, NamedTuple

TASKS: Final = "/proc/self/task"
POLL_S: Final = 0.01
WAIT_S_MAX: Final = 2.0
_SLEEPING: Final = "S"


class ThreadState(NamedTuple):
    """The state of a thread, and how often the kernel has run it."""

    state: str
    runs: str


def are_idle(before: dict[str, ThreadState], now: dict[str, ThreadState]) -> bool:
    """Say whether all threads sleep, and none has run between two looks at them."""
    return before == now and all(each.state == _SLEEPING for each in now.values())


def wait_until_idle(prefix: str) -> None:
    """Wait until the threads whose names begin with ``prefix`` are idle, `WAIT_S_MAX` at most.

    Without ``/proc`` it does not wait.
    """
    before, deadline = states(prefix), time.monotonic() + WAIT_S_MAX
    while before and time.monotonic() < deadline:
        time.sleep(POLL_S)  # lets the others have the interpreter
        now = states(prefix)
        if are_idle(before, now):
            return
        before = now


def states(prefix: str, tasks: str = TASKS) -> dict[str, ThreadState]:
    """Return the threads whose names begin with ``prefix``, by id."""
    found: dict[str, ThreadState] = {}
    with suppress(OSError):
        for thread in os.listdir(tasks):
            with suppress(OSError):  # it has just ended
                name, _, rest = _read(f"{tasks}/{thread}/stat").partition("(")[2].rpartition(")")
                if name.startswith(prefix):
                    runs = _read(f"{tasks}/{thread}/schedstat")
                    found[thread] = ThreadState(rest.split()[0], runs)
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
