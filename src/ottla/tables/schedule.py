"""Decides which tables run next, and for how long. Pure.

One Spark application keeps many tables. A few of them run at a time; each run reads what is
available and ends, or is stopped at the end of its turn. A table is chosen by its share of the
records that wait (a topic that is written faster has more of them) and by how long it has waited,
so a small topic is not starved by a large one. A table whose run fails waits longer each time and
does not affect the others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

INTERVAL_MS: Final = 10_000
"""Default age at which waiting counts as much as all waiting records."""
TURN_MS_MIN: Final = 5_000
TURN_MS: Final = 30_000
"""The mean length of a turn when other tables wait."""
TURN_MS_MAX: Final = 120_000
RETRY_MS: Final = 5_000
RETRY_MS_MAX: Final = 300_000
_SMOOTHING: Final = 0.3


class TableState(msgspec.Struct, frozen=True):
    """What is known about one table. Times are in ms; ``lag`` is None if unknown."""

    topic: str
    lag: int | None = None
    rate: float = 0.0
    """Records per second that producers add, averaged."""
    produced: int | None = None
    """The sum of the end offsets at ``measured``."""
    measured: int = 0
    is_running: bool = False
    started: int = 0
    ended: int = 0
    failures: int = 0
    error: str = ""

    def retry_at(self) -> int:
        """Return when the table may run next: later after each failure."""
        if not self.failures:
            return self.ended
        return self.ended + min(RETRY_MS << min(self.failures - 1, 20), RETRY_MS_MAX)


class Start(msgspec.Struct, frozen=True):
    """Run a table; stop it after ``turn_ms`` if others wait by then."""

    topic: str
    turn_ms: int


def choose(
    states: Iterable[TableState], slots: int, now: int, interval_ms: int = INTERVAL_MS
) -> list[Start]:
    """Return the tables to start: at most as many as slots are free."""
    known = list(states)
    free = slots - sum(each.is_running for each in known)
    waiting = [each for each in known if _may_run(each, now)]
    total = sum(each.lag or 0 for each in waiting)
    ranked = sorted(
        waiting, key=lambda each: (-_priority(each, total, now, interval_ms), each.topic)
    )
    rates = sum(each.rate for each in known)
    return [Start(each.topic, turn_ms(each.rate, rates, len(known))) for each in ranked[:free]]


def turn_ms(rate: float, rates: float, tables: int) -> int:
    """Return the length of a turn: in proportion to the rate, within bounds."""
    share = rate / rates * tables if rates > 0 else 1.0
    return int(min(max(TURN_MS * share, TURN_MS_MIN), TURN_MS_MAX))


def is_turn_over(state: TableState, turn: int, others_wait: bool, now: int) -> bool:
    """Return whether a running table has to make room."""
    return others_wait and state.is_running and now - state.started >= turn


def measured(state: TableState, produced: int, lag: int | None, now: int) -> TableState:
    """Update lag and rate by the current sum of end offsets."""
    rate = state.rate
    if state.produced is not None and now > state.measured:
        added = max(produced - state.produced, 0) * 1000 / (now - state.measured)
        rate = added if rate == 0.0 else rate + _SMOOTHING * (added - rate)
    return msgspec.structs.replace(state, produced=produced, measured=now, lag=lag, rate=rate)


def started(state: TableState, now: int) -> TableState:
    """Return the state of a table that starts to run."""
    return msgspec.structs.replace(state, is_running=True, started=now)


def finished(state: TableState, error: str, now: int) -> TableState:
    """Return the state after a run; ``error`` is empty if it succeeded."""
    failures = state.failures + 1 if error else 0
    return msgspec.structs.replace(
        state, is_running=False, ended=now, failures=failures, error=error
    )


def merged(states: Mapping[str, TableState], topics: Iterable[str]) -> dict[str, TableState]:
    """Return the states of the topics that have a table now; running ones are kept to their end."""
    wanted = set(topics)
    kept = {name: each for name, each in states.items() if name in wanted or each.is_running}
    return kept | {name: TableState(name) for name in wanted if name not in kept}


def _may_run(state: TableState, now: int) -> bool:
    return not state.is_running and state.lag != 0 and now >= state.retry_at()


def _priority(state: TableState, total: int, now: int, interval_ms: int) -> float:
    share = (state.lag or 0) / total if total else 0.0
    # A table whose lag is unknown has never run since the start of the application.
    return share + (now - state.ended) / max(interval_ms, 1)
