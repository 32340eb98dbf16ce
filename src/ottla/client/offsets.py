"""Look up offsets by timestamp or special value, in many partitions at once."""

from collections.abc import Mapping

from ottla.client.cluster import Cluster
from ottla.client.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffset,
    AtTime,
    BeforeEnd,
    OffsetSpec,
    before_end,
)
from ottla.protocol.types import Offset, TopicPartition


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, is_committed_only: bool = False
) -> dict[TopicPartition, Offset | None]:
    """Return the offset for each timestamp; None if no record is that late.

    Raises:
        Refused: the lookup failed for a partition. NoBroker, ConnectionLost, RequestTimedOut: its
            leader does not respond after all retries.
    """
    offsets = await cluster.offsets_at(wanted, is_committed_only=is_committed_only)
    return {each: None if offset < 0 else Offset(offset) for each, offset in offsets.items()}


async def resolve(
    cluster: Cluster, wanted: Mapping[TopicPartition, OffsetSpec], *, is_committed_only: bool = True
) -> dict[TopicPartition, Offset]:
    """Return the start offset of each partition; a time after the last record means the end.

    Raises: as `list_offsets`.
    """
    ends = await _at(cluster, wanted, LATEST, (AtTime, BeforeEnd), is_committed_only)
    beginnings = await _at(cluster, wanted, EARLIEST, (BeforeEnd,), is_committed_only)
    times = await list_offsets(
        cluster,
        {at: spec.timestamp for at, spec in wanted.items() if isinstance(spec, AtTime)},
        is_committed_only=is_committed_only,
    )
    found: dict[TopicPartition, Offset] = {}
    for partition, spec in wanted.items():
        match spec:
            case AtOffset(offset):
                found[partition] = Offset(offset)
            case AtTime():
                at = times[partition]
                found[partition] = ends[partition] if at is None else at
            case BeforeEnd(count):
                offset = before_end(count, beginnings[partition], ends[partition])
                found[partition] = Offset(offset)
    return found


async def _at(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, OffsetSpec],
    time: int,
    kinds: tuple[type, ...],
    is_committed_only: bool,
) -> dict[TopicPartition, Offset]:
    asked = {each: time for each, spec in wanted.items() if isinstance(spec, kinds)}
    found = await list_offsets(cluster, asked, is_committed_only=is_committed_only)
    return {each: Offset(0) if offset is None else offset for each, offset in found.items()}
