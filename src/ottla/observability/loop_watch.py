"""The lag of the event loop, which shows a node that is alive but does not respond.

A tick is due every `TICK_S`; the delay of a tick is the delay of every request of the node.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from ottla.observability.exposition import Family, counter, gauge

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
# The maximum covers the last complete window and the current one.
WINDOW_TICKS: Final = 300
STALL_S: Final = 1.0


class LoopWatch:
    """`Service` that measures the lag, and `Source` of its metrics."""

    name = "loop-watch"

    def __init__(self, on_window: Callable[[], None] = lambda: None) -> None:
        """Call ``on_window`` when a window of 30 seconds ends."""
        self._on_window = on_window
        # Of the current window and the last complete one: seconds busy, and seconds in all.
        self._busy = (0.0, 0.0)
        self._busy_before = (0.0, 0.0)
        self.lag_s = 0.0
        self._worst = 0.0
        self._worst_before = 0.0
        self._stalls = 0

    async def run(self, ready: Callable[[], None]) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        ready()
        while True:
            began, busy_s = loop.time(), time.thread_time()
            for _ in range(WINDOW_TICKS):
                due = loop.time() + TICK_S
                await asyncio.sleep(TICK_S)
                self.note(loop.time() - due)
                self.note_busy(time.thread_time() - busy_s, loop.time() - began)
            self.end_window()

    def note(self, late_s: float) -> None:
        """Record the delay of a tick."""
        self.lag_s = max(late_s, 0.0)
        self._worst = max(self._worst, self.lag_s)
        if self.lag_s >= STALL_S:
            self._stalls += 1
            log.warning("event loop stalled seconds=%.1f", self.lag_s)

    def note_busy(self, busy_s: float, window_s: float) -> None:
        """Record how long the loop's thread has used the CPU within the current window."""
        self._busy = (busy_s, window_s)

    def end_window(self) -> None:
        """Begin a new window and forget the one before the last."""
        self._worst_before, self._worst = self._worst, 0.0
        self._busy_before, self._busy = self._busy, (0.0, 0.0)
        self._on_window()

    @property
    def idle(self) -> float:
        """The idle fraction of the loop over the last 30 to 60 seconds."""
        busy_s, window_s = (sum(pair) for pair in zip(self._busy, self._busy_before, strict=True))
        return min(1.0, max(0.0, 1 - busy_s / window_s)) if window_s > 0 else 1.0

    def collect(self) -> Iterable[Family]:
        """Yield the current lag, its maximum over the last 30 to 60 seconds, and the stalls."""
        yield gauge("ottla_event_loop_lag_seconds", "The delay of the last tick.", self.lag_s)
        yield gauge(
            "ottla_event_loop_lag_max_seconds",
            "The largest delay of the last 30 to 60 seconds.",
            max(self._worst, self._worst_before),
        )
        # One thread does the work of Kafka's network threads and request handlers.
        for name in (
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        ):
            yield gauge(name, "The idle fraction of the event loop, 0 to 1.", self.idle)
        yield counter(
            "ottla_event_loop_stalls_total",
            "Ticks that were delayed by a second or more.",
            self._stalls,
        )
