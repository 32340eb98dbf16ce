"""The partition changes of one decision, each based on those before it.

A request may name a partition twice, and one cause may change it twice. The second change applies
to the result of the first, so that the records of a decision never contradict each other.
"""

from collections.abc import Iterable

from ottla.controller.config_rules import is_elr_enabled
from ottla.controller.decision_settings import DecisionSettings, TopicPolicies
from ottla.controller.leader_and_isr import PartitionUpdate, Rules, plan_change
from ottla.metadata.image import Image
from ottla.metadata.replay_topics import merge
from ottla.metadata.topics import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
    Topic,
)
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.types import NO_LEADER, TopicIdPartition, Uuid

NO_BROKER = NO_LEADER


def default_directory(image: Image, broker_id: int) -> Uuid:
    """Return the directory of a new replica: the broker's only one, or unassigned (KIP-858)."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        return DIRECTORY_UNASSIGNED
    if not broker.log_dirs:
        return DIRECTORY_MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else DIRECTORY_UNASSIGNED


class Draft:
    """Collects the `records` of one decision.

    ``leaving`` is a broker that can no longer lead although the image says it can, ``joining`` one
    that can although the image says it cannot yet; the same decision contains their records.
    """

    def __init__(
        self,
        image: Image,
        settings: DecisionSettings,
        *,
        leaving: int = NO_BROKER,
        joining: int = NO_BROKER,
    ) -> None:
        self.image = image
        self.policies = TopicPolicies(image, settings)
        self.records: list[Versioned] = []
        self._leaving, self._joining = leaving, joining
        self._level = image.metadata_version()
        self._is_elr_enabled = is_elr_enabled(image)
        self._changed: dict[TopicIdPartition, PartitionRegistration] = {}

    def partition(self, topic: Topic, partition_id: int) -> PartitionRegistration | None:
        """Return a partition with the changes so far."""
        changed = self._changed.get(TopicIdPartition(topic.id, partition_id))
        return topic.partitions.get(partition_id) if changed is None else changed

    def may_lead(self, partition: PartitionRegistration, broker_id: int) -> bool:
        """Return whether a replica could lead a partition: alive, with its directory online."""
        return self._may_lead(broker_id, partition.directory(broker_id))

    def change(
        self, topic: Topic, partition_id: int, update: PartitionUpdate
    ) -> PartitionRegistration | None:
        """Change an existing partition; return the result, or None if nothing changes."""
        at = TopicIdPartition(topic.id, partition_id)
        old = self.partition(topic, partition_id)
        assert old is not None
        record = plan_change(at, old, update, self._rules(topic, old, update))
        if record is None:
            return None
        self.records.append(Versioned(record, self._level.partition_change_record_version()))
        self._changed[at] = merge(old, record)
        return self._changed[at]

    def _rules(self, topic: Topic, old: PartitionRegistration, update: PartitionUpdate) -> Rules:
        directories = {
            **dict(zip(old.replicas, old.directories, strict=True)),
            **update.directories,
        }

        def may_lead(broker_id: int) -> bool:
            return broker_id != update.lost and self._may_lead(
                broker_id, directories.get(broker_id)
            )

        return Rules(
            level=self._level,
            is_elr_enabled=self._is_elr_enabled,
            min_isr=self.policies.min_isr(topic),
            may_lead=may_lead,
            default_directory=lambda broker_id: default_directory(self.image, broker_id),
        )

    def _may_lead(self, broker_id: int, directory: Uuid | None) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None or broker_id == self._leaving:
            return False
        if broker.in_controlled_shutdown or (broker.fenced and broker_id != self._joining):
            return False
        return directory is None or broker.is_online(directory)


def drop_from_isr(draft: Draft, broker_id: int, partitions: Iterable[TopicIdPartition]) -> None:
    """Remove a leaving broker from ISRs, and elect other leaders for the partitions it leads."""
    for at in partitions:
        topic = draft.image.topics.by_id[at.topic_id]
        partition = draft.partition(topic, at.partition)
        assert partition is not None
        isr = tuple(replica for replica in partition.isr if replica != broker_id)
        draft.change(topic, at.partition, PartitionUpdate(isr=isr))


def in_isr(image: Image, broker_id: int) -> list[TopicIdPartition]:
    """Return the partitions that a broker leads or is in the ISR of."""
    return [
        at
        for at, partition in image.topics.replicas_on(broker_id)
        if broker_id in partition.isr or partition.leader == broker_id
    ]
