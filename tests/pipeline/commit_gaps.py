"""What filled the times in which a stream committed no micro-batch. Pure.

A gap reaches from one commit to the next. Its events cut it into parts, and each part is named by
the event that ended it: the part before ``session`` is the start of Spark. A driver writes the
phases of its start into its log: ``PHASE session 1700000000.123``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

COMMIT = "commit"
LONGEST = 3
MEANINGS = {
    "start": "until the driver was started",
    "imports": "start of Python",
    "session": "start of Spark",
    "query": "start of the query",
    "plan": "until the next batch was planned",
    "broker": "start of the broker",
    COMMIT: "work on the batch",
}


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """Something happened, in seconds of the wall clock."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a commit, and its parts in order: event that ended it, seconds."""

    began: float
    parts: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.parts)


def parse_phases(text: str) -> list[Event]:
    """Return the phases in the log of a driver; torn lines are skipped."""
    events = []
    for line in text.splitlines():
        match line.split():
            case ["PHASE", what, at] if at.replace(".", "", 1).isdigit():
                events.append(Event(float(at), what))
    return events


def gaps(events: Iterable[Event]) -> list[Gap]:
    """Return every time between two commits; the first reaches from the first event to a commit."""
    found: list[Gap] = []
    parts: list[tuple[str, float]] = []
    for before, event in pairwise(sorted(events)):
        parts.append((event.what, event.at - before.at))
        if event.what == COMMIT:
            found.append(Gap(event.at - sum(seconds for _, seconds in parts), tuple(parts)))
            parts = []
    return found


def describe(found: list[Gap]) -> Iterator[str]:
    """Return lines about the longest gaps, and about all together."""
    for gap in sorted(found, key=lambda gap: -gap.seconds)[:LONGEST]:
        parts = ", ".join(f"{_meaning(what)} {seconds:.1f}" for what, seconds in gap.parts)
        yield f"gap of {gap.seconds:.1f} s: {parts}"
    total: Counter[str] = Counter()
    for gap in found:
        for what, seconds in gap.parts:
            total[_meaning(what)] += round(seconds)
    yield f"all gaps: {dict(total.most_common())}"


def _meaning(what: str) -> str:
    return MEANINGS.get(what, f"until {what}")
