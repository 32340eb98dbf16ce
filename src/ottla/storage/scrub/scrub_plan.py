"""Chooses the next log to scrub: the one that was scrubbed longest ago. Pure.

A pass visits every log once and begins ``interval_ms`` after the previous pass began. Between
passes no log is read, however many there are. Nothing is kept across a restart: logs that were
never scrubbed come first, in the order given, which the caller shuffles.
"""

from collections import deque
from collections.abc import Iterable

from ottla.protocol.types import Millis, TopicPartition


class ScrubPlan:
    """The passes of one broker. Times are monotonic."""

    def __init__(self, interval_ms: int, first_at: Millis) -> None:
        self._interval_ms = interval_ms
        self._due: Millis = first_at
        self._queue: deque[TopicPartition] = deque()
        self._scrubbed_at: dict[TopicPartition, Millis] = {}

    @property
    def is_passing(self) -> bool:
        """Whether logs are left to visit in the current pass."""
        return bool(self._queue)

    def wait_ms(self, now: Millis) -> int:
        """Return how long to wait for the next pass; 0 during one."""
        return 0 if self._queue else max(0, self._due - now)

    def begin(self, logs: Iterable[TopicPartition], now: Millis) -> None:
        """Begin a pass over ``logs``; logs not among them are forgotten."""
        known = {name: self._scrubbed_at.get(name) for name in logs}
        self._scrubbed_at = {name: at for name, at in known.items() if at is not None}
        self._queue = deque(sorted(known, key=lambda name: self._scrubbed_at.get(name, -1)))
        self._due = Millis(now + self._interval_ms)

    def next(self, now: Millis) -> TopicPartition | None:
        """Take the next log of the pass; None when the pass is over."""
        if not self._queue:
            return None
        name = self._queue.popleft()
        self._scrubbed_at[name] = now
        return name
