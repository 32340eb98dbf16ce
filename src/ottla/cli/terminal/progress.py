"""Progress of long commands on stderr, and the totals for their last line.

On a terminal, one line is overwritten a few times per second. Elsewhere, as in the log of a job, a
new line is written now and then, and none at all for a command that takes less time than that.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.operations.counting import plural
from ottla.operations.escaping import escape
from ottla.operations.sizes import human
from ottla.runtime.ports import Clock

_EVERY_MS: Final = 200
_LINE_EVERY_MS: Final = 10_000
_ETA_FROM_S: Final = 1.0
"""A rate that was measured for less time than this says nothing about the rest."""


class LiveLine:
    """The line that shows how far a command is."""

    def __init__(self, clock: Clock, *, is_terminal: bool | None = None) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._every_ms = _EVERY_MS if self._is_terminal else _LINE_EVERY_MS
        self._last = clock.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time to show the line again; True once per interval."""
        now = self._clock.monotonic()
        if now - self._last < self._every_ms:
            return False
        self._last = now
        return True

    def show(self, text: str) -> None:
        """Write the line, over the last one on a terminal."""
        text = escape(text)
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{text[:width]}\x1b[K")
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def phase(clock: Clock, text: str) -> Iterator[None]:
    """Show on a terminal what a command does, while it does it."""
    line = LiveLine(clock)
    if sys.stderr.isatty():
        line.show(text)
    try:
        yield
    finally:
        line.clear()


class Progress:
    """Counts records and bytes; shows them a few times per second on a terminal."""

    def __init__(self, clock: Clock, verb: str, *, is_shown: bool) -> None:
        self.records = 0
        self.bytes = 0
        self._clock = clock
        self._verb = verb
        self._line = LiveLine(clock) if is_shown else None
        self._began = clock.monotonic()

    def add(self, size: int) -> None:
        """Count a record."""
        self.records += 1
        self.bytes += size
        if self._line is not None and self._line.is_due():
            self._line.show(self.text())

    def text(self) -> str:
        """Return the totals and the rate."""
        seconds = max(self._clock.monotonic() - self._began, 1) / 1000
        rate = f"{self.records / seconds:,.0f}/s, {human(self.bytes / seconds)}/s"
        return f"{self._verb} {plural(self.records, 'record')}, {human(self.bytes)} ({rate})"

    def clear(self) -> None:
        """Clear the line."""
        if self._line is not None:
            self._line.clear()


class WorkProgress:
    """How much of a known amount of work is done, in pieces and, where known, in bytes.

    ``verb`` and ``unit`` name it: "moved", "partitions".
    """

    def __init__(
        self, clock: Clock, verb: str, unit: str, total: int, *, is_terminal: bool | None = None
    ) -> None:
        self.done = 0
        self.total = total
        self.bytes = 0
        self.bytes_total = 0
        self._clock = clock
        self._verb = verb
        self._unit = unit
        self._line = LiveLine(clock, is_terminal=is_terminal)
        self._began = clock.monotonic()

    def show(self) -> None:
        """Show the progress if it is time to."""
        if self._line.is_due():
            self._line.show(self.text())

    def text(self) -> str:
        """Return how much is done, the rate and the time that is left."""
        text = f"{self._verb} {self.done:,} of {self.total:,} {self._unit}"
        if not self.bytes_total:
            return text
        seconds = self._seconds()
        text += f", {human(self.bytes)} of {human(self.bytes_total)}"
        text += f" ({100 * self.bytes // self.bytes_total}%)"
        if seconds < _ETA_FROM_S or not self.bytes:
            return text
        rate = self.bytes / seconds
        left = duration((self.bytes_total - self.bytes) / rate)
        return f"{text}, {human(rate)}/s, {left} left"

    def end(self) -> str:
        """Remove the line and return the totals, for the command's last line."""
        self._line.clear()
        seconds = self._seconds()
        text = f"{self._verb} {self.done:,} {self._unit if self.done != 1 else self._unit[:-1]}"
        if self.bytes:
            text += f", {human(self.bytes)}"
        return f"{text}, in {duration(seconds)}"

    def _seconds(self) -> float:
        return max(self._clock.monotonic() - self._began, 1) / 1000


def duration(seconds: float) -> str:
    """Return a duration for people: 0.4 s, 45 s, 12 min, 3 h."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
