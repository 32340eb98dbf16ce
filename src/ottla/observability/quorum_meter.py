"""Rates and latencies of the metadata log, under Kafka's names. Pure.

    append_records_rate   records per second that this node appended as the leader
    fetch_records_rate    records per second that it read as a follower or observer
    commit_latency_avg    milliseconds from append to commit, on the leader; with _max

All are over the last 30 to 60 seconds; a latency is NaN if nothing was committed in that time.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from ottla.observability.exposition import Family, gauge

PENDING_MAX: Final = 10_000
WINDOW_S: Final = 30.0


class _Window:
    """The counts of one window."""

    def __init__(self) -> None:
        self.appended = 0
        self.fetched = 0
        self.commits = 0
        self.latency_ms = 0
        self.latency_ms_max = 0


class QuorumMeter:
    """Counts of one node; times are milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._pending: deque[tuple[int, int]] = deque(maxlen=PENDING_MAX)
        self._windows = [_Window(), _Window()]
        self._is_first = True
        self._applied = -1

    def appended(self, last_offset: int, records: int, now_ms: int) -> None:
        """Record that this node, as the leader, appended a batch that ends at ``last_offset``."""
        self._windows[0].appended += records
        self._pending.append((last_offset, now_ms))

    def applied(self, offset: int, now_ms: int) -> None:
        """Record that the log is committed and applied up to ``offset``, inclusive."""
        window = self._windows[0]
        own = 0
        while self._pending and self._pending[0][0] <= offset:
            took_ms = now_ms - self._pending.popleft()[1]
            own += 1
            window.commits += 1
            window.latency_ms += took_ms
            window.latency_ms_max = max(window.latency_ms_max, took_ms)
        if not own and self._applied >= 0:
            window.fetched += max(0, offset - self._applied)
        self._applied = max(self._applied, offset)

    def lost_leadership(self) -> None:
        """Forget batches that may never be committed."""
        self._pending.clear()

    def slide(self) -> None:
        """Begin a new window and forget the one before the last."""
        self._windows = [_Window(), self._windows[0]]
        self._is_first = False

    def collect(self) -> Iterable[Family]:
        """Yield the rates and latencies."""
        seconds = WINDOW_S if self._is_first else 2 * WINDOW_S
        now, before = self._windows
        name = "kafka_server_raftmetrics_"
        appended = (now.appended + before.appended) / seconds
        yield gauge(f"{name}append_records_rate", "Records appended per second.", appended)
        fetched = (now.fetched + before.fetched) / seconds
        yield gauge(f"{name}fetch_records_rate", "Records read per second.", fetched)
        commits = now.commits + before.commits
        total_ms = now.latency_ms + before.latency_ms
        average = total_ms / commits if commits else float("nan")
        yield gauge(f"{name}commit_latency_avg", "Milliseconds from append to commit.", average)
        worst = float(max(now.latency_ms_max, before.latency_ms_max)) if commits else float("nan")
        yield gauge(f"{name}commit_latency_max", "The longest commit, in milliseconds.", worst)
