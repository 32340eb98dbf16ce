"""The record of a run: in memory for the checker, and in a file for people."""

import threading
import time
from pathlib import Path

from ottla.testing.history.events import AnyEvent, to_line


def now() -> int:
    """The one clock of a history, in nanoseconds; it never goes back."""
    return time.monotonic_ns()


class Recorder:
    """Take events from any thread. ``problems`` are faults that are not events of a history: a
    producer that gave up, a consumer whose data is gone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._file = path.open("wb") if path else None
        self.events: list[AnyEvent] = []
        self.problems: list[str] = []

    def add(self, event: AnyEvent) -> None:
        with self._lock:
            self.events.append(event)
            if self._file is not None:
                self._file.write(to_line(event))

    def complain(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    def count(self, kind: type) -> int:
        with self._lock:
            return sum(isinstance(event, kind) for event in self.events)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
