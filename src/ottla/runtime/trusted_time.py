"""The wall time that expiry decisions go by: a clock that jumps and returns deletes nothing.

Somebody sets a server's clock eight days ahead, or a time service does for a minute: by that clock
every record, committed offset and transactional id is older than its retention. So whatever deletes
by age asks here. `TrustedTime` is pure and compares the wall clock with the monotonic one:

    follows  --the wall clock moves more than `TOLERANCE_MS` within `WINDOW_MS`-->   doubts
    doubts   --it has kept the same new time for `CONFIRM_MS`, or is back-->         follows

While in doubt, *steady* time goes on from the last believed reading at the monotonic clock's pace.
Two times follow from it, and each errs towards keeping data:

    expiry   the earlier of wall and steady: what is compared with a retention
    stamp    the later of wall and steady: what is written where an age will be measured from

So a jump ahead deletes nothing, and what is written while the clock is set back does not look old
once it is right again. A clock that was put right and stays is believed after a day, which is how
late expiry can be; a clock that runs ten times too fast is never believed.

Timeouts (sessions, locks, transactions) do not belong here: they use the monotonic clock.

Not covered: a clock that is already wrong when the node starts.
"""

from typing import NamedTuple

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock

# Larger than any step a healthy time service makes, smaller than any retention worth having.
TOLERANCE_MS = 5 * 60 * 1000
# The tolerance is for as long; else a clock that is read often could run away in small steps.
WINDOW_MS = 60 * 60 * 1000
# Long enough for a person to notice a wrong clock and put it right.
CONFIRM_MS = 24 * 60 * 60 * 1000


class Times(NamedTuple):
    """One reading of all clocks; see the module. ``monotonic`` has no meaning but differences."""

    expiry: Millis
    stamp: Millis
    monotonic: Millis


class TrustedTime:
    """One per node. Feed it both clocks, often: at least once in `WINDOW_MS`."""

    def __init__(self, wall: Millis, monotonic: Millis) -> None:
        self._wall = wall  # a believed reading, and the monotonic clock at that moment
        self._monotonic = monotonic
        self._doubted: int | None = None  # wall minus steady time, when the doubt began
        self._doubted_since = monotonic

    @property
    def is_in_doubt(self) -> bool:
        """The wall clock has jumped and is not believed yet."""
        return self._doubted is not None

    def expiry(self, wall: Millis, monotonic: Millis) -> Millis:
        """Return the time by which records may be called old."""
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
                self._believe(wall, monotonic)
            return wall
        if self._doubted is None or abs(jump - self._doubted) > TOLERANCE_MS:
            self._doubted, self._doubted_since = jump, monotonic
        elif monotonic - self._doubted_since >= CONFIRM_MS:
            self._believe(wall, monotonic)
            return wall
        return steady

    def _believe(self, wall: Millis, monotonic: Millis) -> None:
        self._wall, self._monotonic, self._doubted = wall, monotonic, None


class TrustedClock:
    """A `Clock` that also tells the trusted times. A node has one, made when it starts."""

    __slots__ = ("_clock", "_time")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time = TrustedTime(clock.now(), clock.monotonic())

    @classmethod
    def of(cls, clock: Clock) -> "TrustedClock":
        """Return ``clock`` if it is trusted already, so that all of a node share one."""
        return clock if isinstance(clock, TrustedClock) else cls(clock)

    def now(self) -> Millis:
        """Return the wall clock as it is, for what people and clients see."""
        return self._clock.now()

    def monotonic(self) -> Millis:
        """Return the monotonic clock, for timeouts."""
        return self._clock.monotonic()

    def expiry(self) -> Millis:
        """Return the time by which records may be called old."""
        return self._time.expiry(self._clock.now(), self._clock.monotonic())

    def stamp(self) -> Millis:
        """Return the time to write where an age will be measured from."""
        return self._time.stamp(self._clock.now(), self._clock.monotonic())

    def times(self) -> Times:
        """Return all of them, of one moment."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        expiry = self._time.expiry(wall, monotonic)
        return Times(expiry, self._time.stamp(wall, monotonic), monotonic)
