"""What a client used lately, by windows as Kafka's metrics keep it.

    window      window      window      window (now)
    amount      amount      amount      amount
    throttled   throttled   throttled   throttled

The rate is the sum of the kept windows by the time that they cover, but at least by that of all
windows but one: a client that has just begun has no higher rate than one that goes on like that.
"""

from collections import deque
from typing import Final, NamedTuple

from ottla.protocol.types import Millis


class Window(NamedTuple):
    """How long a window is, and how many are kept."""

    size_ms: int = 1000
    kept: int = 2

    @property
    def credit_s(self) -> float:
        """The seconds that a client can save up: the windows that Kafka averages over."""
        return self.size_ms * max(1, self.kept - 1) / 1000


SECOND: Final = Window()
"""A second can be saved up."""


class _Sample:
    __slots__ = ("amount", "number", "throttled", "throttled_ms")

    def __init__(self, number: int) -> None:
        self.number = number
        self.amount = 0.0
        self.throttled = 0
        self.throttled_ms = 0


class Usage:
    """The samples of one client."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def record(self, window: Window, amount: float, throttle_ms: int, now: Millis) -> None:
        """Add what a request cost, and for how long its client was throttled."""
        number = now // window.size_ms
        samples = self._samples
        if not samples or samples[-1].number != number:
            samples.append(_Sample(number))
            while samples[0].number <= number - window.kept:
                samples.popleft()
        last = samples[-1]
        last.amount += amount
        if throttle_ms > 0:
            last.throttled += 1
            last.throttled_ms += throttle_ms

    def rate(self, window: Window, now: Millis) -> float:
        """Return the amount per second of the kept windows."""
        kept = self._kept(window, now)
        if not kept:
            return 0.0
        covered_ms = max(now - kept[0].number * window.size_ms, window.credit_s * 1000)
        return sum(sample.amount for sample in kept) * 1000 / covered_ms

    def throttle_ms(self, window: Window, now: Millis) -> float:
        """Return the average throttle time of replies that had one; 0 if none had."""
        kept = self._kept(window, now)
        times = sum(sample.throttled for sample in kept)
        return sum(sample.throttled_ms for sample in kept) / times if times else 0.0

    def _kept(self, window: Window, now: Millis) -> list[_Sample]:
        first = now // window.size_ms - window.kept
        return [sample for sample in self._samples if sample.number > first]
