"""Check a whole history.

with open("history.jsonl", "rb") as lines:
    for anomaly in check(read_lines(lines)):
        print(anomaly)
"""

from collections.abc import Iterable

from ottla.testing.history import cluster, logs, transactions
from ottla.testing.history.anomalies import Anomaly
from ottla.testing.history.events import AnyEvent
from ottla.testing.history.facts import gather, in_order
from ottla.testing.history.liveness import Liveness, recoveries


def check(events: Iterable[AnyEvent], liveness: Liveness | None = None) -> list[Anomaly]:
    """Return every violation in a history; one cause may violate several guarantees.

    Time and memory are linear in the events (except for sorting). Without ``liveness`` recovery
    times are not checked.

    Raises:
        HistoryMalformed: the events contradict each other.
    """
    ordered = in_order(events)
    facts = gather(ordered)
    decided = transactions.gather_transactions(facts, ordered)
    found = [
        *logs.inconsistent_offsets(facts),
        *logs.duplicates(facts),
        *logs.lost_writes(facts, decided),
        *logs.strangers(facts),
        *logs.reordered(facts),
        *logs.polls(facts, decided),
        *transactions.aborted_and_open_reads(facts, decided),
        *transactions.torn(facts, decided),
        *transactions.cycles(facts, decided),
        *cluster.watermarks(ordered),
        *cluster.committed_offsets(ordered),
        *cluster.leaders(ordered),
        *cluster.replicas(ordered),
    ]
    if liveness is not None:
        found += recoveries(facts, decided, ordered, liveness)
    return found
