"""A request to stop may come in the middle of anything that waits for it."""

import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from tests.patience import SECONDS_MAX

from ottla.sql.stop_flag import StopFlag


@pytest.fixture
def flag() -> Iterator[StopFlag]:
    made = StopFlag()
    yield made
    made.close()


@pytest.mark.parametrize("line", range(1, 4))
def test_wait_ends_when_a_handler_interrupts_any_of_its_lines(flag: StopFlag, line: int) -> None:
    """A handler runs between two lines of the thread that waits, as the trace function here."""
    answers: list[bool] = []

    def interrupted() -> None:
        lines = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal lines
            lines += event in ("line", "return")
            if lines == line:
                sys.settrace(None)
                flag.set()
            return trace

        sys.settrace(trace)
        try:
            answers.append(flag.wait(SECONDS_MAX if line == 1 else 0.05))
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX / 2)
    assert len(answers) == 1
    assert flag.is_set()


def test_wait_ends_after_its_time(flag: StopFlag) -> None:
    began = time.monotonic()
    assert not flag.wait(0.01)
    assert 0.01 <= time.monotonic() - began < SECONDS_MAX


def test_wait_ends_as_soon_as_another_thread_asks(flag: StopFlag) -> None:
    asking = threading.Timer(0.01, flag.set)
    asking.start()
    began = time.monotonic()
    assert flag.wait(SECONDS_MAX)
    assert time.monotonic() - began < SECONDS_MAX / 2
    asking.join()
