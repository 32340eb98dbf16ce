"""Counts the dead letters of share groups, for /metrics (KIP-1191)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ottla.observability.exposition import Family, Kind, Sample, counter, gauge
from ottla.protocol.records.reader import Record
from ottla.sharing.dead_letters import MESSAGE, REJECTED, USED_UP
from ottla.sharing.ports import Origin
from ottla.sharing.share_partition import SharePartition

LABELS_MAX: Final = 1000
"""Label sets of one family; what exceeds them is counted under `OTHER`."""
OTHER: Final = "other"
_WINDOWS_PER_STEP: Final = 64
_REASONS: Final = {REJECTED.encode(): "rejected", USED_UP.encode(): "delivery_count"}


class DeadLetterCounts(msgspec.Struct):
    """Dead letters by group, topic of origin and reason, and records archived without one."""

    written: Counter[tuple[str, ...]] = msgspec.field(default_factory=Counter)
    failed: Counter[tuple[str, ...]] = msgspec.field(default_factory=Counter)
    """Failed writes, by group and dead-letter topic."""
    lost: int = 0

    def add_written(self, origin: Origin, letters: Sequence[Record]) -> None:
        """Count letters that are durable."""
        for letter in letters:
            message = next((h.value for h in letter.headers if h.key == MESSAGE), None) or b""
            reason = _REASONS.get(bytes(message), OTHER)
            _add(self.written, (origin.group_id, origin.topic, reason))

    def add_failed(self, origin: Origin, topic: str) -> None:
        """Count a write to a dead-letter topic that failed; it is repeated."""
        _add(self.failed, (origin.group_id, topic))

    def families(self, windows: Sequence[SharePartition]) -> Iterable[Family | None]:
        """Yield the counts, and how many records of ``windows`` wait for their letter."""
        waiting = 0
        for number, window in enumerate(windows, 1):
            waiting += sum(run.last - run.first + 1 for run in window.acquisition.dead())
            if not number % _WINDOWS_PER_STEP:
                yield None
        name = "ottla_dead_letters"
        yield gauge(f"{name}_waiting", "Records that wait for their dead letter.", waiting)
        yield counter(f"{name}_lost_total", "Records given up without dead letter.", self.lost)
        labels = ("group", "topic", "reason")
        yield _family(f"{name}_written_total", "Dead letters written.", labels, self.written)
        text = "Failed writes of dead letters."
        where = ("group", "dead_letter_topic")
        yield _family(f"{name}_write_failures_total", text, where, self.failed)


def _add(counts: Counter[tuple[str, ...]], label: tuple[str, ...]) -> None:
    if label not in counts and len(counts) >= LABELS_MAX:
        label = (OTHER,) * len(label)
    counts[label] += 1


def _family(
    name: str, text: str, labels: tuple[str, ...], counts: Counter[tuple[str, ...]]
) -> Family:
    samples = [
        Sample(tuple(zip(labels, values, strict=True)), count) for values, count in counts.items()
    ]
    return Family(name, Kind.COUNTER, text, samples)
