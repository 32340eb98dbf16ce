"""The wall-clock time for expiry: a clock that jumps ahead and back deletes nothing.

If an operator sets a server's clock eight days ahead, or a time service does for a minute, every
record, committed offset and transactional id appears older than its retention. So all deletion by
age uses this module. `TrustedTime` is pure and compares the wall clock with the monotonic one:

    trusted   --the wall clock jumps by more than `TOLERANCE_MS` within `WINDOW_MS`-->   in doubt
    in doubt  --it has kept the new time for `CONFIRM_MS`, or has jumped back-->         trusted

While in doubt, *steady* time continues from the last trusted reading at the pace of the monotonic
clock. Two times are derived from it, and each errs towards keeping data:

    expiry   the earlier of wall and steady: compared with a retention
    stamp    the later of wall and steady: written where an age will be measured from

So a jump ahead deletes nothing, and data written while the clock is set back does not look old once
it is correct again. A new time is trusted after a day, which is how late expiry can be; a clock
that runs ten times too fast is never trusted.

Timeouts (sessions, locks, transactions) use the monotonic clock instead.

Not covered: a clock that is already wrong when the node starts.
"""

import logging
from typing import NamedTuple

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock

log = logging.getLogger(__name__)

# Larger than any step of a healthy time service, smaller than any useful retention.
TOLERANCE_MS = 5 * 60 * 1000
# The period that the tolerance applies to; else a clock could run away in small steps.
WINDOW_MS = 60 * 60 * 1000
# Long enough for an operator to notice and correct a wrong clock.
CONFIRM_MS = 24 * 60 * 60 * 1000


class Times(NamedTuple):
    """One reading of all clocks; see the module. Only differences of ``monotonic`` count."""

    expiry: Millis
    stamp: Millis
    monotonic: Millis


class TrustedTime:
    """One per node. Feed it both clocks, often: at least once in `WINDOW_MS`."""

    def __init__(self, wall: Millis, monotonic: Millis) -> None:
        self._wall = wall  # a trusted reading, and the monotonic clock at that moment
        self._monotonic = monotonic
        self._doubted: int | None = None  # wall minus steady time, when the doubt began
        self._doubted_since = monotonic

    @property
    def is_in_doubt(self) -> bool:
        """The wall clock has jumped and is not trusted yet."""
        return self._doubted is not None

    def expiry(self, wall: Millis, monotonic: Millis) -> Millis:
        """Return the time that ages are compared against."""
        return min(wall, self._steady(wall, monotonic))

    def stamp(self, wall: Millis, monotonic: Millis) -> Millis:
        """Return the time to write where an age will be measured from."""
        return max(wall, self._steady(wall, monotonic))

    def _steady(self, wall: Millis, monotonic: Millis) -> Millis:
        elapsed = monotonic - self._monotonic
        steady = Millis(self._wall + elapsed)
        jump = wall - steady
        if -TOLERANCE_MS <= jump <= TOLERANCE_MS:
            if elapsed >= WINDOW_MS or self._doubted is not None:
                self._trust(wall, monotonic)
            return wall
        if self._doubted is None or abs(jump - self._doubted) > TOLERANCE_MS:
            self._doubted, self._doubted_since = jump, monotonic
        elif monotonic - self._doubted_since >= CONFIRM_MS:
            self._trust(wall, monotonic)
            return wall
        return steady

    def _trust(self, wall: Millis, monotonic: Millis) -> None:
        self._wall, self._monotonic, self._doubted = wall, monotonic, None


class TrustedClock:
    """A `Clock` that also returns the trusted times. A node has one, created at its start.

    It logs once that the clock is in doubt, and once that it is trusted again.
    """

    __slots__ = ("_clock", "_time", "_was_in_doubt")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time = TrustedTime(clock.now(), clock.monotonic())
        self._was_in_doubt = False

    @classmethod
    def of(cls, clock: Clock) -> "TrustedClock":
        """Return ``clock`` if it is trusted already, so that a node shares one."""
        return clock if isinstance(clock, TrustedClock) else cls(clock)

    def now(self) -> Millis:
        """Return the wall clock unchanged, for users and clients."""
        return self._clock.now()

    def monotonic(self) -> Millis:
        """Return the monotonic clock, for timeouts."""
        return self._clock.monotonic()

    def expiry(self) -> Millis:
        """Return the time that ages are compared against."""
        return self.times().expiry

    def stamp(self) -> Millis:
        """Return the time to write where an age will be measured from."""
        return self.times().stamp

    def times(self) -> Times:
        """Return all times of one moment."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        expiry = self._time.expiry(wall, monotonic)
        stamp = self._time.stamp(wall, monotonic)
        if self._time.is_in_doubt != self._was_in_doubt:
            self._report(wall, expiry if wall != expiry else stamp)
        return Times(expiry, stamp, monotonic)

    def _report(self, wall: Millis, steady: Millis) -> None:
        self._was_in_doubt = self._time.is_in_doubt
        if self._was_in_doubt:
            log.warning("clock jumped: nothing expires by it until it has kept its time for a day "
                        "jump_ms=%d hint=correct the clock of this host and its time service",
                        wall - steady)  # fmt: skip
        else:
            log.info("clock is trusted again")
