"""Partitions that need attention, indexed change by change, so that they need no search.

Immutable like the image it belongs to: the uncommitted state that is dropped with a lost leadership
takes its index with it. The partitions of a broker are in the image itself.
"""

from collections.abc import Iterable

import msgspec
from immutables import Map

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.topics import PartitionRegistration
from ottla.protocol.types import TopicIdPartition


class PartitionIndex(msgspec.Struct, frozen=True, gc=False):
    """Partitions by what needs to be done; the values of these maps carry no meaning.

    ``leaderless`` have no leader, ``imbalanced`` are not led by the first replica, ``reassigning``
    have replicas that are being added or removed. ``alike`` maps each `unified` name to the topic
    names with a dot or an underscore that share it, ascending.
    """

    leaderless: Map[TopicIdPartition, None] = Map()
    imbalanced: Map[TopicIdPartition, None] = Map()
    reassigning: Map[TopicIdPartition, None] = Map()
    alike: Map[str, tuple[str, ...]] = Map()


def unified(name: str) -> str:
    """Return a topic's name in metrics, where dots and underscores cannot be distinguished."""
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    """Return whether another name can be the same once unified."""
    return "." in name or "_" in name


def index_of(image: Image) -> PartitionIndex:
    """Return the index of a whole image, at the cost of reading every partition."""
    index = PartitionIndex(alike=_with_names(Map(), image.topics.names()))
    return _indexed(
        index,
        (
            (TopicIdPartition(topic_id, partition_id), partition)
            for topic_id, topic in image.topics.by_id.items()
            for partition_id, partition in topic.partitions.items()
        ),
    )


def follow(index: PartitionIndex, delta: Delta) -> PartitionIndex:
    """Return the index of ``delta.new``, given that of ``delta.old``."""
    if not delta.topics:
        return index
    alike = _without_names(index.alike, (topic.name for topic in delta.deleted_topics()))
    alike = _with_names(alike, (topic.name for topic in delta.created_topics()))
    index = PartitionIndex(index.leaderless, index.imbalanced, index.reassigning, alike)
    return _indexed(index, ((at, change.new) for at, change in delta.partitions()))


def _indexed(
    index: PartitionIndex,
    partitions: Iterable[tuple[TopicIdPartition, PartitionRegistration | None]],
) -> PartitionIndex:
    leaderless, imbalanced = index.leaderless.mutate(), index.imbalanced.mutate()
    reassigning = index.reassigning.mutate()
    for at, now in partitions:
        for found, is_in in (
            (leaderless, now is not None and not now.has_leader()),
            (imbalanced, now is not None and now.leader != now.preferred_leader()),
            (reassigning, now is not None and now.is_reassigning()),
        ):
            if is_in:
                found[at] = None
            elif at in found:
                del found[at]
    return PartitionIndex(
        leaderless.finish(), imbalanced.finish(), reassigning.finish(), index.alike
    )


def _with_names(
    alike: Map[str, tuple[str, ...]], names: Iterable[str]
) -> Map[str, tuple[str, ...]]:
    changed = alike.mutate()
    for name in filter(may_collide, names):
        key = unified(name)
        changed[key] = tuple(sorted((*changed.get(key, ()), name)))
    return changed.finish()


def _without_names(
    alike: Map[str, tuple[str, ...]], names: Iterable[str]
) -> Map[str, tuple[str, ...]]:
    changed = alike.mutate()
    for name in filter(may_collide, names):
        key = unified(name)
        changed[key] = tuple(other for other in changed[key] if other != name)
        if not changed[key]:
            del changed[key]
    return changed.finish()
