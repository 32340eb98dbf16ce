"""How long the cleaner rests after each step of its work. Pure.

Requests and the cleaner share one event loop. While requests use little of it, the cleaner rests
little; the more they use, the longer it rests, up to `BUSY_RESTS` times as long as it works. A
cleaner that falls behind all the same rests less, down to `URGENT_RESTS` times: so it always has a
ninth of the loop at least, and a third where that does not suffice.
"""

from typing import Final

IDLE_RESTS: Final = 0.5
BUSY_RESTS: Final = 8.0
URGENT_RESTS: Final = 2.0
"""How many times as long as it worked the cleaner rests: on an idle loop, on a busy one, and on a
busy one if it has fallen behind."""

BUSY_SHARE: Final = 0.5
"""A loop counts as busy if requests use this share of its time while the cleaner rests."""

REST_S_MAX: Final = 0.5
"""The longest rest for requests: a step that waited for a disk is no reason for more."""

_DECAY: Final = 0.125


class CleanerPace:
    """The rests of one directory's cleaner."""

    def __init__(self) -> None:
        self._load = 1.0  # of 0 (idle) to 1 (busy); unknown counts as busy
        self._rests = BUSY_RESTS
        self._backlog: int | None = None

    def begin(self, backlog: int, *, is_overdue: bool) -> None:
        """Begin a round over one log, with so many bytes to clean in the whole directory.

        More than at the beginning of the last round: the cleaner falls behind, and halves its
        rests. Otherwise it doubles them again. A log past its ``max.compaction.lag.ms`` is urgent.
        """
        rests = self._rests
        if self._backlog is not None:
            rests = rests / 2 if backlog > self._backlog else rests * 2
        if is_overdue:
            rests = URGENT_RESTS
        self._rests = min(BUSY_RESTS, max(URGENT_RESTS, rests))
        self._backlog = backlog

    def caught_up(self) -> None:
        """Forget the backlog: nothing is left to clean."""
        self._rests, self._backlog = BUSY_RESTS, None

    def rest_s(self, worked_s: float, moved: int, bytes_per_second: float) -> float:
        """Return how long to rest after a step. A rate that is not above 0 is unlimited."""
        rests = IDLE_RESTS + (self._rests - IDLE_RESTS) * self._load
        rate_s = moved / bytes_per_second if bytes_per_second > 0 else 0.0
        return max(min(rests * worked_s, REST_S_MAX), rate_s)

    def rested(self, used_s: float, rested_s: float) -> None:
        """Record for how long everything else used the loop during a rest.

        The load rises at once and falls slowly, so that a pause between two requests is no reason
        to delay the second one.
        """
        if rested_s <= 0:
            return
        load = min(1.0, max(0.0, used_s / rested_s / BUSY_SHARE))
        self._load = max(load, self._load + (load - self._load) * _DECAY)
