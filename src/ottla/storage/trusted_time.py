"""A wall clock that does not believe in jumps, for decisions that delete.

Pure. Somebody sets a server's clock ten years ahead, or a time service does for a minute: by
that clock every record is older than any retention. So what deletes asks here:

    follows  --the clock moves more than `TOLERANCE_MS` against the monotonic one-->  doubts
    doubts   --it has kept the same new time for `CONFIRM_MS`, or is back-->          follows

While in doubt, time goes on from the last believed reading at the monotonic clock's pace, and
the answer is the earlier of that and the wall clock. So a clock that was put right makes
retention late by at most a day, and a clock that runs ten times too fast is never believed.

Not covered: a clock that is already wrong when the node starts.
"""

from ottla.protocol.types import Millis

# Larger than any step a healthy time service makes, smaller than any retention worth having.
TOLERANCE_MS = 5 * 60 * 1000
# Long enough for a person to notice a wrong clock and put it right.
CONFIRM_MS = 24 * 60 * 60 * 1000


class TrustedTime:
    """One per node. Feed it both clocks, often: at least at every round of retention."""

    def __init__(self, wall: Millis, monotonic: Millis) -> None:
        self._wall = wall  # the last believed reading, and the monotonic clock at that moment
        self._monotonic = monotonic
        self._doubted: int | None = None  # wall minus believed time, when the doubt began
        self._doubted_since = monotonic

    @property
    def is_in_doubt(self) -> bool:
        """The wall clock has jumped and is not believed yet."""
        return self._doubted is not None

    def now(self, wall: Millis, monotonic: Millis) -> Millis:
        """Return the time by which records may be called old."""
        believed = Millis(self._wall + monotonic - self._monotonic)
        jump = wall - believed
        if abs(jump) <= TOLERANCE_MS:
            self._believe(wall, monotonic)
            return min(wall, believed)
        if self._doubted is None or abs(jump - self._doubted) > TOLERANCE_MS:
            self._doubted, self._doubted_since = jump, monotonic
        elif monotonic - self._doubted_since >= CONFIRM_MS:
            self._believe(wall, monotonic)
            return wall
        return min(wall, believed)

    def _believe(self, wall: Millis, monotonic: Millis) -> None:
        self._wall, self._monotonic, self._doubted = wall, monotonic, None
