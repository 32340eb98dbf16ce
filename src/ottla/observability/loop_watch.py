"""How late the event loop is: the one number that tells of a node that works but does not answer.

A tick is due every `TICK_S`; what it is late by is what every request of the node had to wait.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from ottla.observability.exposition import Family, counter, gauge

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
# The worst delay told is that of the last full window and the one under way.
WINDOW_TICKS: Final = 300
STALL_S: Final = 1.0


class LoopWatch:
    """`Service`, and a `Source` of what it saw."""

    name = "loop-watch"

    def __init__(self) -> None:
        self.lag_s = 0.0
        self._worst = 0.0
        self._worst_before = 0.0
        self._stalls = 0

    async def run(self, ready: Callable[[], None]) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        ready()
        while True:
            for _ in range(WINDOW_TICKS):
                due = loop.time() + TICK_S
                await asyncio.sleep(TICK_S)
                self.note(loop.time() - due)
            self._worst_before, self._worst = self._worst, 0.0

    def note(self, late_s: float) -> None:
        """Take how late a tick was."""
        self.lag_s = max(late_s, 0.0)
        self._worst = max(self._worst, self.lag_s)
        if self.lag_s >= STALL_S:
            self._stalls += 1
            log.warning("event loop stalled seconds=%.1f", self.lag_s)

    def collect(self) -> Iterable[Family]:
        """Yield the lag now, the worst of the last half to one minute, and the stalls."""
        yield gauge("ottla_event_loop_lag_seconds", "How late the last tick was.", self.lag_s)
        yield gauge(
            "ottla_event_loop_lag_max_seconds",
            "The latest tick of the last 30 to 60 seconds.",
            max(self._worst, self._worst_before),
        )
        yield counter(
            "ottla_event_loop_stalls_total", "Ticks that were a second late or more.", self._stalls
        )
