"""Rules for recovery after all faults are repaired.

Within ``within_ns`` of a repair there is a moment at which every acknowledged value was seen; and
from then on, the rate of acknowledgements is at least ``rate_share`` of the rate before the first
fault.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.testing.history.anomalies import Anomaly, Label
from ottla.testing.history.events import AnyEvent, Fault, Heal
from ottla.testing.history.facts import Facts, Write
from ottla.testing.history.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Liveness:
    """How soon and how completely. A share of 0 checks no rate."""

    within_ns: int
    rate_share: float = 0.8


@dataclass(frozen=True, slots=True)
class _Span:
    """From a repair to the next fault, or to the end."""

    start: int
    end: int


def recoveries(
    facts: Facts, transactions: Transactions, events: list[AnyEvent], wanted: Liveness
) -> Iterator[Anomaly]:
    """Check each repair that was followed by a long enough time without faults."""
    spans, first_fault = _quiet(events)
    for span in spans:
        if span.end - span.start < wanted.within_ns:
            continue
        left = _least_unseen(facts, transactions, span.start, span.start + wanted.within_ns)
        if left:
            detail = f"{left} acknowledged values were still unseen {wanted.within_ns} ns after"
            yield Anomaly(Label.UNSEEN_AFTER_HEAL, str(span.start), detail)
        yield from _rates(facts, events, first_fault, span, wanted)


def _quiet(events: list[AnyEvent]) -> tuple[list[_Span], int]:
    spans: list[_Span] = []
    healed: int | None = None
    first_fault: int | None = None
    for event in events:
        if isinstance(event, Heal):
            healed = event.time
        elif isinstance(event, Fault):
            first_fault = event.time if first_fault is None else first_fault
            if healed is not None:
                spans.append(_Span(healed, event.time))
            healed = None
    if healed is not None:
        spans.append(_Span(healed, events[-1].time))
    return spans, 0 if first_fault is None else first_fault


def _least_unseen(facts: Facts, transactions: Transactions, start: int, end: int) -> int:
    """Return the smallest number of values acknowledged and not seen, at any time of a span.

    Values of partitions without a reader, and of uncommitted transactions, are not counted.
    """
    changes = []
    for value, write in facts.writes.items():
        acknowledged = write.ended if write.is_acknowledged else None
        if acknowledged is None or write.first.partition not in facts.readings:
            continue
        if write.first.txn is not None and write.first.txn not in transactions.committed:
            continue
        seen = facts.first_seen.get(value)
        if seen is None or seen > acknowledged:
            changes.append((acknowledged, 1))
            changes += [] if seen is None else [(seen, -1)]
    unseen, least = 0, None
    for at, change in sorted(changes):
        if at > end:
            break
        if at > start:
            least = unseen if least is None else min(least, unseen)
        unseen += change
    return unseen if least is None else min(least, unseen)


def _rates(
    facts: Facts, events: list[AnyEvent], first_fault: int, span: _Span, wanted: Liveness
) -> Iterator[Anomaly]:
    before = _Span(events[0].time, first_fault)
    after = _Span(span.start + wanted.within_ns, span.end)
    was, now = _rate(facts.writes.values(), before), _rate(facts.writes.values(), after)
    if was is not None and now is not None and now < was * wanted.rate_share:
        detail = f"{now * 1e9:.1f} acknowledgements a second, {was * 1e9:.1f} before the fault"
        yield Anomaly(Label.SLOW_AFTER_HEAL, str(span.start), detail)


def _rate(writes: Iterable[Write], span: _Span) -> float | None:
    """Return acknowledgements per nanosecond; None when the span is empty."""
    if span.end <= span.start:
        return None
    times = [each.ended for each in writes if each.is_acknowledged and each.ended is not None]
    return sum(span.start <= at < span.end for at in times) / (span.end - span.start)
