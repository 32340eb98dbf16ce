"""Which partitions want attention, kept up change by change, so that nobody searches for them.

Immutable like the image it belongs to: the state that is thrown away with a lost leadership
takes its index along. Which partitions a broker has is asked of the image, which knows.
"""

from collections.abc import Iterable

import msgspec
from immutables import Map

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.topics import PartitionRegistration, TopicIdPartition


class PartitionIndex(msgspec.Struct, frozen=True, gc=False):
    """Partitions by what is the matter with them; the values of the maps say nothing.

    ``leaderless`` have no leader, ``imbalanced`` are led by another than the first replica,
    ``reassigning`` have replicas that are being added or removed.
    """

    leaderless: Map[TopicIdPartition, None] = Map()
    imbalanced: Map[TopicIdPartition, None] = Map()
    reassigning: Map[TopicIdPartition, None] = Map()


def index_of(image: Image) -> PartitionIndex:
    """Return the index of a whole image, at the cost of a look at every partition."""
    return _indexed(
        PartitionIndex(),
        (
            (TopicIdPartition(topic_id, partition_id), partition)
            for topic_id, topic in image.topics.by_id.items()
            for partition_id, partition in topic.partitions.items()
        ),
    )


def follow(index: PartitionIndex, delta: Delta) -> PartitionIndex:
    """Return the index of ``delta.new``, given that of ``delta.old``."""
    return _indexed(index, ((at, change.new) for at, change in delta.partitions()))


def _indexed(
    index: PartitionIndex,
    partitions: Iterable[tuple[TopicIdPartition, PartitionRegistration | None]],
) -> PartitionIndex:
    leaderless, imbalanced = index.leaderless.mutate(), index.imbalanced.mutate()
    reassigning = index.reassigning.mutate()
    for at, now in partitions:
        is_there = now is not None
        for found, is_in in (
            (leaderless, is_there and not now.has_leader()),
            (imbalanced, is_there and now.leader != now.preferred_leader()),
            (reassigning, is_there and now.is_reassigning()),
        ):
            if is_in:
                found[at] = None
            elif at in found:
                del found[at]
    return PartitionIndex(leaderless.finish(), imbalanced.finish(), reassigning.finish())
