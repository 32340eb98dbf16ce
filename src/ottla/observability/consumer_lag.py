"""The lag of groups as metrics, under the names of kafka-exporter. Pure.

kafka_consumergroup_current_offset, _lag     consumergroup, topic, partition
kafka_consumergroup_..._sum                  consumergroup, topic
kafka_consumergroup_members                  consumergroup
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ottla.observability.exposition import Family, Kind, Sample, label_text


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


def lag_families(groups: Sequence[GroupLag]) -> Iterable[Family]:
    """Yield the metrics of groups, rendered piece by piece."""

    def each(name: str, text: str, value: Callable[[PartitionLag], float]) -> Family:
        samples = (
            Sample(_partition_labels(group.group, row), value(row))
            for group in groups
            for row in group.partitions
        )
        return Family(name, Kind.GAUGE, text, samples)

    def summed(name: str, text: str, value: Callable[[PartitionLag], float]) -> Family:
        samples = (
            Sample(_topic_labels(group.group, topic), total)
            for group in groups
            for topic, total in _totals(group.partitions, value)
        )
        return Family(name, Kind.GAUGE, text, samples)

    name = "kafka_consumergroup_"
    yield each(f"{name}current_offset", "The committed offset.", lambda row: row.offset)
    yield each(f"{name}lag", "Records not yet read.", lambda row: row.lag)
    seconds = "The age of the first record not yet read."
    yield each(f"{name}lag_seconds", seconds, lambda row: row.seconds)
    stable = "Records of decided transactions not yet read."
    yield each("ottla_consumergroup_stable_lag", stable, lambda row: row.stable_lag)
    offsets = "The sum of the committed offsets of a topic."
    yield summed(f"{name}current_offset_sum", offsets, lambda row: row.offset)
    yield summed(f"{name}lag_sum", "Records of a topic not yet read.", lambda row: row.lag)
    members = (Sample((("consumergroup", each.group),), each.members) for each in groups)
    yield Family(f"{name}members", Kind.GAUGE, "Members of the group.", members)
    kinds = (Sample((("consumergroup", each.group), ("type", each.kind)), 1) for each in groups)
    yield Family("ottla_consumergroup_type", Kind.GAUGE, "1 for the type of the group.", kinds)


def _partition_labels(group: str, row: PartitionLag) -> str:
    return label_text(
        (("consumergroup", group), ("topic", row.topic), ("partition", str(row.partition)))
    )


def _topic_labels(group: str, topic: str) -> str:
    return label_text((("consumergroup", group), ("topic", topic)))


def _totals(
    rows: Iterable[PartitionLag], value: Callable[[PartitionLag], float]
) -> Iterable[tuple[str, float]]:
    totals: dict[str, float] = {}
    for row in rows:
        totals[row.topic] = totals.get(row.topic, 0) + value(row)
    return totals.items()
