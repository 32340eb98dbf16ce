"""Sends the output of Spark's JVM to a log file, and explains Spark's failures in one line.

Spark's JVM inherits the standard output and error of the process that starts it, and writes
warnings to them before and after our own first line. A JVM that is started within `into` writes to
a file instead, for as long as it runs.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ottla.security.private_files import open_private

_STREAMS: Final = (1, 2)
START_LIMIT: Final = (
    "a Python process of Spark did not start within Spark's limit of 10 s, because the machine is "
    "busy; run it again, no data is lost, or give Spark fewer threads (--master 'local[2]')"
)
_START_LIMIT_SIGNS: Final = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
    "java.net.SocketTimeoutException: Accept timed out",
)


@contextmanager
def into(log: Path | None) -> Iterator[None]:
    """Let processes that are started here write to ``log``; None: to this process's output.

    Raises:
        OSError: the file cannot be written.
    """
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    kept = [os.dup(number) for number in _STREAMS]
    opened = open_private(log, is_appended=True)  # options with passwords may be in errors
    try:
        for number in _STREAMS:
            os.dup2(opened, number)
        yield
    finally:
        for number, before in zip(_STREAMS, kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(opened)


def keep_details(log: Path | None, error: BaseException) -> None:
    """Append the whole text of an error to the log; nothing if `into` has not created it."""
    if log is None or not log.exists():
        return
    with suppress(OSError), log.open("a") as out:
        out.write(f"\n{type(error).__name__}: {error}\n")


def is_start_limit(text: str) -> bool:
    """Return whether a failure is a Python process that did not start in time."""
    return any(sign in text for sign in _START_LIMIT_SIGNS)
