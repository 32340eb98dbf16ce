"""Replays records about topics, partitions and configurations."""

from msgspec.structs import replace

from ottla.metadata.configs import ConfigResource, ConfigResourceType, quota_entity
from ottla.metadata.image import Image
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.topics import (
    DIRECTORY_MIGRATING,
    LeaderRecoveryState,
    PartitionRegistration,
    Topic,
    Topics,
)
from ottla.metadata.touched import Touched
from ottla.protocol.internal.metadata_topics import (
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.types import ProducerId, Uuid

# In a partition change: the leader, or its recovery state, does not change.
NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


def topic(image: Image, record: TopicRecord, touched: Touched) -> Image:
    """Create a topic without partitions."""
    topics = image.topics
    if record.name in topics.ids or record.topic_id in topics.by_id:
        raise ReplayFault(f"topic {record.name} already exists")
    touched.topics.setdefault(record.topic_id, {})
    return replace(image, topics=topics.with_topic(record.name, record.topic_id))


def remove_topic(image: Image, record: RemoveTopicRecord, touched: Touched) -> Image:
    """Delete a topic together with its configuration.

    That includes configuration from the same batch, which Kafka's image keeps: here an image must
    not depend on how the log was divided into batches.
    """
    gone = _topic(image, record.topic_id)
    resource = ConfigResource(ConfigResourceType.TOPIC, gone.name)
    touched.topics.setdefault(gone.id, {}).update(dict.fromkeys(gone.partition_ids()))
    touched.configs[resource] = None
    return replace(
        image,
        topics=image.topics.without_topic(gone),
        configs=image.configs.without(resource),
    )


def partition(image: Image, record: PartitionRecord, touched: Touched) -> Image:
    """Set a partition to the state in the record, whatever it was."""
    of = _topic(image, record.topic_id)
    touched.partition(of.id, record.partition_id)
    registration = PartitionRegistration(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=_directories(tuple(record.directories), len(record.replicas)),
        leader_recovery_state=_recovery_state(record.leader_recovery_state),
        adding_replicas=tuple(record.adding_replicas),
        removing_replicas=tuple(record.removing_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )
    topics = image.topics.with_partition(of, record.partition_id, registration)
    return replace(image, topics=topics)


def partition_change(image: Image, record: PartitionChangeRecord, touched: Touched) -> Image:
    """Change the given parts of a partition; keep the rest.

    The partition epoch rises by one, and the leader epoch rises if the record contains a leader,
    even the current one.
    """
    of = _topic(image, record.topic_id)
    old = of.partitions.get(record.partition_id)
    if old is None:
        raise ReplayFault(f"{of.name}-{record.partition_id} does not exist")
    touched.partition(of.id, record.partition_id)
    topics = image.topics.with_partition(of, record.partition_id, merge(old, record))
    return replace(image, topics=topics)


def merge(old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """Return a partition after a change. Raises `ReplayFault` if it does not apply."""
    replicas = _either(record.replicas, old.replicas)
    is_led_anew = record.leader != NO_LEADER_CHANGE
    return PartitionRegistration(
        replicas=replicas,
        isr=_either(record.isr, old.isr),
        leader=record.leader if is_led_anew else old.leader,
        leader_epoch=old.leader_epoch + is_led_anew,
        partition_epoch=old.partition_epoch + 1,
        directories=_directories(
            old.directories if record.directories is None else tuple(record.directories),
            len(replicas),
        ),
        leader_recovery_state=(
            old.leader_recovery_state
            if record.leader_recovery_state == NO_RECOVERY_CHANGE
            else _recovery_state(record.leader_recovery_state)
        ),
        adding_replicas=_either(record.adding_replicas, old.adding_replicas),
        removing_replicas=_either(record.removing_replicas, old.removing_replicas),
        elr=_either(record.eligible_leader_replicas, old.elr),
        last_known_elr=_either(record.last_known_elr, old.last_known_elr),
    )


def clear_elr(image: Image, record: ClearElrRecord, touched: Touched) -> Image:
    """Clear the eligible leader replicas of one topic or, without a name, of all."""
    topics = image.topics
    if not record.topic_name:
        for name in topics.names():
            topics = _without_elr(topics, topics.by_id[topics.ids[name]], touched)
        return replace(image, topics=topics)
    named = topics.named(record.topic_name)
    if named is None:
        raise ReplayFault(f"topic {record.topic_name} does not exist")
    return replace(image, topics=_without_elr(topics, named, touched))


def _without_elr(topics: Topics, of: Topic, touched: Touched) -> Topics:
    for partition_id in of.partition_ids():
        old = of.partitions[partition_id]
        if old.elr or old.last_known_elr:
            cleared = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
            touched.partition(of.id, partition_id)
            topics = topics.with_partition(of, partition_id, merge(old, cleared))
            of = topics.by_id[of.id]
    return topics


def config(image: Image, record: ConfigRecord, touched: Touched) -> Image:
    """Set one key of a resource, or remove it by a null."""
    resource = ConfigResource(record.resource_type, record.resource_name)
    touched.configs[resource] = None
    return replace(image, configs=image.configs.with_value(resource, record.name, record.value))


def client_quota(image: Image, record: ClientQuotaRecord, touched: Touched) -> Image:
    """Set or remove one limit of an entity."""
    entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
    touched.client_quotas[entity] = None
    limit = None if record.remove else record.value
    quotas = image.client_quotas.with_limit(entity, record.key, limit)
    return replace(image, client_quotas=quotas)


def producer_ids(image: Image, record: ProducerIdsRecord, touched: Touched) -> Image:
    """Record that all producer ids below the given one are allocated."""
    return replace(image, next_producer_id=ProducerId(record.next_producer_id))


def _topic(image: Image, topic_id: Uuid) -> Topic:
    found = image.topics.by_id.get(topic_id)
    if found is None:
        raise ReplayFault(f"topic with id {topic_id.hex()} does not exist")
    return found


def _either(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _directories(directories: tuple[Uuid, ...], replicas: int) -> tuple[Uuid, ...]:
    """Return one directory per replica; all unassigned if the record has none."""
    if len(directories) == replicas:
        return directories
    if any(directory != DIRECTORY_MIGRATING for directory in directories):
        raise ReplayFault(f"{len(directories)} directories for {replicas} replicas")
    return (DIRECTORY_MIGRATING,) * replicas


def _recovery_state(value: int) -> LeaderRecoveryState:
    state = _RECOVERY_STATES.get(value)
    if state is None:
        raise ReplayFault(f"leader recovery state {value} is unknown")
    return state


# A look-up takes a tenth of the time of creating an enum from its value, and loading does many.
_RECOVERY_STATES = {int(state): state for state in LeaderRecoveryState}
