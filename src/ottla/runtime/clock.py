"""The machine's clocks."""

import time

from ottla.protocol.types import Millis


class SystemClock:
    """`Clock` over the kernel's real-time and monotonic clocks."""

    def now(self) -> Millis:
        """Return wall time since 1970, whole milliseconds."""
        return Millis(time.time_ns() // 1_000_000)

    def monotonic(self) -> Millis:
        """Return the monotonic clock, the one the event loop runs on, whole milliseconds."""
        return Millis(time.monotonic_ns() // 1_000_000)


def stopwatch() -> float:
    """Return seconds of a clock that measures short times precisely; only differences count."""
    return time.perf_counter()


def thread_cpu_s() -> float:
    """Return the seconds of CPU that the calling thread has used."""
    return time.thread_time()
