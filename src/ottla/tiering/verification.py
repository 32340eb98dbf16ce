"""Compares the metadata of remote segments with the objects in remote storage."""

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from ottla.client.cluster import Cluster, Refused
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CorruptBatch, ProtocolFault
from ottla.protocol.types import Offset, TopicIdPartition, TopicPartition
from ottla.runtime.ports import ObjectStore
from ottla.tiering.metadata_cache import MetadataCache
from ottla.tiering.metadata_records import TOPIC, decode_event
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState, SegmentUpdate
from ottla.tiering.segment_objects import ObjectKind, object_key
from ottla.tiering.segment_store import RemoteStorageFailed, SegmentStore


class Finding(NamedTuple):
    """Something that is wrong in remote storage: an object, or the objects of a segment."""

    key: str
    problem: str


async def read_metadata(cluster: Cluster) -> dict[TopicIdPartition, MetadataCache]:
    """Read the whole metadata topic; empty if there is none.

    Raises:
        Refused, NoBroker, ConnectionLost: it cannot be read.
    """
    caches: dict[TopicIdPartition, MetadataCache] = {}
    try:
        known = await cluster.topic(TOPIC)
    except Refused as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return caches
        raise
    places = [TopicPartition(TOPIC, index) for index in known.partitions]
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    positions = {
        place: starts[place] or Offset(0)
        for place in places
        if (starts[place] or 0) < (ends[place] or 0)
    }
    if not positions:
        return caches
    async with open_reader(cluster, positions, ReaderOptions(is_committed_only=False)) as reader:
        while any(reader.positions[place] < (ends[place] or 0) for place in positions):
            for fetched in await reader.poll():
                for record in fetched.records():
                    _apply(caches, record.value)
    return caches


def _apply(caches: dict[TopicIdPartition, MetadataCache], value: bytes | None) -> None:
    try:
        event = None if value is None else decode_event(value)
    except (ProtocolFault, ValueError):
        return  # a record of a later version; brokers ignore it, too
    if isinstance(event, SegmentMetadata):
        caches.setdefault(event.partition, MetadataCache()).add(event)
    elif isinstance(event, SegmentUpdate):
        caches.setdefault(event.segment_id.partition, MetadataCache()).update(event)


async def verify_segments(
    store: SegmentStore, segments: Iterable[SegmentMetadata]
) -> AsyncIterator[tuple[SegmentMetadata, Finding | None]]:
    """Read every object of every finished segment, and say what is wrong with it."""
    for metadata in segments:
        if metadata.state is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        try:
            await store.verify(metadata)
        except (RemoteStorageFailed, CorruptBatch) as fault:
            yield metadata, Finding(store.key(metadata, ObjectKind.LOG), str(fault))
        else:
            yield metadata, None


async def find_orphans(
    objects: ObjectStore, prefix: str, segments: Iterable[SegmentMetadata]
) -> list[Finding]:
    """Return the objects that belong to no known segment, finished or not."""
    known = {object_key(prefix, each, kind) for each in segments for kind in ObjectKind}
    return [
        Finding(found.key, "no metadata names this object")
        async for found in objects.list(prefix)
        if found.key not in known
    ]
