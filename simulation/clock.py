"""A host's clocks over the simulation's time: the wall clock may be wrong, jump and drift."""

import asyncio

from ottla.protocol.types import Millis

# 2026-01-01; a recent date, so that code that forgets the epoch is noticed.
EPOCH_MS = 1_767_225_600_000
# Time is a float of seconds: 1.001 s times 1000 is a hair below 1001 ms.
_ROUNDING = 1e-6


class SimClock:
    """`Clock` of one host. ``monotonic`` is the loop's; only the wall clock can be skewed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, epoch_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._offset_ms = float(epoch_ms)
        self._rate = 1.0

    def now(self) -> Millis:
        """Return this host's idea of wall time."""
        return Millis(int(self._loop.time() * 1000 * self._rate + self._offset_ms + _ROUNDING))

    def monotonic(self) -> Millis:
        """Return the milliseconds since the simulation began."""
        return Millis(int(self._loop.time() * 1000 + _ROUNDING))

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back if negative, as a time server does."""
        self._offset_ms += milliseconds

    def drift(self, rate: float) -> None:
        """Let the wall clock run ``rate`` times as fast from now on."""
        elapsed_ms = self._loop.time() * 1000
        self._offset_ms += elapsed_ms * (self._rate - rate)
        self._rate = rate
