"""The metrics of dead letters: what is counted, and that labels from clients are bounded."""

from types import SimpleNamespace
from typing import Any

from ottla.node.broker.dead_letter_metrics import LABELS_MAX, OTHER, DeadLetterCounts
from ottla.observability.exposition import Registry
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Millis, Offset
from ottla.sharing.acquisition import DeadRecords
from ottla.sharing.dead_letters import dead_letters
from ottla.sharing.ports import DeadLetterConfig, Origin


def letters_of(origin: Origin, *is_used_up: bool) -> list[Record]:
    records = [Record(Offset(n), Millis(0), None, b"v", ()) for n in range(len(is_used_up))]
    runs = [
        DeadRecords(Offset(n), Offset(n), 1, is_used_up=each) for n, each in enumerate(is_used_up)
    ]
    return dead_letters(origin, records, runs, DeadLetterConfig("dlq.t"), Millis(0))


def window(*runs: tuple[int, int]) -> Any:
    dead = [DeadRecords(Offset(a), Offset(b), 1, is_used_up=False) for a, b in runs]
    return SimpleNamespace(acquisition=SimpleNamespace(dead=lambda: dead))


def page(counts: DeadLetterCounts, *windows: Any) -> list[str]:
    text = Registry([lambda: counts.families(windows)]).render().decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_letters_are_counted_by_group_topic_and_reason() -> None:
    counts, origin = DeadLetterCounts(), Origin("workers", "orders", 3)
    counts.add_written(origin, letters_of(origin, True, False, False))
    counts.add_failed(origin, "dlq.t")
    counts.lost += 4
    name = "ottla_dead_letters"
    labels = 'group="workers",topic="orders"'
    assert sorted(page(counts, window((0, 4), (7, 7)), window(), window((2, 2)))) == [
        f"{name}_lost_total 4",
        f"{name}_waiting 7",
        f'{name}_write_failures_total{{group="workers",dead_letter_topic="dlq.t"}} 1',
        f'{name}_written_total{{{labels},reason="delivery_count"}} 1',
        f'{name}_written_total{{{labels},reason="rejected"}} 2',
    ]


def test_labels_beyond_the_bound_are_counted_together() -> None:
    counts = DeadLetterCounts()
    for number in range(LABELS_MAX + 20):
        origin = Origin(f"group-{number}", "orders", 0)
        counts.add_written(origin, letters_of(origin, False))
        counts.add_failed(origin, "dlq.t")
    assert len(counts.written) == len(counts.failed) == LABELS_MAX + 1
    assert counts.written[OTHER, OTHER, OTHER] == counts.failed[OTHER, OTHER] == 20
