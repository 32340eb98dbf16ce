"""Progress on a terminal: one line on stderr that is overwritten."""

import sys
from typing import Final

from ottla.cli.sizes import human
from ottla.runtime.ports import Clock

_EVERY_MS: Final = 200


class Progress:
    """Counts records and bytes; shows them a few times per second on a terminal."""

    def __init__(self, clock: Clock, verb: str, *, is_shown: bool) -> None:
        self.records = 0
        self.bytes = 0
        self._clock = clock
        self._verb = verb
        self._is_shown = is_shown
        self._began = self._last = clock.monotonic()

    def add(self, size: int) -> None:
        """Count a record."""
        self.records += 1
        self.bytes += size
        if self._is_shown and self._clock.monotonic() - self._last >= _EVERY_MS:
            self._last = self._clock.monotonic()
            sys.stderr.write(f"\r{self.text()}\x1b[K")
            sys.stderr.flush()

    def text(self) -> str:
        """Return the totals and the rate."""
        seconds = max(self._clock.monotonic() - self._began, 1) / 1000
        rate = f"{self.records / seconds:,.0f}/s, {human(self.bytes / seconds)}/s"
        return f"{self._verb} {self.records:,} records, {human(self.bytes)} ({rate})"

    def clear(self) -> None:
        """Clear the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
