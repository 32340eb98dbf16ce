"""Detect changes of the topics that a group reads.

A group keeps one hash for all topics it subscribes to, computed from their ids, names, partitions
and the racks of these. If it differs from that of the newest image, the epoch of the group rises.
Only equality matters; other implementations may compute another hash.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from ottla.metadata.image import Image
from ottla.metadata.registrations import Cluster
from ottla.metadata.topics import Topic

# The cache is cleared above this size, which exceeds what all groups of a shard read.
_CACHED_MAX: Final = 20_000


class TopicHashes:
    """Hashes of topics, cached as long as the topic and the brokers are the same objects."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._known: dict[str, tuple[Topic, int]] = {}

    def of_group(self, image: Image, names: Iterable[str]) -> int:
        """Return the hash of those topics that exist; 0 if none does."""
        topics = sorted(name for name in names if name in image.topics.ids)
        if not topics:
            return 0
        if self._cluster is not image.cluster or len(self._known) > _CACHED_MAX:
            self._known.clear()
            self._cluster = image.cluster
        digest = blake2b(digest_size=8)
        for name in topics:
            digest.update(self._of_topic(image, name).to_bytes(8, "big", signed=True))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _of_topic(self, image: Image, name: str) -> int:
        topic = image.topics.by_id[image.topics.ids[name]]
        known = self._known.get(name)
        if known is not None and known[0] is topic:
            return known[1]
        found = topic_hash(topic, image.cluster)
        self._known[name] = (topic, found)
        return found


def topic_hash(topic: Topic, cluster: Cluster) -> int:
    """Return a hash that differs when the topic, its partitions or their racks do."""
    digest = blake2b(digest_size=8)
    digest.update(topic.id)
    digest.update(_text(topic.name))
    for index in topic.partition_ids():
        racks = sorted(
            broker.rack
            for broker in map(cluster.brokers.get, topic.partitions[index].replicas)
            if broker is not None and broker.rack is not None
        )
        digest.update(index.to_bytes(4, "big"))
        for rack in racks:
            digest.update(_text(rack))
    return int.from_bytes(digest.digest(), "big", signed=True)


def _text(text: str) -> bytes:
    """Return an encoding that stays unambiguous when concatenated with others."""
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded
