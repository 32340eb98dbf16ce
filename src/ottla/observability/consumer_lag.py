"""The lag of groups as metrics, under the names of kafka-exporter. Pure.

kafka_consumergroup_current_offset, _lag     consumergroup, topic, partition
kafka_consumergroup_..._sum                  consumergroup, topic
kafka_consumergroup_members                  consumergroup
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from ottla.observability.exposition import (
    WALKED_PER_STEP,
    Column,
    Family,
    Kind,
    label_text,
    partition_labels,
)


class PartitionLag(msgspec.Struct, frozen=True, gc=False):
    """How far a group has read one partition.

    ``lag`` is the records up to the high watermark, ``stable_lag`` those up to the last stable
    offset, which a consumer with ``read_committed`` can read. ``lag`` of a share group does not
    count records that are acknowledged beyond its start. ``seconds`` is the age of the first
    record that is not read.
    """

    topic: str
    partition: int
    offset: int
    lag: int
    stable_lag: int
    seconds: float


class GroupLag(msgspec.Struct, frozen=True):
    """The lag of one group; partitions sorted by topic and number."""

    group: str
    kind: str
    members: int
    partitions: tuple[PartitionLag, ...]


def lag_families(groups: Sequence[GroupLag]) -> Iterable[Family | None]:
    """Yield the metrics of groups, rendered piece by piece, and None after every few groups."""
    rows: list[PartitionLag] = []
    labels: list[str] = []
    for group in groups:
        name = _group_label(group)
        walked = len(rows)
        for row in group.partitions:
            labels.append(f"{name},{partition_labels(row.topic, row.partition)}")
            rows.append(row)
        if len(rows) // WALKED_PER_STEP > walked // WALKED_PER_STEP:
            yield None

    def each(name: str, text: str, value: Callable[[PartitionLag], float]) -> Family:
        pairs = zip(labels, map(value, rows), strict=True)
        return Family(name, Kind.GAUGE, text, Column(pairs))

    name = "kafka_consumergroup_"
    yield each(f"{name}current_offset", "The committed offset.", attrgetter("offset"))
    yield each(f"{name}lag", "Records not yet read.", attrgetter("lag"))
    seconds = "The age of the first record not yet read."
    yield each(f"{name}lag_seconds", seconds, attrgetter("seconds"))
    stable = "Records of decided transactions not yet read."
    yield each("ottla_consumergroup_stable_lag", stable, attrgetter("stable_lag"))
    yield from _group_families(groups)


def _group_families(groups: Sequence[GroupLag]) -> Iterable[Family]:
    """Yield what is shown of each group and of each topic that it reads."""

    def summed(name: str, text: str, value: Callable[[PartitionLag], float]) -> Family:
        pairs = (
            (_topic_labels(group, topic), total)
            for group in groups
            for topic, total in _totals(group.partitions, value)
        )
        return Family(name, Kind.GAUGE, text, Column(pairs))

    name = "kafka_consumergroup_"
    offsets = "The sum of the committed offsets of a topic."
    yield summed(f"{name}current_offset_sum", offsets, attrgetter("offset"))
    yield summed(f"{name}lag_sum", "Records of a topic not yet read.", attrgetter("lag"))
    members = ((_group_label(group), group.members) for group in groups)
    yield Family(f"{name}members", Kind.GAUGE, "Members of the group.", Column(members))
    kinds = ((f'{_group_label(group)},type="{group.kind}"', 1) for group in groups)
    text = "1 for the type of the group."
    yield Family("ottla_consumergroup_type", Kind.GAUGE, text, Column(kinds))


def _group_label(group: GroupLag) -> str:
    return label_text((("consumergroup", group.group),))


def _topic_labels(group: GroupLag, topic: str) -> str:
    return label_text((("consumergroup", group.group), ("topic", topic)))


def _totals(
    rows: Iterable[PartitionLag], value: Callable[[PartitionLag], float]
) -> Iterable[tuple[str, float]]:
    totals: dict[str, float] = {}
    for row in rows:
        totals[row.topic] = totals.get(row.topic, 0) + value(row)
    return totals.items()
