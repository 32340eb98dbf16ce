"""Reads records for a page: some from a start, the newest, or one."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from ottla.client.cluster import Cluster, Refused
from ottla.client.consumer import Reader, ReaderOptions, open_reader
from ottla.client.offset_spec import EARLIEST, LATEST, BeforeEnd, OffsetSpec
from ottla.client.offsets import list_offsets, resolve
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Offset, TopicPartition

RECORDS_MAX: Final = 500
READ_S_MAX: Final = 8.0
"""How long a page waits for records."""
OPTIONS: Final = ReaderOptions(wait_ms_max=250, bytes_max=8 << 20, failures_max=3)

Found = tuple[TopicPartition, Record]


async def partitions_of(
    cluster: Cluster, topic: str, partition: int | None
) -> list[TopicPartition]:
    """Return all partitions of a topic, or the one. Raises `Refused`."""
    cluster.forget(topic)
    numbers = sorted((await cluster.topic(topic)).partitions)
    if partition is None:
        return [TopicPartition(topic, number) for number in numbers]
    if partition not in numbers:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
    return [TopicPartition(topic, partition)]


async def bounds_of(
    cluster: Cluster, places: Sequence[TopicPartition], *, is_committed_only: bool = False
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first and the next offset of partitions; what is read ends with the committed."""
    first = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(
        cluster, dict.fromkeys(places, LATEST), is_committed_only=is_committed_only
    )
    return {place: (first[place] or 0, ends[place] or 0) for place in places}


async def read_from(
    cluster: Cluster, places: Sequence[TopicPartition], start: OffsetSpec, limit: int
) -> list[Found]:
    """Return up to ``limit`` records from a start on, by time. Raises `Refused`."""
    spec = BeforeEnd(limit) if isinstance(start, BeforeEnd) else start
    starts = await resolve(cluster, dict.fromkeys(places, spec))
    bounds = await bounds_of(cluster, places, is_committed_only=True)
    starts = {place: Offset(max(offset, bounds[place][0])) for place, offset in starts.items()}
    ends = {place: bounds[place][1] for place in places}
    records = [item async for item in read_range(cluster, starts, ends, limit)]
    records.sort(key=lambda item: (item[1].timestamp, item[0].partition, item[1].offset))
    return records[-limit:] if isinstance(start, BeforeEnd) else records[:limit]


async def read_range(
    cluster: Cluster,
    starts: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, int],
    limit: int,
) -> AsyncIterator[Found]:
    """Yield up to ``limit`` records of each partition, until the ends or `READ_S_MAX`."""
    positions = {place: start for place, start in starts.items() if start < ends[place]}
    if not positions:
        return
    counts = dict.fromkeys(positions, 0)
    loop = asyncio.get_running_loop()
    stop_at = loop.time() + READ_S_MAX
    async with open_reader(cluster, positions, OPTIONS) as reader:
        while reader.positions and loop.time() < stop_at:
            for fetched in await reader.poll():
                place = fetched.partition
                for record in fetched.records():
                    if record.offset < ends[place] and counts[place] < limit:
                        counts[place] += 1
                        yield place, record
            _drop_finished(reader, ends, counts, limit)


def _drop_finished(
    reader: Reader,
    ends: Mapping[TopicPartition, int],
    counts: Mapping[TopicPartition, int],
    limit: int,
) -> None:
    for place, position in reader.positions.items():
        if position >= ends[place] or counts[place] >= limit:
            reader.drop(place)


async def read_one(cluster: Cluster, place: TopicPartition, offset: int) -> Record | None:
    """Return the record at an offset; None if there is none. Raises `Refused`."""
    first, end = (await bounds_of(cluster, [place], is_committed_only=True))[place]
    if not first <= offset < end:
        return None
    async for _, record in read_range(cluster, {place: Offset(offset)}, {place: offset + 1}, 1):
        if record.offset == offset:
            return record
    return None
