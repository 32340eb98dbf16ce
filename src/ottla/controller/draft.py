"""The partition changes of one decision, each made upon those before it.

A request may name a partition twice, and one cause may touch it twice. The second change is
made to what the first left, so that the records of a decision never contradict each other.
"""

from collections.abc import Iterable

from ottla.controller.config_rules import is_elr_enabled
from ottla.controller.decision_settings import DecisionSettings, TopicPolicies
from ottla.controller.partition_changes import PartitionUpdate, Rules, plan_change
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
    """Return where a new replica goes: the one directory, or for the broker to say (KIP-858)."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        return DIRECTORY_UNASSIGNED
    if not broker.log_dirs:
        return DIRECTORY_MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else DIRECTORY_UNASSIGNED


class Draft:
    """Collects `records`. For the time of one decision.

    ``leaving`` is a broker that can lead no longer although the image says so, ``joining`` one
    that can although the image says not yet; their records are part of the same decision.
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
        """Say whether a replica of a partition could lead it: alive, and its directory works."""
        return self._may_lead(broker_id, partition.directory(broker_id))

    def change(
        self, topic: Topic, partition_id: int, update: PartitionUpdate
    ) -> PartitionRegistration | None:
        """Change a partition that is there; return what it became, None if it stays."""
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
    """Take a broker that is leaving out of ISRs, and give what it leads to others."""
    for at in partitions:
        topic = draft.image.topics.by_id[at.topic_id]
        partition = draft.partition(topic, at.partition)
        assert partition is not None
        isr = tuple(replica for replica in partition.isr if replica != broker_id)
        draft.change(topic, at.partition, PartitionUpdate(isr=isr))


def in_isr(image: Image, broker_id: int) -> list[TopicIdPartition]:
    """Return the partitions that have a broker in their ISR, or for a leader."""
    return [
        at
        for at, partition in image.topics.replicas_on(broker_id)
        if broker_id in partition.isr or partition.leader == broker_id
    ]
