"""What consumer groups need to know of topics: whether those they read have changed.

A group keeps one number for all topics it subscribes to, made of their ids, names, partitions
and the racks these are in. Where it differs from that of the newest image the group's epoch
rises. Only equality counts; the number need not be the one another implementation finds.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from ottla.metadata.image import Image
from ottla.metadata.registrations import Cluster
from ottla.metadata.topics import Topic

# A cache beyond this is begun anew; it then holds more than all groups of a shard read.
_CACHED_MAX: Final = 20_000


class TopicHashes:
    """Hashes of topics, kept as long as the topic and the brokers are the same objects."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._known: dict[str, tuple[Topic, int]] = {}

    def of_group(self, image: Image, names: Iterable[str]) -> int:
        """Return the number of all of these topics that are there; 0 if none is."""
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
    """Return a number that differs when the topic, its partitions or their racks do."""
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
    """Return a string that no other strings side by side can be mistaken for."""
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded
