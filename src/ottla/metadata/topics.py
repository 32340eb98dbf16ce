"""Topics and partitions of the image, with the queries that are cheap.

All values are immutable. A changed partition costs a new `PartitionRegistration` and a path of
a few nodes in two maps, whatever the number of partitions.

The maps hash names and ids, and hashes differ between processes: code whose order reaches a log or
a reply must iterate with the sorting methods here, not over a map.
"""

import enum
from collections.abc import Iterator

import msgspec
from immutables import Map
from msgspec.structs import replace

from ottla.protocol.types import NO_LEADER, TopicIdPartition, Uuid

# Directory ids that stand for no directory (KIP-858); ids up to 99 are reserved.
DIRECTORY_MIGRATING = Uuid(bytes(16))
DIRECTORY_UNASSIGNED = Uuid(bytes(15) + b"\x01")
DIRECTORY_LOST = Uuid(bytes(15) + b"\x02")


class LeaderRecoveryState(enum.IntEnum):
    """Whether the leader was elected uncleanly and still has to recover its state (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionRegistration(msgspec.Struct, frozen=True, gc=False):
    """The state of a partition.

    ``directories`` is parallel to ``replicas``. ``leader`` is -1 for none; node id 0 is valid.
    ``leader_epoch`` rises when a leader is set, ``partition_epoch`` with every change. The
    preferred leader is the first replica.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...]
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def has_leader(self) -> bool:
        """Return whether the partition has a leader."""
        return self.leader != NO_LEADER

    def preferred_leader(self) -> int:
        """Return the first replica, or -1 of an empty assignment."""
        return self.replicas[0] if self.replicas else NO_LEADER

    def is_reassigning(self) -> bool:
        """Return whether replicas are being added or removed (KIP-455)."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, replica: int) -> Uuid | None:
        """Return the directory of ``replica``, or None if it is not a replica."""
        if replica not in self.replicas:
            return None
        return self.directories[self.replicas.index(replica)]


class Topic(msgspec.Struct, frozen=True, gc=False):
    """A topic with its partitions by number."""

    name: str
    id: Uuid
    partitions: Map[int, PartitionRegistration] = Map()

    def partition_ids(self) -> list[int]:
        """Return the numbers of the partitions, ascending."""
        return sorted(self.partitions)


class Topics(msgspec.Struct, frozen=True, gc=False):
    """All topics, by id and by name.

    Invariants: ``ids`` and ``by_id`` contain the same topics; ``partition_count`` is the sum over
    all topics; ``hosted`` gives, for every broker and topic, the number of partitions that it is a
    replica of, without zeros, so that the partitions of a broker are found without searching all
    topics.
    """

    by_id: Map[Uuid, Topic] = Map()
    ids: Map[str, Uuid] = Map()
    partition_count: int = 0
    hosted: Map[int, Map[Uuid, int]] = Map()

    def named(self, name: str) -> Topic | None:
        """Return the topic of this name."""
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, topic_id: Uuid, partition_id: int) -> PartitionRegistration | None:
        """Return one partition, None if there is no such topic or partition."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def leader(self, topic_id: Uuid, partition_id: int) -> int:
        """Return the leader of a partition; -1 if it has none or does not exist."""
        partition = self.partition(topic_id, partition_id)
        return NO_LEADER if partition is None else partition.leader

    def names(self) -> list[str]:
        """Return the names of all topics, ascending."""
        return sorted(self.ids)

    def replicas_on(
        self, broker_id: int
    ) -> Iterator[tuple[TopicIdPartition, PartitionRegistration]]:
        """Yield the partitions that a broker is a replica of, by topic id and number."""
        for topic_id in sorted(self.hosted.get(broker_id, ())):
            topic = self.by_id[topic_id]
            for partition_id in topic.partition_ids():
                partition = topic.partitions[partition_id]
                if broker_id in partition.replicas:
                    yield TopicIdPartition(topic_id, partition_id), partition

    # -- the next image --------------------------------------------------------------------

    def with_topic(self, name: str, topic_id: Uuid) -> "Topics":
        """Return the topics with a new one without partitions."""
        return replace(
            self,
            by_id=self.by_id.set(topic_id, Topic(name, topic_id)),
            ids=self.ids.set(name, topic_id),
        )

    def without_topic(self, topic: Topic) -> "Topics":
        """Return the topics without one of them."""
        hosted = self.hosted
        for partition in topic.partitions.values():
            hosted = _move(hosted, topic.id, partition.replicas, ())
        return Topics(
            self.by_id.delete(topic.id),
            self.ids.delete(topic.name),
            self.partition_count - len(topic.partitions),
            hosted,
        )

    def with_partition(
        self, topic: Topic, partition_id: int, partition: PartitionRegistration
    ) -> "Topics":
        """Return the topics with one partition added or replaced."""
        before = topic.partitions.get(partition_id)
        replicas_before = () if before is None else before.replicas
        changed = Topic(topic.name, topic.id, topic.partitions.set(partition_id, partition))
        return Topics(
            self.by_id.set(topic.id, changed),
            self.ids,
            self.partition_count + (before is None),
            _move(self.hosted, topic.id, replicas_before, partition.replicas),
        )


def _move(
    hosted: Map[int, Map[Uuid, int]], topic_id: Uuid, old: tuple[int, ...], new: tuple[int, ...]
) -> Map[int, Map[Uuid, int]]:
    if old == new:
        return hosted
    for broker_id in new:
        if broker_id not in old:
            hosted = _count(hosted, broker_id, topic_id, 1)
    for broker_id in old:
        if broker_id not in new:
            hosted = _count(hosted, broker_id, topic_id, -1)
    return hosted


def _count(
    hosted: Map[int, Map[Uuid, int]], broker_id: int, topic_id: Uuid, more: int
) -> Map[int, Map[Uuid, int]]:
    counts: Map[Uuid, int] = hosted.get(broker_id, Map())
    count = counts.get(topic_id, 0) + more
    counts = counts.set(topic_id, count) if count else counts.delete(topic_id)
    return hosted.set(broker_id, counts) if counts else hosted.delete(broker_id)
