"""What ``ottla top`` shows: rates between two looks at a cluster. Pure.

A rate is records per second by offsets, so markers of transactions count as well, and a compacted
topic counts what was written.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.cli.commands.group_lag import Place, Position
from ottla.cli.terminal.rendering import Row
from ottla.protocol.types import TopicPartition

ROWS_DEFAULT: Final = 10


class Seen(msgspec.Struct, frozen=True):
    """One look at a cluster. ``at`` is in seconds of a monotonic clock."""

    at: float
    ends: Mapping[TopicPartition, int]
    leaders: Mapping[TopicPartition, int]
    in_sync: Mapping[TopicPartition, tuple[int, int]]
    """How many replicas are in sync, and how many there are."""
    groups: Mapping[Place, Position]
    fenced: tuple[int, ...] = ()


def view(now: Seen, before: Seen | None, rows: int = ROWS_DEFAULT) -> Row:
    """Return the totals, the hottest partitions, brokers by load, and groups by lag."""
    rates = _rates(now, before)
    late = [at for at, (there, wanted) in now.in_sync.items() if there < wanted]
    return {
        "records_per_s": None if before is None else round(sum(rates.values())),
        "partitions": len(now.leaders),
        "without_leader": sum(leader < 0 for leader in now.leaders.values()),
        "under_replicated": len(late),
        "fenced_brokers": list(now.fenced),
        "brokers": _brokers(now, rates),
        "hot_partitions": _hot(now, rates, rows),
        "groups": _groups(now, before, rows),
    }


def _rates(now: Seen, before: Seen | None) -> dict[TopicPartition, float]:
    if before is None or now.at <= before.at:
        return {}
    seconds = now.at - before.at
    return {
        place: max(0.0, (end - before.ends[place]) / seconds)
        for place, end in now.ends.items()
        if place in before.ends
    }


def _brokers(now: Seen, rates: Mapping[TopicPartition, float]) -> list[Row]:
    found: dict[int, tuple[int, float]] = {}
    for place, leader in now.leaders.items():
        led, rate = found.get(leader, (0, 0.0))
        found[leader] = led + 1, rate + rates.get(place, 0.0)
    return [
        {"broker": leader, "leads": led, "records/s": round(rate, 1)}
        for leader, (led, rate) in sorted(found.items())
        if leader >= 0
    ]


def _hot(now: Seen, rates: Mapping[TopicPartition, float], rows: int) -> list[Row]:
    hottest = sorted(rates, key=lambda place: (-rates[place], place))[:rows]
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "records/s": round(rates[place], 1),
            "leader": now.leaders.get(place),
            "in_sync": "{}/{}".format(*now.in_sync[place]) if place in now.in_sync else None,
        }
        for place in hottest
        if rates[place] > 0
    ]


def _groups(now: Seen, before: Seen | None, rows: int) -> list[Row]:
    lags: dict[str, int] = {}
    read: dict[str, float] = {}
    seconds = 0.0 if before is None else now.at - before.at
    for place, (at, end) in now.groups.items():
        lags[place[0]] = lags.get(place[0], 0) + end - at
        was = None if before is None else before.groups.get(place)
        if was is not None and seconds > 0:
            read[place[0]] = read.get(place[0], 0.0) + max(0, at - was[0]) / seconds
    worst = sorted(lags, key=lambda name: (-lags[name], name))[:rows]
    return [
        {
            "group": name,
            "lag": lags[name],
            "read/s": round(read[name], 1) if name in read else None,
        }
        for name in worst
    ]
