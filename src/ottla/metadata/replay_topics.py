"""What records about topics, partitions and configurations mean."""

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

# In a change of a partition: the leader, or its recovery state, stays what it was.
NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


def topic(image: Image, record: TopicRecord, touched: Touched) -> Image:
    """A topic without partitions comes into being."""
    topics = image.topics
    if record.name in topics.ids or record.topic_id in topics.by_id:
        raise ReplayFault(f"topic {record.name} is there already")
    touched.topics.setdefault(record.topic_id, {})
    return replace(image, topics=topics.with_topic(record.name, record.topic_id))


def remove_topic(image: Image, record: RemoveTopicRecord, touched: Touched) -> Image:
    """A topic goes, and what was configured for it goes with it.

    Also what was configured in the same batch, which Kafka's image keeps: here an image must
    not depend on how the log was cut into batches.
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
    """A partition is as the record says, whatever it was."""
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
    """What the record names changes; the rest stays.

    The partition epoch rises by one, and the leader epoch does when a leader is named, even the
    one that leads already.
    """
    of = _topic(image, record.topic_id)
    old = of.partitions.get(record.partition_id)
    if old is None:
        raise ReplayFault(f"{of.name}-{record.partition_id} is not there to be changed")
    touched.partition(of.id, record.partition_id)
    topics = image.topics.with_partition(of, record.partition_id, merge(old, record))
    return replace(image, topics=topics)


def merge(old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """Return a partition after a change. Raises `ReplayFault` if the two do not fit."""
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
    """No replica is eligible by history any more, of one topic or, without a name, of all."""
    topics = image.topics
    if not record.topic_name:
        for name in topics.names():
            topics = _without_elr(topics, topics.by_id[topics.ids[name]], touched)
        return replace(image, topics=topics)
    named = topics.named(record.topic_name)
    if named is None:
        raise ReplayFault(f"topic {record.topic_name} is not there")
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
    """One key of a resource is set, or unset by a null."""
    resource = ConfigResource(record.resource_type, record.resource_name)
    touched.configs[resource] = None
    return replace(image, configs=image.configs.with_value(resource, record.name, record.value))


def client_quota(image: Image, record: ClientQuotaRecord, touched: Touched) -> Image:
    """One limit of an entity is set or removed."""
    entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
    touched.client_quotas[entity] = None
    limit = None if record.remove else record.value
    quotas = image.client_quotas.with_limit(entity, record.key, limit)
    return replace(image, client_quotas=quotas)


def producer_ids(image: Image, record: ProducerIdsRecord, touched: Touched) -> Image:
    """All producer ids below the named one belong to some broker."""
    return replace(image, next_producer_id=ProducerId(record.next_producer_id))


def _topic(image: Image, topic_id: Uuid) -> Topic:
    found = image.topics.by_id.get(topic_id)
    if found is None:
        raise ReplayFault(f"topic with id {topic_id.hex()} is not there")
    return found


def _either(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _directories(directories: tuple[Uuid, ...], replicas: int) -> tuple[Uuid, ...]:
    """Return one directory per replica; where none was ever named, all are yet to be."""
    if len(directories) == replicas:
        return directories
    if any(directory != DIRECTORY_MIGRATING for directory in directories):
        raise ReplayFault(f"{len(directories)} directories for {replicas} replicas")
    return (DIRECTORY_MIGRATING,) * replicas


def _recovery_state(value: int) -> LeaderRecoveryState:
    state = _RECOVERY_STATES.get(value)
    if state is None:
        raise ReplayFault(f"leader recovery state {value} is not known")
    return state


# A look-up is a tenth of the price of making an enum from its value, and loading is full of it.
_RECOVERY_STATES = {int(state): state for state in LeaderRecoveryState}
