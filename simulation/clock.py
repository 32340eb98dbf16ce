"""A host's clocks on simulated time: the wall clock may be wrong, jump and drift."""

import asyncio

from ottla.protocol.types import Millis

# 2026-01-01: a recent date, so that code that ignores the epoch fails visibly.
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
        """Return the wall time as this host sees it."""
        return Millis(int(self._loop.time() * 1000 * self._rate + self._offset_ms + _ROUNDING))

    def monotonic(self) -> Millis:
        """Return the milliseconds since the simulation started."""
        return Millis(int(self._loop.time() * 1000 + _ROUNDING))

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock forward, or back if negative, as a time server does."""
        self._offset_ms += milliseconds

    def drift(self, rate: float) -> None:
        """Run the wall clock ``rate`` times as fast from now on."""
        elapsed_ms = self._loop.time() * 1000
        self._offset_ms += elapsed_ms * (self._rate - rate)
        self._rate = rate
